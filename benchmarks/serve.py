"""The gateway under load and under faults, all on this machine: `thrifty serve`, a remote of 20 ms, and who asks.

    python benchmarks/serve.py [load] [closed] [batches] [overload] [faults] [soak] [--long] [--proxy]

Three processes share the cores: the gateway, the remote full model behind the Open Inference Protocol, and this one,
which asks; --proxy puts nginx between, set up by `deploy/nginx.conf` without TLS. Rows have 50 columns, about a fifth
of them is sent to the remote, a key is asked for and metrics are on. Latencies of an open loop are counted from when a
request was due. "core" is processor time of the gateway per request,
which other programs on the machine do not change much, and "generator" that of this process. What is asked of the
gateway stands beside what was measured. --long is 60 s of load and 10 minutes of soak; all parts then take at most 20
minutes. Whatever happens to this process, the others end with it.
"""

import argparse
import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
from aiohttp import web
from sklearn.datasets import make_classification

from hostile import end_with_parent
from ports import free_ports
from proxy import proxied

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
    asked = await request.json()
    n_rows = asked["inputs"][0]["shape"][0]
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
    said = {"model_name": "f0", "outputs": [output]}
    body = json.dumps(said).encode()
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
    from thrifty import BudgetedClassifier, Policy, Prices, save

    X, y = make_classification(5000, N_COLUMNS, n_informative=12, flip_y=0.05, random_state=0)
    frame = pd.DataFrame(X.round(4), columns=[f"x{place}" for place in range(N_COLUMNS)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        system = BudgetedClassifier(prices=Prices(full=2.0), random_state=0).fit(frame[:1000], y[:1000])
    rows, chain = frame[1000:].to_numpy(), replace(system.chain_, names=None, kind=None, types=None)
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
    """Gateway and remote as processes, on free ports of the loopback, and nginx in front where that is asked for."""

    is_proxied = False

    def __init__(self, folder, *, deadline=DEADLINE, more=""):
        self.port, self.admin, self.far, own_port = free_ports(4)
        self.folder, self.own_port = folder, own_port if self.is_proxied else self.port
        self.others = contextlib.ExitStack()
        settings = (
            f'port={self.own_port}\nadmin_port={self.admin}\nname="m"\napi_key="{KEY}"\nlog_requests=false\n'
        )
        settings += more
        settings += f'full="http://127.0.0.1:{self.far}/v2/models/f0"\n[remote]\ntotal_timeout={deadline}\n'
        (folder / "serve.toml").write_text(settings)
        self.remote = self.gateway = None

    def start(self):
        self.remote = self.start_remote()
        code = "import sys; from thrifty.cli import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, "serve", "system.thrifty", "--config", "serve.toml"]
        self.gateway = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.DEVNULL, preexec_fn=end_with_parent
        )
        _wait(f"http://127.0.0.1:{self.own_port}/v2/health/ready")
        if self.is_proxied:  # all clients have one address
            where = self.folder / f"nginx-{self.port}", self.port, self.own_port
            self.others.enter_context(proxied(*where, end_with_parent, tls=False, per_address=4096))

    def start_remote(self):
        command = [sys.executable, __file__, "--remote", str(self.far)]
        process = subprocess.Popen(command, preexec_fn=end_with_parent)
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
        self.others.close()
        for process in filter(None, (self.gateway, self.remote)):
            process.kill()
            process.wait()


def _wait(url, body=None, seconds=120):
    for _ in range(seconds * 10):
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(url, body, timeout=1).close()
        time.sleep(0.1)
    raise SystemExit(f"nobody answers at {url}")


# -- who asks ------------------------------------------------------------------------------------------------


class Load:
    """Asks through plain sockets; a request is bytes that are sent as they are.

    One loop over all connections takes a small part of the time that the gateway takes to answer.
    """

    def __init__(self, port, requests):
        self._port, self._requests = port, requests
        self._ready, self._open, self._free = select.epoll(), {}, []
        self.statuses, self.latencies, self.refused = Counter(), [], []

    def at_rate(self, rate, seconds, max_waiting=2000):
        """Send so many requests a second, whether or not others were answered; latencies count from when it was due."""
        start, number, n_requests = time.perf_counter(), 0, int(rate * seconds)
        while number < n_requests or self._n_waiting:
            now = time.perf_counter()
            while number < n_requests and start + number / rate <= now:
                due = start + number / rate
                if self._n_waiting < max_waiting:
                    self._send(self._requests[number % len(self._requests)], due)
                else:
                    self.statuses["not sent"] += 1
                number += 1
            ahead = start + number / rate - time.perf_counter() if number < n_requests else 0.1
            self._hear(max(ahead, 0.0))
            if number >= n_requests and time.perf_counter() > start + seconds + 30:
                self.statuses["no answer"] += self._n_waiting
                break
        return self._closed()

    def in_turn(self, n_clients, seconds):
        """As many clients, each of which sends a request as soon as its last one was answered, for a time."""
        end, number = time.perf_counter() + seconds, 0
        while (goes_on := time.perf_counter() < end) or self._n_waiting:
            while goes_on and self._n_waiting < n_clients:
                self._send(self._requests[number % len(self._requests)], time.perf_counter())
                number += 1
            self._hear(0.1)
        return self._closed()

    @property
    def _n_waiting(self):
        return len(self._open) - len(self._free)

    def _send(self, request, due):
        while True:
            connection = self._free.pop() if self._free else self._connected()
            connection.due, connection.said, connection.request = due, b"", request
            try:
                connection.socket.sendall(request)
                return
            except OSError:  # it lay idle and was closed meanwhile
                self._drop(connection)

    def _connected(self):
        connection = SimpleNamespace(socket=socket.create_connection(("127.0.0.1", self._port)))
        self._open[connection.socket.fileno()] = connection
        self._ready.register(connection.socket.fileno(), select.EPOLLIN)
        return connection

    def _drop(self, connection):
        self._ready.unregister(connection.socket.fileno())
        del self._open[connection.socket.fileno()]
        connection.socket.close()

    def _hear(self, seconds):
        for number, _ in self._ready.poll(seconds):
            connection = self._open[number]
            try:
                part = connection.socket.recv(2**20)
            except OSError:
                part = b""
            if part:
                connection.said += part
                self._listen(connection)
            elif connection.due is None:
                self._free = [one for one in self._free if one is not connection]
                self._drop(connection)
            else:
                self._drop(connection)
                if connection.said:
                    self.statuses["cut"] += 1
                else:  # closed while it lay idle, before the request was read: clients try once more
                    self._send(connection.request, connection.due)

    def _listen(self, connection):
        head, _, body = connection.said.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if not length or len(body) < int(length):
            return
        status, took = int(head[9:12]), time.perf_counter() - connection.due
        self.statuses[status] += 1
        (self.latencies if status == 200 else self.refused).append(took)
        connection.due = None
        self._free.append(connection)

    def _closed(self):
        for connection in list(self._open.values()):
            connection.socket.close()
        self._ready.close()
        return self


def asking(rows):
    """Requests of some rows, one tensor each, as bytes."""
    tensor = {"name": "X", "datatype": "FP64", "shape": list(rows.shape), "data": rows.ravel().tolist()}
    return posting({"inputs": [tensor]})


def posting(said):
    """A request as bytes."""
    body = json.dumps(said, separators=(",", ":")).encode()
    head = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def told(name, running, requests, *, seconds, rate=None, n_clients=None, n_rows=1):
    """Send requests at a rate, or by some clients in turn, and print one line about it."""
    before, start, own = running.core(), time.perf_counter(), time.process_time()
    load = Load(running.port, requests)
    load = load.in_turn(n_clients, seconds) if rate is None else load.at_rate(rate, seconds)
    load.core, n_requests = running.core() - before, max(sum(load.statuses.values()), 1)
    core, own = 1e3 * load.core / n_requests, 1e3 * (time.process_time() - own) / n_requests
    seconds = max(seconds, time.perf_counter() - start)
    good = 1e3 * np.array(load.latencies or [np.nan])
    others = {str(status): n for status, n in load.statuses.items() if status != 200}
    print(
        f"{name:<28}{load.statuses[200] * n_rows / seconds:>8,.0f} rows/s  p50 {np.median(good):>6.1f}  p99 "
        f"{np.percentile(good, 99):>6.1f}  max {good.max():>6.1f} ms  core {core:>6.2f}  generator {own:.2f} ms  "
        f"others {others or 'none'}",
        flush=True,
    )
    load.rate = load.statuses[200] * n_rows / seconds
    load.per_core = load.statuses[200] / max(load.core, 1e-9)
    return load


def beside(asked, measured, is_met):
    """Print what is asked of the gateway beside what was measured."""
    print(f"{'':<28}asked: {asked}; measured: {measured}: {'met' if is_met else 'NOT MET'}", flush=True)


def share_of(usual, load, least):
    """Print the answers a second beside the usual ones; on a busy machine, those of a second of a core tell more."""
    share, per_core = load.rate / usual.rate, load.per_core / usual.per_core
    measured = f"{share:.0%}, in a second of a core {per_core:.0%}"
    beside(f"at least {least:.0%} of the answers", measured, share >= least)


def p99(seconds):
    """99 of 100 are at most as long, in milliseconds."""
    return 1e3 * np.percentile(seconds or [np.nan], 99)


# -- the parts -----------------------------------------------------------------------------------------------


def load(running, one, seconds, **_):
    load = told("1,000 a second, open loop", running, one, rate=1000, seconds=seconds)
    others, late = sum(load.statuses.values()) - load.statuses[200], p99(load.latencies)
    is_met = not others and late <= 40
    beside("no non-2xx, p99 at most 40 ms", f"{others} non-2xx, p99 {late:.1f} ms", is_met)


def closed(running, one, **_):
    load = told("16 clients, closed loop", running, one, n_clients=16, seconds=5)
    beside("at least 2,000 a second", f"{load.rate:,.0f}", load.rate >= 2000)


def batches(running, many, **_):
    load = told("1,000 rows a request", running, many, n_clients=2, seconds=5, n_rows=1000)
    beside("at least 20,000 rows a second", f"{load.rate:,.0f}", load.rate >= 20_000)


def overload(running, one, many, **_):
    usual = told("16 clients, what it can do", running, one, n_clients=16, seconds=3)
    share_of(usual, told("200 clients that ask again", running, one, n_clients=200, seconds=5), 0.8)
    usual = told("16 clients, once more", running, one, n_clients=16, seconds=3)
    _three_times(running, one, usual, 1)
    batches = told("2 clients, 1,000 rows each", running, many, n_clients=2, seconds=5, n_rows=1000)
    _three_times(running, many, batches, 1000)
    full = Running(running.folder, deadline=10.0, more="max_in_flight=16\n")
    try:
        full.start()
        _refusals(full, one, usual.core / max(len(usual.latencies), 1))
    finally:
        full.close()


def _three_times(running, requests, usual, n_rows):
    """An open loop at three times of what clients in turn have got."""
    rate = 3 * usual.rate / n_rows
    load = told(f"{rate:,.0f} a second: three times", running, requests, rate=rate, seconds=5, n_rows=n_rows)
    share_of(usual, load, 0.9)
    if load.refused:
        p50, most = 1e3 * np.median(load.refused), 1e3 * max(load.refused)
        print(f"{'':<28}refused after: p50 {p50:.1f}  p99 {p99(load.refused):.1f}  max {most:.1f} ms")
        beside("refused within 200 ms", f"p99 {p99(load.refused):.1f} ms", p99(load.refused) <= 200)


def _refusals(full, one, core_of_answer):
    """What a refusal costs: a gateway whose few places are taken by requests that wait for the remote."""
    full.mode("slow")
    Load(full.port, one).in_turn(200, 1)
    load = told("200 clients, most refused", full, one, n_clients=200, seconds=3)
    core = 1e6 * (load.core - len(load.latencies) * core_of_answer) / max(len(load.refused), 1)
    beside("a refusal costs at most 150 microseconds of a core", f"{core:.0f}", core <= 150)


def faults(running, one, **_):
    print(f"Faults of the remote, 200 requests a second for 3 s each, deadline {1e3 * DEADLINE:.0f} ms")
    for mode in MODES:
        load, change = under_fault(running, one, mode)
        asked = change["thrifty_remote_calls_total"] + change["thrifty_remote_retries_total"]
        reasons = counted(change, "thrifty_remote_failures_total")
        print(f"{'':<28}failures {reasons}", flush=True)
        others, most = sum(load.statuses.values()) - load.statuses[200], max(load.latencies, default=np.inf)
        measured = f"{others}, {1e3 * most:.0f} ms, {asked / 600:.2f}"
        is_met = not others and most <= DEADLINE + 0.05 and asked <= 1.2 * 600
        beside("no non-2xx, deadline + 50 ms, calls at most 1.2 x requests", measured, is_met)


def under_fault(running, requests, mode, rate=200):
    """Ask while the remote fails; returns who asked, and how the metrics changed."""
    before = running.metrics()
    if mode == "killed":
        running.remote.kill()
        running.remote.wait()
    else:
        running.mode(mode)
    load = told(f"  {mode}", running, requests, rate=rate, seconds=3)
    if mode == "killed":
        running.remote = running.start_remote()
    running.mode("good")
    after = running.metrics()
    time.sleep(1.5)  # until the breaker lets a probe through
    Load(running.port, requests).at_rate(rate, 0.5)
    return load, {key: after[key] - before.get(key, 0) for key in after}


def counted(change, name):
    """Counts of a metric that changed, by their last label."""
    found = {
        key.split('"')[1 if key.count('"') == 2 else 3]: int(n)
        for key, n in change.items()
        if key.startswith(name) and n
    }
    return found


def soak(running, one, soak_seconds, **_):
    sizes, start = [], time.perf_counter()
    while time.perf_counter() - start < soak_seconds:
        told("500 a second", running, one, rate=500, seconds=10)
        sizes.append((time.perf_counter() - start, running.megabytes()))
    later = np.array(sizes[len(sizes) // 3 :])  # the first third fills caches
    print(f"memory {sizes[0][1]:.0f} MB at first, {sizes[-1][1]:.0f} MB after {sizes[-1][0]:.0f} s")
    if soak_seconds >= 120:
        slope = 60 * np.polyfit(*later.T, 1)[0]
        beside("memory grows by 0.0 MB a minute", f"{slope:+.2f} MB a minute", slope < 0.05)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", metavar="part", help=f"some of {', '.join(PARTS)}; all without any"
    )
    parser.add_argument("--long", action="store_true", help="60 s of load and 10 minutes of soak")
    parser.add_argument("--proxy", action="store_true", help="ask through nginx, which must be installed")
    parser.add_argument("--remote", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.remote:
        run_remote(asked.remote)
        return
    unknown = set(asked.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        rows = fitted(Path(folder) / "system.thrifty")
        Running.is_proxied = asked.proxy
        running = Running(Path(folder))
        try:
            running.start()
            known = {
                "one": [asking(row[None]) for row in rows[:2000]],
                "many": [asking(rows[first : first + 1000]) for first in (0, 1000, 2000)],
                "seconds": 60 if asked.long else 5,
                "soak_seconds": 600 if asked.long else 30,
            }
            Load(running.port, known["one"]).in_turn(4, 1)
            for part in asked.parts or PARTS:
                globals()[part](running, **known)
        finally:
            running.close()


if __name__ == "__main__":
    main()
