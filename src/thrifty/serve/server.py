"""The processes of the gateway: one that answers and administers, or workers on one port and a supervisor.

uvicorn serves, by its public settings; a proxy in front of it takes slow clients and idle connections
(``deploy/nginx.conf``). The supervisor starts workers, replaces those that end, and passes on what operators ask: each
worker has a pipe to it. Counts of workers are one: prometheus_client keeps them in files of a folder.
"""

import asyncio
import contextlib
import gc
import multiprocessing
import os
import shutil
import signal
import socket
import ssl
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from thrifty.errors import InvalidInputError
from thrifty.serve.app import create_admin, create_app
from thrifty.serve.budget_controller import Spending, shared_memory
from thrifty.serve.config import Config
from thrifty.serve.gateway import BaseGateway, Loaded
from thrifty.serve.metrics import Metrics, status_of
from thrifty.serve.middleware import LOG, Keys, log_as_json

Load = Callable[[], Loaded]

KEEP_ALIVE, MAX_CONNECTIONS = 75, 2048
"""Seconds that an idle connection is kept, and connections beyond which uvicorn refuses: both more than nginx asks for
(``keepalive_timeout`` and ``max_conns`` of its upstream)."""

_RESTART_PAUSE, _ANSWER_TIMEOUT = 1.0, 60.0
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
    gateway: BaseGateway[Any] = app.state.gateway
    public, admin = _server(config, app, lifespan="on"), _admin(config, gateway)
    listening = _listening(config)
    announce()

    async def serve() -> None:
        _on_hangup(gateway)
        # A signal ends the server that started last, which sends it to the other one: both end, the public one last.
        both = [asyncio.ensure_future(public.serve([listening])), asyncio.ensure_future(admin.serve())]
        try:
            await both[0]
        finally:
            admin.should_exit = True
            await both[1]

    _run(config, public, serve())


# -- servers ---------------------------------------------------------------------------------------


def _server(config: Config, app: Any, **how: Any) -> uvicorn.Server:
    settings = {
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,  # nothing depends on the address of a client
        "timeout_graceful_shutdown": max(1, round(config.drain)),
        "timeout_keep_alive": KEEP_ALIVE,
        "limit_concurrency": MAX_CONNECTIONS,
        "ws": "none",
        "lifespan": "off",
        "ssl_certfile": config.tls_cert,
        "ssl_keyfile": config.tls_key,
    }
    server = uvicorn.Server(uvicorn.Config(app, **{**settings, **how}))
    try:
        server.config.load()
    except (OSError, ssl.SSLError) as error:
        raise InvalidInputError(
            f"tls_cert and tls_key must be PEM files of a certificate and its key; reading {config.tls_cert!r} and "
            f"{config.tls_key!r} ended in {type(error).__name__}: {error}."
        ) from error
    return server


def _admin(config: Config, control: Any) -> uvicorn.Server:
    return _server(config, create_admin(control), host=config.admin_host, port=config.admin_port)


def _listening(config: Config) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        listening = socket.create_server((config.host, config.port), family=family, backlog=MAX_CONNECTIONS)
    except OSError:
        raise _occupied(config) from None
    # asyncio sets it only on sockets that name their protocol; without it a response in two pieces waits 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _run(config: Config, server: uvicorn.Server, serving: Any) -> None:
    """Run a coroutine that serves in the event loop of a server."""
    # What was imported and loaded stays to the end. To look through it for garbage takes a tenth of a second, in which
    # no request is answered.
    gc.collect()
    gc.freeze()
    try:
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(serving)
    except KeyboardInterrupt:
        pass
    except SystemExit:
        raise _occupied(config) from None


def _on_hangup(control: Any) -> None:
    """Reload on SIGHUP, in the running event loop."""

    async def reload() -> None:
        with contextlib.suppress(InvalidInputError):  # logged and counted where it was refused
            await control.reload()

    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def start() -> None:
        tasks.add(task := loop.create_task(reload()))
        task.add_done_callback(tasks.discard)

    loop.add_signal_handler(signal.SIGHUP, start)


def _occupied(config: Config) -> InvalidInputError:
    return InvalidInputError(
        f"the ports {config.port} of {config.host} and {config.admin_port} of {config.admin_host} must be free. Name "
        f"others with --port and --admin-port."
    )


# -- workers ---------------------------------------------------------------------------------------


def serve_workers(load: Load, config: Config, announce: Callable[[], None]) -> None:
    """Serve in several processes on one port; parameters as of ``serve_alone``."""
    log_as_json()
    keys, listening = Keys(config), _listening(config)
    folder = Path(tempfile.mkdtemp(prefix="thrifty-"))
    # Workers read it when they import prometheus_client.
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
    supervisor = Supervisor(load, config, keys, folder, listening)
    try:
        with listening:
            supervisor.start()
            announce()
            # uvicorn sends itself the signal that has ended it: workers are still to be ended then.
            signal.signal(signal.SIGTERM, lambda *_: None)
            with contextlib.suppress(KeyboardInterrupt), asyncio.Runner() as runner:
                runner.run(supervisor.run())
    except SystemExit:
        raise _occupied(config) from None
    finally:
        supervisor.stop()
        del os.environ["PROMETHEUS_MULTIPROC_DIR"]
        shutil.rmtree(folder, ignore_errors=True)


def _spendings(config: Config, memory: dict[str, Any], folder: Path, worker: int = 0) -> dict[str, Spending]:
    """What rows have paid, by resource, shared by the processes of a gateway."""
    return {
        name: Spending(config.budget_window, of_one, folder / f"lock{number or ''}", config.workers, worker)
        for number, (name, of_one) in enumerate(memory.items())
    }


def _work(
    number: int, load: Load, config: Config, folder: Path, listening: socket.socket, memory: Any, pipe: Any
) -> None:
    """Load the file, report that, and serve; answer the supervisor until it ends."""
    log_as_json()
    try:
        spending = _spendings(config, memory, folder, number)
        app = create_app(load(), config, load=load, spending=spending)
        app.state.gateway.refresh()
        _take_disk(folder)
        public = _server(config, app, lifespan="on")
    except Exception as error:
        pipe.send(str(error))
        return
    gateway = app.state.gateway
    orders: dict[str, Callable[..., Any]] = {"reload": gateway.reload, "budget": gateway.change_budget}
    pipe.send(None)

    async def answer(order: str, arguments: tuple[Any, ...]) -> None:
        try:
            pipe.send(await orders[order](*arguments) if order in orders else gateway.refresh())
        except InvalidInputError as error:
            pipe.send(error)

    def take_order() -> None:
        try:
            gateway.in_background(answer(*pipe.recv()))
        except EOFError:  # the supervisor has ended
            asyncio.get_running_loop().remove_reader(pipe.fileno())
            public.should_exit = True

    async def serve() -> None:
        _on_hangup(gateway)
        asyncio.get_running_loop().add_reader(pipe.fileno(), take_order)
        await public.serve([listening])

    _run(config, public, serve())


def _take_disk(folder: Path) -> None:
    """Take the disk that metrics of this process need: a write to a mapped file ends a process if the disk is full."""
    try:
        for path in folder.glob(f"*_{os.getpid()}.db"):
            if hasattr(os, "posix_fallocate"):  # not on macOS
                with path.open("r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    except OSError as error:
        raise InvalidInputError(
            f"workers share their metrics in {folder.parent}, which must have room for them: {error}. Make room there, "
            f"or name another folder in TMPDIR."
        ) from error


class _Worker:
    """The supervisor's end of a worker."""

    def __init__(self, *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(*arguments, theirs))
        self.process.start()
        theirs.close()
        self.began, self.is_ready = time.monotonic(), False

    async def receive(self) -> Any:
        """Next message; ``EOFError`` once the worker has ended."""
        await _readable(self.pipe.fileno())
        return self.pipe.recv()


async def _readable(descriptor: int) -> None:
    """Wait until a descriptor can be read."""
    loop, arrived = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, arrived.set)
    try:
        await arrived.wait()
    finally:
        loop.remove_reader(descriptor)


class Supervisor:
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
        Where workers share metrics, and a lock.
    listening : socket
        The port that they share.
    """

    def __init__(
        self, load: Load, config: Config, keys: Keys, folder: Path, listening: socket.socket
    ) -> None:
        self.config, self.keys, self.metrics = config, keys, Metrics()
        self._load, self._folder, self._listening = load, folder, listening
        names = list(config.budget) if isinstance(config.budget, dict) else [""]
        self._memory = {name: shared_memory(config.budget_window, config.workers) for name in names}
        self._spending = _spendings(config, self._memory, folder)
        self._workers: list[_Worker] = []
        self._asking = asyncio.Lock()
        self._shared = CollectorRegistry()
        self._collector = MultiProcessCollector(self._shared, path=str(folder))  # type: ignore[no-untyped-call]

    def start(self) -> None:
        """Start all workers; an error of the first one that fails is raised here, and ``run`` replaces killed ones."""
        self._workers = [self._started(number) for number in range(self.config.workers)]
        for worker in self._workers:
            with contextlib.suppress(EOFError):  # it was killed
                error = worker.pipe.recv()
                if error is not None:
                    raise InvalidInputError(error)
                worker.is_ready = True
        if not any(worker.is_ready for worker in self._workers):
            codes = [worker.process.exitcode for worker in self._workers]
            raise InvalidInputError(
                f"all workers ended before they had started, with exit codes {codes}. If memory is short, start fewer."
            )

    def _started(self, number: int) -> _Worker:
        return _Worker(number, self._load, self.config, self._folder, self._listening, self._memory)

    def stop(self) -> None:
        """End all workers; requests under way are answered first."""
        for worker in self._workers:
            worker.process.terminate()
        end = time.monotonic() + self.config.drain + 5.0
        for worker in self._workers:
            worker.process.join(max(end - time.monotonic(), 0.0))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()

    async def run(self) -> None:
        """Replace workers that end, and answer operators, until a signal."""
        watching = [asyncio.ensure_future(self._watch(number)) for number in range(self.config.workers)]
        _on_hangup(self)
        try:
            await _admin(self.config, self).serve()
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

    async def _watch(self, number: int) -> None:
        """Replace a worker whenever it ends."""
        while True:
            worker = self._workers[number]
            await _readable(worker.process.sentinel)
            worker.is_ready = False
            worker.process.join()
            for spending in self._spending.values():
                spending.settle(number)
            mark_process_dead(worker.process.pid, str(self._folder))  # type: ignore[no-untyped-call]
            code = worker.process.exitcode
            LOG.warning("worker %d is replaced: it ended with exit code %s", number, code)
            if time.monotonic() - worker.began < 5 * _RESTART_PAUSE:
                await asyncio.sleep(_RESTART_PAUSE)
            self._workers[number] = worker = self._started(number)
            with contextlib.suppress(EOFError):  # it has ended again
                error = await worker.receive()
                worker.is_ready = error is None
                if error is not None:
                    LOG.warning("worker %d did not start: %s", number, error)

    # -- operators ---------------------------------------------------------------------------------

    async def _ask(self, order: str, *arguments: Any) -> list[Any]:
        """Answers of all workers that are ready; the first error is raised after all of them were asked."""
        answers: list[Any] = []
        refusals: list[InvalidInputError] = []
        async with self._asking:
            for worker in [worker for worker in self._workers if worker.is_ready]:
                try:
                    worker.pipe.send((order, arguments))
                    answer = await asyncio.wait_for(worker.receive(), _ANSWER_TIMEOUT)
                except (OSError, EOFError):  # it is being replaced, and will read the file itself
                    continue
                except (
                    TimeoutError
                ):  # what it answers later would be taken for the answer to another question
                    worker.process.kill()
                    continue
                (refusals if isinstance(answer, InvalidInputError) else answers).append(answer)
        if refusals or not answers:
            raise refusals[0] if refusals else InvalidInputError("no worker answers. Ask again in a second.")
        return answers

    async def reload(self) -> str:
        """Let all workers read the files again."""
        self.keys.read()
        return str((await self._ask("reload"))[0])

    async def change_budget(self, budget: Any) -> None:
        """Hold another budget from now on."""
        await self._ask("budget", budget)
        self.config = replace(self.config, budget=budget)  # of workers that are started later

    async def status(self) -> dict[str, Any]:
        """Contents of the status page."""
        facts = await self._ask("refresh")
        return {**facts[0], **status_of(self._shared.collect(), facts[0]["routes"]), "workers": len(facts)}

    async def prometheus(self) -> bytes:
        """Metrics of all workers together; counts of those that ended are kept."""
        await self._ask("refresh")
        return generate_latest(self._shared)
