"""The processes of the gateway: one that answers and administers, or workers on one port and a supervisor.

A worker is a gateway whose administration listens on a Unix socket. The supervisor starts workers, replaces those that
end, and answers operators: it asks all workers, and adds up what they count.
"""

import asyncio
import contextlib
import gc
import math
import multiprocessing
import shutil
import signal
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from thrifty.errors import InvalidInputError
from thrifty.serve.admission import Keys, Limiter
from thrifty.serve.app import create_admin, create_app, direct
from thrifty.serve.budget_controller import Spending
from thrifty.serve.config import Config
from thrifty.serve.connections import Connections
from thrifty.serve.gateway import Gateway, Loaded
from thrifty.serve.logs import LOG, log_as_json
from thrifty.serve.metrics import Metrics

__all__ = ["serve_alone", "serve_workers"]

Load = Callable[[], Loaded]

_RESTART_PAUSE, _ADMIN_TIMEOUT = 1.0, 60.0
"""Seconds before a worker is replaced that ended soon after its start, and that an answer to the supervisor takes."""


def serve_alone(load: Load, config: Config, announce: Callable[[], None]) -> None:
    """Serve in this process until SIGTERM or SIGINT; SIGHUP reads the file again.

    Parameters
    ----------
    load : callable
        Reads the file.
    config : Config
        Settings.
    announce : callable
        Called before the ports open.
    """
    log_as_json()
    app = create_app(load(), config, load=load)
    gateway: Gateway = app.state.gateway
    admin = _server(config, create_admin(gateway), config.admin_host, config.admin_port)
    listening = _listening(config)
    announce()
    _run(gateway, app, admin, listening)


# -- servers ---------------------------------------------------------------------------------------


def _server(config: Config, app: Any, host: str, port: int, **how: Any) -> uvicorn.Server:
    return uvicorn.Server(uvicorn.Config(app, host=host, port=port, **{**_common(config), **how}))


def _common(config: Config) -> dict[str, Any]:
    return {
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,  # nothing depends on the address of a client
        "timeout_graceful_shutdown": max(1, round(config.drain)),
        "ws": "none",
        "lifespan": "off",
        "ssl_certfile": config.tls_cert,
        "ssl_keyfile": config.tls_key,
    }


def _listening(config: Config) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        listening = socket.create_server((config.host, config.port), family=family, backlog=2048)
    except OSError:
        raise _occupied(config) from None
    # asyncio sets it only on sockets that name their protocol; without it a response in two pieces waits 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _run(gateway: Gateway, app: Any, admin: uvicorn.Server, listening: socket.socket) -> None:
    """Serve a gateway and its administration in one event loop."""
    config, app = gateway.config, direct(app)
    plain = uvicorn.Config(app, **_common(config))
    with _readable_certificate(config):
        plain.load()
        admin.config.load()
    connections = Connections(config, gateway.limiter, gateway.metrics, plain.ssl, listening)
    public = _server(
        config,
        connections.app(app),
        config.host,
        config.port,
        lifespan="on",
        http=connections.protocol(plain.http_protocol_class),
        timeout_keep_alive=3600,  # idle connections are closed there, and those that wait for room are not
        ssl_certfile=None,  # they are encrypted there, too
        ssl_keyfile=None,
    )
    gateway.on_reload = lambda: _read_certificates(config, plain.ssl, admin.config.ssl)
    # What was imported and loaded stays to the end. To look through it for garbage takes a tenth of a second, in which
    # no request is answered.
    gc.collect()
    gc.freeze()
    try:
        with asyncio.Runner(loop_factory=public.config.get_loop_factory()) as runner:
            runner.run(_serve(public, admin, gateway, listening))
    except KeyboardInterrupt:
        pass
    except SystemExit:
        raise _occupied(config) from None


async def _serve(
    public: uvicorn.Server, admin: uvicorn.Server, gateway: Gateway, listening: socket.socket
) -> None:
    loop = asyncio.get_running_loop()
    on_hangup(lambda: gateway.in_background(_reload(gateway)))
    parent = multiprocessing.parent_process()
    if parent is not None:  # a worker ends with its supervisor

        def stop() -> None:
            loop.remove_reader(parent.sentinel)
            public.should_exit = True

        loop.add_reader(parent.sentinel, stop)
    # A signal ends the server that started last, which hands it on to the other one: both end, the public one last.
    both = [asyncio.ensure_future(public.serve([listening])), asyncio.ensure_future(admin.serve())]
    try:
        await both[0]
    finally:
        admin.should_exit = True
        await both[1]


def on_hangup(reload: Callable[[], None]) -> None:
    """Call a function of the running event loop on SIGHUP."""
    with contextlib.suppress(NotImplementedError, AttributeError):  # Windows has no such signal
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)


async def _reload(control: Any) -> None:
    with contextlib.suppress(InvalidInputError):  # logged and counted where it was refused
        await control.reload()


def _read_certificates(config: Config, *contexts: ssl.SSLContext | None) -> None:
    """Use the certificate in the files for connections from now on."""
    with _readable_certificate(config):
        for context in filter(None, contexts):
            context.load_cert_chain(str(config.tls_cert), str(config.tls_key))


@contextlib.contextmanager
def _readable_certificate(config: Config) -> Any:
    try:
        yield
    except (OSError, ssl.SSLError) as error:
        raise InvalidInputError(
            f"tls_cert and tls_key must be PEM files of a certificate and its key; reading {config.tls_cert!r} and "
            f"{config.tls_key!r} ended in {type(error).__name__}: {error}."
        ) from error


def _occupied(config: Config) -> InvalidInputError:
    return InvalidInputError(
        f"the ports {config.port} of {config.host} and {config.admin_port} of {config.admin_host} must be free. Name "
        f"others with --port and --admin-port."
    )


# -- workers ---------------------------------------------------------------------------------------


def serve_workers(load: Load, config: Config, announce: Callable[[], None]) -> None:
    """Serve in several processes on one port; parameters as of ``serve_alone``."""
    try:
        import fcntl  # noqa: F401 - is it there?
    except ModuleNotFoundError:
        raise InvalidInputError(
            "workers share a budget through file locks of Unix. Leave --workers out."
        ) from None
    log_as_json()
    keys, listening = Keys(config), _listening(config)
    folder = Path(tempfile.mkdtemp(prefix="thrifty-"))
    workers = Workers(load, config, keys, folder, listening)
    try:
        with listening:
            workers.start()
            announce()
            # uvicorn sends itself the signal that has ended it: workers are still to be ended then.
            signal.signal(signal.SIGTERM, lambda *_: None)
            with contextlib.suppress(KeyboardInterrupt), asyncio.Runner() as runner:
                runner.run(workers.run())
    except SystemExit:
        raise _occupied(config) from None
    finally:
        workers.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _work(
    number: int, load: Load, config: Config, folder: Path, listening: socket.socket, started: Any
) -> None:
    """Be a worker: load the file, say so, and serve."""
    log_as_json()
    try:
        spending = Spending(config.budget_window, folder / "spending", config.workers, number)
        app = create_app(load(), config, load=load, spending=spending)
    except Exception as error:
        started.send(str(error))
        return
    gateway, path = app.state.gateway, folder / f"{number}.sock"
    path.unlink(missing_ok=True)
    admin = _server(
        config,
        create_admin(gateway, needs_keys=False),
        "",
        0,
        uds=str(path),
        ssl_certfile=None,
        ssl_keyfile=None,
    )
    started.send(None)
    _run(gateway, app, admin, listening)


class Workers:
    """Worker processes, and what operators ask of all of them.

    Parameters
    ----------
    load : callable
        Reads the file.
    config : Config
        Settings.
    keys : Keys
        Keys of operators.
    folder : Path
        Where workers have their sockets and share what rows have paid.
    listening : socket
        The port that they share.
    """

    def __init__(
        self, load: Load, config: Config, keys: Keys, folder: Path, listening: socket.socket
    ) -> None:
        self.config, self.keys = config, keys
        self.metrics, self.limiter = Metrics(), Limiter(config)
        self._load, self._folder, self._listening = load, folder, listening
        self._spending = Spending(config.budget_window, folder / "spending", config.workers)
        self._context = multiprocessing.get_context("spawn")
        self._processes: dict[int, Any] = {}
        self._pipes: dict[int, Any] = {}  # None from each worker that has started, or why it has not
        self._sessions: dict[int, aiohttp.ClientSession] = {}
        self._counted: dict[int, list[Metric]] = {}  # what each worker counted when it was last asked
        self._of_ended: list[Metric] = []
        self._changing = asyncio.Lock()

    def start(self) -> None:
        """Start all workers; an error of the first one that fails is raised here."""
        for number in range(self.config.workers):
            self._start(number)
        for pipe in self._pipes.values():
            try:
                error = pipe.recv()
            except EOFError:
                error = "a worker ended before it had started."
            if error is not None:
                raise InvalidInputError(error)

    def _start(self, number: int) -> None:
        receiver, sender = self._context.Pipe(duplex=False)
        arguments = number, self._load, self.config, self._folder, self._listening, sender
        self._processes[number] = process = self._context.Process(target=_work, args=arguments)
        process.start()
        sender.close()
        self._pipes[number] = receiver

    def stop(self) -> None:
        """End all workers; requests under way are answered first."""
        for process in self._processes.values():
            process.terminate()
        end = time.monotonic() + self.config.drain + 5.0
        for process in self._processes.values():
            process.join(max(end - time.monotonic(), 0.0))
            if process.is_alive():
                process.kill()
                process.join()

    async def run(self) -> None:
        """Replace workers that end, and answer operators, until a signal."""
        tasks = [asyncio.ensure_future(self._watch(number)) for number in self._processes]
        on_hangup(lambda: tasks.append(asyncio.ensure_future(_reload(self))))
        config = self.config
        self._server = _server(config, create_admin(self), config.admin_host, config.admin_port)
        try:
            await self._server.serve()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for session in self._sessions.values():
                await session.close()

    async def _watch(self, number: int) -> None:
        """Replace a worker whenever it ends."""
        loop = asyncio.get_running_loop()
        while True:
            began, ended = time.monotonic(), asyncio.Event()
            sentinel = self._processes[number].sentinel
            loop.add_reader(sentinel, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(sentinel)
            self._processes[number].join()
            self._spending.settle(number)
            why = None
            with contextlib.suppress(EOFError):  # it was killed, or has failed after its start
                why = self._pipes[number].recv() if self._pipes[number].poll() else None
            exit_code = self._processes[number].exitcode
            LOG.warning("worker %d is replaced: %s", number, why or f"it ended with exit code {exit_code}")
            self._of_ended = _sums([self._of_ended, _counts(self._counted.pop(number, []))])
            if number in self._sessions:
                await self._sessions.pop(number).close()
            if time.monotonic() - began < 5 * _RESTART_PAUSE:
                await asyncio.sleep(_RESTART_PAUSE)
            self._start(number)

    # -- operators ---------------------------------------------------------------------------------

    async def _ask(self, number: int, path: str, body: Any = None) -> Any:
        """Answer of a worker's administration."""
        if number not in self._sessions:
            connector = aiohttp.UnixConnector(str(self._folder / f"{number}.sock"))
            timeout = aiohttp.ClientTimeout(total=_ADMIN_TIMEOUT)
            self._sessions[number] = aiohttp.ClientSession(connector=connector, timeout=timeout)
        method = "GET" if body is None else "POST"
        url = f"http://localhost{path}"
        async with self._sessions[number].request(method, url, json=body) as answer:
            found: Any = await (answer.json() if "json" in answer.content_type else answer.text())
            if answer.status != 200:
                raise InvalidInputError(str(found["error"]))
            return found

    async def _ask_each(self, path: str, body: Any = None) -> dict[int, Any]:
        """Answers of all workers that are there; the first error is raised after all of them were asked."""
        found, refusals = {}, []
        for number in list(self._processes):
            try:
                found[number] = await self._ask(number, path, body)
            except InvalidInputError as error:
                refusals.append(error)
            except (aiohttp.ClientError, TimeoutError):  # it is being replaced, and will read the file itself
                continue
        if refusals or not found:
            raise refusals[0] if refusals else InvalidInputError("no worker answers. Ask again in a second.")
        return found

    async def reload(self) -> str:
        """Let all workers read the files again."""
        async with self._changing:
            self.keys.read()
            _read_certificates(self.config, self._server.config.ssl)
            answers = await self._ask_each("/reload", {})
        return str(next(iter(answers.values()))["version"])

    async def change_budget(self, budget: Any) -> None:
        """Hold another budget from now on."""
        async with self._changing:
            await self._ask_each("/budget", {"budget": budget})
            self.config = replace(self.config, budget=budget)

    async def status(self) -> dict[str, Any]:
        """Contents of the status page."""
        found = list((await self._ask_each("/status.json")).values())
        return _total([{**one, "workers": 1} for one in found])

    async def prometheus(self) -> bytes:
        """Metrics of all workers together; counts of those that ended are kept."""
        for number, text in (await self._ask_each("/metrics")).items():
            self._counted[number] = list(text_string_to_metric_families(text))
        rows = GaugeMetricFamily("thrifty_worker_rows", "Rows answered by each worker.", labels=["worker"])
        for number, metrics in sorted(self._counted.items()):
            answered = [one.value for of in metrics if of.name == "thrifty_rows" for one in of.samples]
            rows.add_metric([str(number)], sum(answered))
        registry = CollectorRegistry()
        registry.register(_Given([*_sums([*self._counted.values(), self._of_ended]), rows]))
        return generate_latest(registry)


class _Given:
    """Metrics that are known already."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """All of them."""
        return self._metrics


def _mean(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


_GAUGES: dict[str, Callable[[list[float]], float]] = {
    "thrifty_in_flight": sum,
    "thrifty_remote_in_flight": sum,
    "thrifty_ready": min,
    "thrifty_missing_share": _mean,
    "thrifty_drift": _mean,
}
"""How gauges of workers become one; others are the largest."""


def _counts(metrics: list[Metric]) -> list[Metric]:
    """Metrics that only grow."""
    return [one for one in metrics if one.type in ("counter", "histogram")]


def _sums(of_workers: list[list[Metric]]) -> list[Metric]:
    """Metrics of several workers as one."""
    by_name: dict[str, list[Metric]] = {}
    for metrics in of_workers:
        for metric in metrics:
            by_name.setdefault(metric.name, []).append(metric)
    found = []
    for name, same in by_name.items():
        values: dict[Any, list[float]] = {}
        for sample in (sample for metric in same for sample in metric.samples):
            values.setdefault((sample.name, tuple(sample.labels.items())), []).append(sample.value)
        merge = sum if _counts(same[:1]) else _GAUGES.get(name, max)
        total = Metric(name, same[0].documentation, same[0].type)
        for (sample_name, labels), numbers in values.items():
            total.add_sample(sample_name, dict(labels), merge(numbers))
        found.append(total)
    return found


_SUMMED = {
    *(
        "requests",
        "in_flight",
        "turned_away",
        "rows",
        "routes",
        "degraded",
        "spend",
        "saved",
        "latency",
        "reloads",
    ),
    "workers",
}


def _total(statuses: list[dict[str, Any]]) -> dict[str, Any]:
    """Status pages of several workers as one: counts are added, and the rest is that of the first."""
    return {
        key: _added([one[key] for one in statuses]) if key in _SUMMED else value
        for key, value in statuses[0].items()
    }


def _added(values: list[Any]) -> Any:
    """Numbers, or all numbers within equal lists and objects, added up; text is that of the first."""
    first = values[0]
    if isinstance(first, dict):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: _added([value[key] for value in values if key in value]) for key in keys}
    if isinstance(first, list):
        return [_added(list(same)) for same in zip(*values, strict=True)]
    return first if isinstance(first, str) else sum(values)
