"""The gateway under load and under faults, all on this machine: `thrifty serve`, a remote of 20 ms, and who asks.

    python benchmarks/serve.py [load] [closed] [batches] [overload] [faults] [soak] [--long]

Three processes share the cores: the gateway, the remote full model behind the Open Inference Protocol, and this one,
which asks. Rows have 50 columns, about a fifth of them is sent to the remote, a key is asked for and metrics are on.
Latencies of an open loop are counted from when a request was due. "core" is processor time of the gateway per request,
which other programs on the machine do not change much. --long is 60 s of load and 10 minutes of soak.
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from aiohttp import web
from sklearn.datasets import make_classification

N_COLUMNS, KEY, DELAY, DEADLINE = 50, "secret", 0.02, 0.25
PARTS = ("load", "closed", "batches", "overload", "faults", "soak")
MODES = ["slow", "flapping", "500", "429", "bad_json", "nan", "shape", "large", "drip", "cut", "killed"]

# -- the remote, in a process of its own ---------------------------------------------------------------------


async def remote(request):
    """Answer after 20 ms, or fail as the mode in force says."""
    mode, state = request.app["state"]["mode"], request.app["state"]
    if request.path == "/mode":
        state["mode"] = await request.text()
        return web.Response()
    n_rows = (await request.json())["inputs"][0]["shape"][0]
    state["n"] += 1
    await asyncio.sleep(2.0 if mode == "slow" else DELAY)
    if mode.isdigit() or (mode == "flapping" and state["n"] // 50 % 2):
        return web.Response(status=int(mode) if mode.isdigit() else 500)
    output = {
        "name": "probabilities",
        "datatype": "FP64",
        "shape": [n_rows, 2],
        "data": [0.25, 0.75] * n_rows,
    }
    output["data"] = [float("nan")] * 2 * n_rows if mode == "nan" else output["data"]
    output["shape"] = [n_rows, 3] if mode == "shape" else output["shape"]
    body = json.dumps({"model_name": "f0", "outputs": [output]}).encode()
    if mode in ("large", "drip", "cut"):
        return await trickle(request, mode, body)
    return web.Response(body=b"{" if mode == "bad_json" else body)


async def trickle(request, mode, body):
    """50 MB, a byte a second, or half of an answer."""
    response = web.StreamResponse()
    with contextlib.suppress(ConnectionError):
        await response.prepare(request)
        if mode == "cut":
            await response.write(body[: len(body) // 2])
            request.transport.abort()
        for part in [b" " * 2**20] * 50 if mode == "large" else [bytes([one]) for one in body[:5]]:
            await response.write(part)
            await asyncio.sleep(0 if mode == "large" else 1)
    return response


def run_remote(port):
    app = web.Application(client_max_size=2**27)
    app["state"] = {"mode": "good", "n": 0}
    app.router.add_post("/{path:.*}", remote)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None, handle_signals=False)


# -- the gateway ---------------------------------------------------------------------------------------------


def fitted(path):
    """Write a system of which a fifth of the rows is sent on; returns rows to ask about."""
    from thrifty import Policy, save
    from thrifty.tables.fit import Wish, fit_table

    X, y = make_classification(5000, N_COLUMNS, n_informative=12, flip_y=0.05, random_state=0)
    frame = pd.DataFrame(X.round(4), columns=[f"x{place}" for place in range(N_COLUMNS)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        system = fit_table(
            frame[:1000].assign(y=y[:1000]), "y", Wish(), full="boosting", full_cost=2.0
        ).system
    rows, chain = frame[1000:].to_numpy(), system.chain
    low, high = -50.0, 50.0
    while high - low > 1e-3:  # lower thresholds send more rows on
        shift = (low + high) / 2
        there = chain.at(Policy.of(chain.policy.thresholds[-1] - shift))
        share = np.mean(there.route(rows) == chain.n_stages)
        low, high = (shift, high) if share < 0.2 else (low, shift)
    save(replace(there, names=tuple(frame.columns)), path)
    print(f"{chain.n_stages} stages; {share:.0%} of the rows are sent to the remote", flush=True)
    return rows


class Running:
    """Gateway and remote as processes, on free ports of the loopback."""

    def __init__(self, folder):
        self.port, self.admin, self.far = (_free_port() for _ in range(3))
        self.folder = folder
        settings = (
            f'port={self.port}\nadmin_port={self.admin}\nname="m"\napi_key="{KEY}"\nlog_requests=false\n'
        )
        settings += f'full="http://127.0.0.1:{self.far}/v2/models/f0"\n[remote]\ntotal_timeout={DEADLINE}\n'
        (folder / "serve.toml").write_text(settings)
        self.remote = self.gateway = None

    def start(self):
        self.remote = self.start_remote()
        code = "import sys; from thrifty.cli import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, "serve", "system.thrifty", "--config", "serve.toml"]
        self.gateway = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL)
        _wait(f"http://127.0.0.1:{self.port}/v2/health/ready")

    def start_remote(self):
        process = subprocess.Popen([sys.executable, __file__, "--remote", str(self.far)])
        _wait(f"http://127.0.0.1:{self.far}/mode", b"good")
        return process

    def mode(self, mode):
        urllib.request.urlopen(f"http://127.0.0.1:{self.far}/mode", mode.encode(), timeout=5).close()

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=5) as said:
            lines = said.read().decode().splitlines()
        return {
            key: float(value) for key, value in (x.rsplit(" ", 1) for x in lines if not x.startswith("#"))
        }

    def megabytes(self):
        pages = int(Path(f"/proc/{self.gateway.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def core(self):
        """Seconds of processor time that the gateway has used."""
        fields = Path(f"/proc/{self.gateway.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        for process in filter(None, (self.gateway, self.remote)):
            process.kill()
            process.wait()


def _free_port():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def _wait(url, body=None, seconds=120):
    for _ in range(seconds * 10):
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(url, body, timeout=1).close()
        time.sleep(0.1)
    raise SystemExit(f"nobody answers at {url}")


# -- who asks ------------------------------------------------------------------------------------------------


class Client:
    """Connections that are used again; a request is bytes that are sent as they are."""

    def __init__(self, port):
        self._port, self._free = port, []
        self.statuses, self.latencies, self.refused = Counter(), [], []

    async def ask(self, request, due=None):
        due = time.perf_counter() if due is None else due
        try:
            try:
                status = await self._ask(
                    request, *(self._free.pop() if self._free else await self._connect())
                )
            except (OSError, asyncio.IncompleteReadError):
                # A connection that lay idle may have been closed meanwhile: clients try once more with another.
                status = await self._ask(request, *await self._connect())
        except (OSError, asyncio.IncompleteReadError):
            status = 0
        (self.latencies if status == 200 else self.refused).append(time.perf_counter() - due)
        self.statuses[status] += 1

    async def _ask(self, request, reader, writer):
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        self._free.append((reader, writer))
        return int(head[9:12])

    async def _connect(self):
        return await asyncio.open_connection("127.0.0.1", self._port, limit=2**24)

    def close(self):
        for _, writer in self._free:
            writer.close()


def asking(rows):
    """Requests of some rows, one tensor each, as bytes."""
    tensor = {"name": "X", "datatype": "FP64", "shape": list(rows.shape), "data": rows.ravel().tolist()}
    body = json.dumps({"inputs": [tensor]}, separators=(",", ":")).encode()
    head = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def open_loop(port, requests, rate, seconds, most_waiting=2000):
    client, start, tasks = Client(port), time.perf_counter(), set()
    for number in range(int(rate * seconds)):
        due = start + number / rate
        if (ahead := due - time.perf_counter()) > 0:
            await asyncio.sleep(ahead)
        if len(tasks) < most_waiting:
            task = asyncio.create_task(client.ask(requests[number % len(requests)], due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        else:
            client.statuses["not sent"] += 1
    await asyncio.gather(*tasks)
    client.close()
    return client


async def closed_loop(port, requests, n_clients, seconds):
    client, until = Client(port), time.perf_counter() + seconds

    async def one(first):
        number = first
        while time.perf_counter() < until:
            await client.ask(requests[number % len(requests)])
            number += n_clients

    await asyncio.gather(*(one(first) for first in range(n_clients)))
    client.close()
    return client


def told(name, running, loop, seconds, n_rows=1):
    """Run a loop of requests, and print one line about it."""
    before, start = running.core(), time.perf_counter()
    client = asyncio.run(loop)
    core = 1e3 * (running.core() - before) / max(sum(client.statuses.values()), 1)
    seconds = max(seconds, time.perf_counter() - start)
    good = 1e3 * np.array(client.latencies or [np.nan])
    others = {str(status): n for status, n in client.statuses.items() if status != 200}
    print(
        f"{name:<28}{client.statuses[200] * n_rows / seconds:>8,.0f} rows/s  p50 {np.median(good):>6.1f}  p99 "
        f"{np.percentile(good, 99):>6.1f}  max {good.max():>6.1f} ms  core {core:>6.2f} ms  others {others or 'none'}",
        flush=True,
    )
    return client


# -- the parts -----------------------------------------------------------------------------------------------


def load(running, one, seconds, **_):
    told("1,000 a second, open loop", running, open_loop(running.port, one, 1000, seconds), seconds)


def closed(running, one, **_):
    told("16 clients, closed loop", running, closed_loop(running.port, one, 16, 5), 5)


def batches(running, many, **_):
    told("1,000 rows a request", running, closed_loop(running.port, many, 2, 5), 5, n_rows=1000)


def overload(running, one, **_):
    rate = 3 * asyncio.run(closed_loop(running.port, one, 16, 2)).statuses[200] / 2
    name = f"{rate:,.0f} a second: three times"
    client = told(name, running, open_loop(running.port, one, rate, 5), 5)
    if client.refused:
        print(f"{'':<28}refused: p99 {1e3 * np.percentile(client.refused, 99):.0f} ms")
    told(f"{rate / 6:,.0f} a second, right after", running, open_loop(running.port, one, rate / 6, 5), 5)


def faults(running, one, **_):
    print(f"Faults of the remote, 200 requests a second for 3 s each, deadline {1e3 * DEADLINE:.0f} ms")
    for mode in MODES:
        before = running.metrics()
        if mode == "killed":
            running.remote.kill()
            running.remote.wait()
        else:
            running.mode(mode)
        told(f"  {mode}", running, open_loop(running.port, one, 200, 3), 3)
        if mode == "killed":
            running.remote = running.start_remote()
        running.mode("good")
        after = running.metrics()
        change = {key: after[key] - before.get(key, 0) for key in after}
        asked = change["thrifty_remote_calls_total"] + change["thrifty_remote_retries_total"]
        reasons = {
            key.split('"')[1]: int(n)
            for key, n in change.items()
            if key.startswith("thrifty_remote_failures_total") and n
        }
        print(f"{'':<28}calls / requests {asked / 600:.2f}; failures {reasons}", flush=True)
        time.sleep(1.5)  # until the breaker lets a probe through
        asyncio.run(open_loop(running.port, one, 200, 0.5))


def soak(running, one, soak_seconds, **_):
    sizes, start = [], time.perf_counter()
    while time.perf_counter() - start < soak_seconds:
        told("500 a second", running, open_loop(running.port, one, 500, 10), 10)
        sizes.append((time.perf_counter() - start, running.megabytes()))
    later = np.array(sizes[len(sizes) // 3 :])  # the first third fills caches
    slope = f", slope {60 * np.polyfit(*later.T, 1)[0]:+.2f} MB a minute" if soak_seconds >= 120 else ""
    print(f"memory {sizes[0][1]:.0f} MB at first, {sizes[-1][1]:.0f} MB after {sizes[-1][0]:.0f} s{slope}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", metavar="part", help=f"some of {', '.join(PARTS)}; all without any"
    )
    parser.add_argument("--long", action="store_true", help="60 s of load and 10 minutes of soak")
    parser.add_argument("--remote", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.remote:
        run_remote(asked.remote)
        return
    unknown = set(asked.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as folder:
        rows = fitted(Path(folder) / "system.thrifty")
        running = Running(Path(folder))
        try:
            running.start()
            known = {
                "one": [asking(row[None]) for row in rows[:2000]],
                "many": [asking(rows[first : first + 1000]) for first in (0, 1000, 2000)],
                "seconds": 60 if asked.long else 5,
                "soak_seconds": 600 if asked.long else 30,
            }
            asyncio.run(closed_loop(running.port, known["one"], 4, 1))
            for part in asked.parts or PARTS:
                globals()[part](running, **known)
        finally:
            running.close()


if __name__ == "__main__":
    main()
