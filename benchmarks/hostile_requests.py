"""Requests that nobody means well with, through a socket: no 5xx of ours, no traceback, memory that stays.

    python benchmarks/hostile_requests.py [--requests 20000] [--schemathesis 1000]

A small system is fitted and served by `thrifty serve` on this machine. Requests are well-meant ones of which bytes were
changed, cut out or repeated, headers included. With --schemathesis N, that program then sends up to N generated
requests for each operation of /openapi.json (`pip install schemathesis`), for half an hour at most; an operation that
takes no input is asked once.
"""

import argparse
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

from thrifty import BudgetedClassifier, StageOptions, save

SCALARS = [
    0,
    -1,
    1.5,
    1e308,
    -0.0,
    2**63,
    10**30,
    True,
    None,
    "",
    "1.5",
    "red",
    "\u0000",
    "x" * 5000,
    [],
    {},
    [[1]],
]
"""What stands where something else is expected."""


def fitted(folder):
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    save(
        BudgetedClassifier(budget=3, stages=StageOptions(sizes=[(30, 3)]), random_state=0).fit(X, y),
        folder / "cancer.thrifty",
    )
    return X


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def started(folder, port):
    code = "import sys; from thrifty.cli import main; sys.exit(main(sys.argv[1:]))"
    how = ["serve", "cancer.thrifty", "--port", str(port), "--admin-port", str(free_port())]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-c", code, *how], cwd=folder, stdout=log, stderr=log)
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return process
        except OSError:
            time.sleep(0.1)
    raise SystemExit((folder / "log").read_text())


def asked(operation, names, chance):
    """A request that is well meant."""
    numbers = chance.normal(size=(2, len(names))).round(3).tolist()
    if operation == "predict":
        return {"rows": [dict(zip(names, row, strict=True)) for row in numbers]}
    if chance.random() < 0.5:
        tensor = {"name": "X", "datatype": "FP64", "shape": [2, len(names)], "data": numbers}
        return {"inputs": [tensor], "outputs": [{"name": "answer"}], "id": "a"}
    columns = zip(names, zip(*numbers, strict=True), strict=True)
    tensors = [{"name": one, "datatype": "FP64", "shape": [2], "data": list(two)} for one, two in columns]
    return {"inputs": tensors}


def spoilt(thing, chance):
    """The same with something in it replaced, left out or added."""
    keys = (
        list(thing) if isinstance(thing, dict) else list(range(len(thing))) if isinstance(thing, list) else []
    )
    if not keys or chance.random() < 0.15:
        return SCALARS[chance.integers(len(SCALARS))]
    key, what = keys[chance.integers(len(keys))], chance.random()
    other = dict(thing) if isinstance(thing, dict) else list(thing)
    if what < 0.12:
        del other[key]
    elif what < 0.2 and isinstance(other, dict):
        other[str(SCALARS[chance.integers(len(SCALARS))])] = other[key]
    elif what < 0.25 and isinstance(other, list):
        other.append(other[key])
    else:
        other[key] = spoilt(thing[key], chance)
    return other


def mangled(raw, chance):
    """The same bytes with some of them changed, cut out or repeated."""
    raw = bytearray(raw)
    for _ in range(chance.integers(1, 4)):
        at = int(chance.integers(len(raw) + 1))
        what = chance.integers(4)
        if what == 0 and at < len(raw):
            raw[at] = int(chance.integers(256))
        elif what == 1:
            del raw[at : at + int(chance.integers(1, 30))]
        elif what == 2:
            raw[at:at] = [b"NaN", b"1e999", b"\xff", b"{", b"]", b'"', b"null", b"\r\n"][chance.integers(8)]
        else:
            raw[at:at] = raw[at : at + int(chance.integers(1, 30))]
    return bytes(raw)


def request(names, chance):
    """A well-meant request: its head and its body."""
    operation = ("predict", "infer")[chance.integers(2)]
    raw = json.dumps(asked(operation, names, chance)).encode()
    path = {"predict": "/predict", "infer": "/v2/models/cancer/infer"}[operation]
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n".encode(), raw


def status_of(port, raw):
    with socket.create_connection(("127.0.0.1", port), 2) as connection:
        connection.sendall(raw)
        # Whoever waits for more of a request is told that there is no more.
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(2)
        try:
            said = connection.recv(4096)
        except (TimeoutError, ConnectionError):
            return "no answer"
    return said[9:12].decode() if said.startswith(b"HTTP/") else "closed"


def memory(process):
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def generated(url, n_examples):
    checks = "not_a_server_error,status_code_conformance,response_schema_conformance"
    program = Path(sys.executable).with_name("schemathesis")
    how = ["--max-examples", str(n_examples), "--checks", checks, "--phases", "fuzzing", "--seed", "1"]
    try:
        subprocess.run([program, "run", url, *how], check=False, timeout=1800)
    except subprocess.TimeoutExpired:
        print("schemathesis was stopped after half an hour")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--schemathesis", type=int, default=0)
    args = parser.parse_args()
    # Whoever is told to stop stops what it has started too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chance = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        X = fitted(folder)
        process = started(folder, port)
        try:
            statuses, sizes = Counter(), []
            for number in range(args.requests):
                head, body = request(list(X.columns), chance)
                whole = (
                    head + mangled(body, chance) if chance.random() < 0.7 else mangled(head + body, chance)
                )
                statuses[status_of(port, whole)] += 1
                if number % (args.requests // 4) == args.requests // 4 - 1:
                    sizes.append(memory(process))
            print(f"{args.requests:,} mangled requests:", dict(statuses.most_common()))
            print("memory after each quarter, MB:", ", ".join(f"{size:.1f}" for size in sizes))
            if args.schemathesis:
                generated(f"http://127.0.0.1:{port}/openapi.json", args.schemathesis)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)
        log = (folder / "log").read_text()
        print(
            "tracebacks in the log:",
            log.count("Traceback"),
            "; lines with a failure:",
            log.count('"failure"'),
        )


if __name__ == "__main__":
    main()
