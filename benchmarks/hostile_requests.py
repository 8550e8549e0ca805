"""Requests that nobody means well with, through a socket: no 5xx of ours, no traceback, memory that stays.

    python benchmarks/hostile_requests.py [--requests 20000] [--schemathesis 1000]

A small system is fitted and served by `thrifty serve` on this machine. Requests are well-meant ones of which bytes were
changed, cut out or repeated, headers included. With --schemathesis N, that program then sends up to N generated
requests for each operation of /openapi.json (`pip install schemathesis`), for ten minutes at most.
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
import pandas as pd
from sklearn.datasets import load_breast_cancer

from thrifty import BudgetedClassifier, save


def fitted(folder):
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    save(BudgetedClassifier(budget=3, sizes=[(30, 3)], random_state=0).fit(X, y), folder / "cancer.thrifty")
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


def request(X: pd.DataFrame, chance):
    row = X.iloc[int(chance.integers(len(X)))]
    if chance.random() < 0.5:
        path, body = "/predict", {"rows": [row.to_dict()]}
    else:
        tensor = {"name": "X", "datatype": "FP64", "shape": [1, len(row)], "data": row.tolist()}
        path, body = "/v2/models/cancer/infer", {"inputs": [tensor]}
    raw = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n".encode(), raw


def mangled(raw, chance):
    raw = bytearray(raw)
    for _ in range(chance.integers(1, 5)):
        at = int(chance.integers(len(raw) + 1))
        what = chance.integers(4)
        if what == 0 and at < len(raw):
            raw[at] = int(chance.integers(256))
        elif what == 1:
            del raw[at : at + int(chance.integers(1, 40))]
        elif what == 2:
            raw[at:at] = [b"NaN", b"1e999", b"\xff", b"{", b"]", b'"', b"null", b"\r\n"][chance.integers(8)]
        else:
            raw[at:at] = raw[at : at + int(chance.integers(1, 40))]
    return bytes(raw)


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
        subprocess.run([program, "run", url, *how], check=False, timeout=600)
    except subprocess.TimeoutExpired:
        print("schemathesis was stopped after ten minutes")


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
                head, body = request(X, chance)
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
