"""Several processes on one port, over TLS: one budget, one administration, and the death of a process."""

import datetime as dt
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.ports import free_ports
from thrifty import save

x509 = pytest.importorskip("cryptography.x509")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc"),
]

WINDOW = 60


def write_certificate(folder):
    """A certificate of localhost that signs itself, and its key."""
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    encodings = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(*encodings))


@pytest.fixture(scope="module")
def served(numbers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("workers")
    save(numbers, folder / "labs.thrifty")
    write_certificate(folder)
    (folder / "keys.toml").write_text('clients = ["old"]\nmetrics = ["scraper"]\nadmin = ["root"]\n')
    budget = float(numbers.chain_.policy.cost[[0, -1]].mean())
    port, admin = free_ports(2)
    settings = f"budget = {budget}\nbudget_cap = {1.02 * budget}\nbudget_window = {WINDOW}\ndrain = 2.0\n"
    (folder / "serve.toml").write_text(settings)
    options = f"--config serve.toml --workers 2 --port {port} --admin-port {admin} --keys keys.toml"
    options += " --tls-cert cert.pem --tls-key key.pem"
    code = "import sys; from thrifty.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "serve", "labs.thrifty", *options.split()]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=log)
    trusted = ssl.create_default_context(cafile=str(folder / "cert.pem"))

    def ask(to, path, body=None, key=None):
        connection = http.client.HTTPSConnection("localhost", to, context=trusted, timeout=20)
        headers = {"Content-Type": "application/json"} | ({"X-API-Key": key} if key else {})
        connection.request(
            "GET" if body is None else "POST", path, None if body is None else json.dumps(body), headers
        )
        answer = connection.getresponse()
        said = answer.read().decode()
        connection.close()
        return answer.status, json.loads(said) if said.startswith("{") else said

    def metrics():
        text = ask(admin, "/metrics", key="scraper")[1]
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in lines}

    found = SimpleNamespace(port=port, folder=folder, process=process, budget=budget, metrics=metrics)
    found.ask = lambda path, body=None, key="old": ask(port, path, body, key)
    found.admin = lambda path, body=None, key="root": ask(admin, path, body, key)
    try:
        wait_for(lambda: len(workers_of(process)) == 2, found)
        os.kill(workers_of(process)[1], signal.SIGKILL)
        wait_for(lambda: found.ask("/v2/health/ready")[0] == 200, found)
        wait_for(lambda: len(worker_rows(found.metrics())) == 2, found)
        yield found
    finally:
        process.kill()
        process.wait()


def wait_for(is_so, served, seconds=90):
    end = time.monotonic() + seconds
    while time.monotonic() < end and served.process.poll() is None:
        try:
            if is_so():
                return
        except (OSError, http.client.HTTPException, AttributeError, ValueError):
            pass
        time.sleep(0.05)
    raise AssertionError((served.folder / "log").read_text())


def worker_rows(metrics):
    return [value for name, value in metrics.items() if name.startswith("thrifty_worker_rows")]


def workers_of(process):
    """Process ids of the workers."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(one) for one in children if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]


@pytest.fixture(scope="module")
def rows(numbers, make_table):
    table = make_table(3 * WINDOW, seed=5)[list(numbers.chain_.schema.names)]
    return [{"rows": [row]} for row in table.to_dict("records")]


def test_a_worker_that_is_killed_while_the_others_start_is_replaced(served):
    lines = [json.loads(line) for line in (served.folder / "log").read_text().splitlines()]
    assert any(
        line["message"] == "worker 1 is replaced: it ended with exit code -9"
        for line in lines
        if "message" in line
    )
    assert len(workers_of(served.process)) == 2


def test_workers_share_the_budget_the_metrics_and_the_administration(served, numbers, rows):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda row: served.ask("/predict", row), rows))
    assert {status for status, _ in answers} == {200}
    costs = [said["answers"][0]["cost"] for _, said in answers]
    assert max(costs) > 1.02 * served.budget
    assert sum(costs) <= 1.02 * served.budget * len(costs) * (1 + 1e-9)
    metrics = served.metrics()
    assert min(worker_rows(metrics)) > 0
    assert sum(worker_rows(metrics)) == len(rows)
    assert metrics['thrifty_requests_total{operation="predict",status="200"}'] == len(rows)
    assert metrics["thrifty_spend_total"] == pytest.approx(sum(costs))
    # All workers show the one window that they share.
    assert metrics["thrifty_budget_mean_spend"] <= 1.02 * served.budget
    status = served.admin("/status.json")[1]
    assert (status["rows"], status["workers"]) == (len(rows), 2)

    before = status["version"]
    save(numbers.at(budget=2.0), served.folder / "labs.thrifty")
    assert served.admin("/reload", {})[0] == 200
    versions = {served.ask("/predict", row)[1]["model_version"] for row in rows[:20]}
    assert len(versions) == 1
    assert versions != {before}
    (served.folder / "labs.thrifty").write_bytes(b"nonsense")
    assert served.admin("/reload", {})[0] == 400
    assert {served.ask("/predict", row)[1]["model_version"] for row in rows[:20]} == versions
    save(numbers, served.folder / "labs.thrifty")
    assert served.admin("/budget", {"budget": 1e9})[0] == 400
    assert served.admin("/budget", {"budget": served.budget})[1] == {"budget": served.budget}


def test_keys_of_clients_of_metrics_and_of_operators_are_rotated(served, rows):
    keys = served.folder / "keys.toml"
    assert served.ask("/predict", rows[0], key=None)[0] == 401
    assert [served.admin("/metrics", key=key)[0] for key in (None, "old", "scraper", "root")] == [
        401,
        401,
        200,
        200,
    ]
    assert [served.admin("/reload", {}, key)[0] for key in ("old", "scraper")] == [401, 401]
    keys.write_text('clients = ["new", "old"]\nmetrics = ["scraper"]\nadmin = ["root"]\n')
    assert served.admin("/reload", {})[0] == 200
    assert {served.ask("/predict", row, key)[0] for row in rows[:5] for key in ("old", "new")} == {200}
    # Keys are rotated in all workers, even where the system cannot be read.
    whole = (served.folder / "labs.thrifty").read_bytes()
    (served.folder / "labs.thrifty").write_bytes(b"nonsense")
    keys.write_text('clients = ["newer", "old"]\nmetrics = ["scraper"]\nadmin = ["root"]\n')
    assert served.admin("/reload", {})[0] == 400
    assert {served.ask("/predict", row, "newer")[0] for row in rows[:20]} == {200}
    (served.folder / "labs.thrifty").write_bytes(whole)
    keys.write_text("clients = []\n")  # would leave predictions open
    assert served.admin("/reload", {})[0] == 400
    assert served.ask("/predict", rows[0], key=None)[0] == 401
    keys.write_text('clients = ["new"]\nmetrics = ["scraper"]\nadmin = ["root"]\n')
    served.process.send_signal(signal.SIGHUP)
    wait_for(lambda: {served.ask("/predict", row)[0] for row in rows[:5]} == {401}, served)
    keys.write_text('clients = ["old"]\nmetrics = ["scraper"]\nadmin = ["root"]\n')
    assert served.admin("/reload", {})[0] == 200


def test_a_worker_that_is_killed_is_replaced_while_the_other_one_answers(served, rows):
    before, workers = served.metrics(), workers_of(served.process)
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    statuses = []
    for row in rows[:30]:
        try:
            statuses.append(served.ask("/predict", row)[0])
        except (OSError, http.client.HTTPException):  # the killed one had accepted the connection
            statuses.append(0)
    assert statuses.count(200) >= 25
    wait_for(lambda: len(worker_rows(served.metrics())) == 2, served)
    assert len(set(workers_of(served.process)) - set(workers)) == 1
    after = served.metrics()
    name = 'thrifty_requests_total{operation="predict",status="200"}'
    assert after[name] >= before[name] + statuses.count(200)
    with ThreadPoolExecutor(8) as pool:
        costs = [
            said["answers"][0]["cost"] for _, said in pool.map(lambda row: served.ask("/predict", row), rows)
        ]
    assert np.sum(costs) <= 1.02 * served.budget * len(costs) * (1 + 1e-9)


def test_metrics_of_workers_have_the_disk_that_they_map(served):
    for worker in workers_of(served.process):
        files = [*Path(tempfile.gettempdir()).glob(f"thrifty-*/*_{worker}.db")]
        assert files
        for path in files:  # on a full disk, a hole in it would end the worker
            assert 512 * path.stat().st_blocks >= path.stat().st_size


def test_every_line_of_the_log_is_json_whatever_strangers_send(served):
    trusted = ssl.create_default_context(cafile=str(served.folder / "cert.pem"))
    log = served.folder / "log"
    for _ in range(3):
        assert served.ask("/predict", {"rows": []}, key="stranger")[0] == 401
    for _ in range(3):
        with (
            socket.create_connection(("localhost", served.port)) as plain,
            trusted.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            secure.sendall(b"\x00 nonsense\r\n\r\n")
            secure.recv(1000)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    strangers = [line for line in lines if line.get("message") == "Invalid HTTP request received."]
    assert len(strangers) == 3
    assert {"time", "level"} <= set.intersection(*(set(line) for line in lines))
    assert any(line.get("status") == 401 for line in lines)
    assert any("is replaced: it ended with exit code -9" in line.get("message", "") for line in lines)


def test_workers_end_with_their_supervisor(served):
    workers = workers_of(served.process)
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(timeout=30) in (0, -signal.SIGTERM)
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
    assert "Traceback" not in (served.folder / "log").read_text()
