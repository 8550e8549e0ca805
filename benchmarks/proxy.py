"""nginx in front of a gateway on the loopback, as `deploy/nginx.conf` sets it up, for benchmarks and attacks."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

HOST = "127.0.0.1"
CONFIGURATION = Path(__file__).parents[1] / "deploy" / "nginx.conf"
_CERTIFICATE = (
    "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem"
)
_TIMEOUT = re.compile(r"^(\s*(?:client_\w+|send|keepalive)_timeout) (\d+)s", re.MULTILINE)


def nginx():
    """Path of nginx; without it, the way to install it."""
    path = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if path is None:
        raise SystemExit(
            "nginx is not installed: make test-proxy installs it, or apt-get install nginx-light."
        )
    return path


def configured(port, gateway_port, *, tls=True, hurry=1, per_address=256):
    """The text of `deploy/nginx.conf` for two ports of the loopback.

    ``hurry`` divides the timeouts of clients; ``per_address`` are the requests under way of one address.
    """
    text = CONFIGURATION.read_text()
    parts = {
        "server gateway:8080 ": f"server {HOST}:{gateway_port} ",
        "listen 8443 ssl ": f"listen {HOST}:{port} {'ssl ' if tls else ''}",
        "limit_conn address 256;": f"limit_conn address {per_address};",
    }
    for part, other in parts.items():
        assert text.count(part) == 1, part
        text = text.replace(part, other)
    # Workers that root starts are of another user, who may not open the folder, where large bodies wait.
    text = f"user root;\n{text}" if os.geteuid() == 0 else text
    return _TIMEOUT.sub(lambda timeout: f"{timeout[1]} {max(int(timeout[2]) // hurry, 1)}s", text)


@contextlib.contextmanager
def proxied(folder, port, gateway_port, preexec_fn=None, **how):
    """Run nginx in a folder, which keeps all that it writes; yields its process."""
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    if not (folder / "cert.pem").exists():
        subprocess.run(_CERTIFICATE.split(), cwd=folder, check=True, capture_output=True)
    (folder / "nginx.conf").write_text(configured(port, gateway_port, **how))
    command = [nginx(), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]
    with (folder / "nginx.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=preexec_fn)
    try:
        _wait(port, process, folder / "nginx.log")
        yield process
    finally:
        process.terminate()
        process.wait(20)


def _wait(port, process, log):
    ends = time.monotonic() + 10
    while time.monotonic() < ends and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            return
        time.sleep(0.02)
    raise RuntimeError(log.read_text()[-500:])
