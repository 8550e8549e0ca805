"""The command itself: two ports, a client of Triton, a reload by signal, an orderly end."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import numpy as np
import pytest

from benchmarks.ports import free_ports
from thrifty import save

httpclient = pytest.importorskip("tritonclient.http")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the client
]


def fetch(url, body=None):
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return answer.read().decode()


@pytest.fixture(scope="module")
def server(numbers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    save(numbers, folder / "labs.thrifty")
    port, admin = free_ports(2)
    (folder / "serve.toml").write_text(f"port = {port}\nadmin_port = {admin}\ndrain = 2.0\n")
    code = "import sys; from thrifty.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "serve", "labs.thrifty", "--config", "serve.toml"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: "true" in fetch(f"http://127.0.0.1:{port}/v2/health/ready"), process)
        yield folder, process, port, f"http://127.0.0.1:{admin}"
    finally:
        process.kill()
        process.communicate()


def wait_for(is_so, process, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            if is_so():
                return
        except (urllib.error.URLError, ConnectionError):
            pass
        time.sleep(0.05)
    raise AssertionError(process.communicate()[1] if process.poll() is not None else "nothing happened")


@pytest.mark.parametrize("binary", [False, True])
def test_a_client_of_triton_gets_the_answers_of_the_command_line(
    answers_to, server, numbers, make_table, of_request, binary
):
    port = server[2]
    rows = make_table(30, seed=6)[list(numbers.chain_.schema.names)]
    client = httpclient.InferenceServerClient(f"127.0.0.1:{port}")
    assert client.is_server_live()
    assert client.is_model_ready("labs")
    assert client.get_model_metadata("labs")["parameters"]["columns"] == list(numbers.chain_.schema.names)
    tensor = httpclient.InferInput("X", list(rows.shape), "FP64")
    tensor.set_data_from_numpy(rows.to_numpy(), binary_data=binary)
    said = client.infer("labs", [tensor], request_id="one")
    expected = answers_to(numbers, of_request(rows, "one"))
    assert said.get_response()["id"] == "one"
    assert [str(one) for one in said.as_numpy("answer")] == expected["answer"].tolist()
    np.testing.assert_array_equal(said.as_numpy("cost"), expected["cost"])
    assert not said.as_numpy("degraded").any()
    client.close()


def test_the_file_is_read_again_on_a_signal_and_the_gateway_ends_in_order(server, numbers):
    folder, process, port, admin = server
    before = json.loads(fetch(f"{admin}/status.json"))["version"]
    save(numbers.at(budget=2.0), folder / "labs.thrifty")
    process.send_signal(signal.SIGHUP)
    wait_for(lambda: json.loads(fetch(f"{admin}/status.json"))["version"] != before, process)
    (folder / "labs.thrifty").write_bytes(b"nonsense")
    with pytest.raises(urllib.error.HTTPError, match="400"):
        fetch(f"{admin}/reload", b"{}")
    assert 'thrifty_reloads_total{outcome="refused"} 1.0' in fetch(f"{admin}/metrics")
    row = dict.fromkeys(numbers.chain_.schema.names, 0.123456)
    assert '"answers"' in fetch(f"http://127.0.0.1:{port}/predict", json.dumps({"rows": [row]}).encode())
    os.kill(process.pid, signal.SIGTERM)
    said, log = process.communicate(timeout=20)
    assert process.returncode in (0, -signal.SIGTERM)
    assert said.startswith("labs answers at http://127.0.0.1:")
    assert "Traceback" not in log
    assert "0.123456" not in log
    assert '"operation":"predict","status":200' in log
