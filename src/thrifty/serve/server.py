"""Two HTTP servers in one event loop: questions on one port, administration on another, of this machine alone."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from thrifty.errors import InvalidInputError
from thrifty.serve.admission import LOG, Operation
from thrifty.serve.config import Config
from thrifty.serve.connection import Connection, refusal_of
from thrifty.serve.reload import Serving

__all__ = ["run"]

_MOST_AT_ONCE = 512
"""Connections that are taken in one turn of the event loop."""

_NO_ROOM_PAUSE = 0.1
"""Seconds without taking any, once the operating system gives no more."""


class _Welcoming(uvicorn.Server):
    """A server that takes all connections that wait.

    The event loop of uvloop takes one in each turn. Under load a turn takes tens of milliseconds, and clients that come
    together would wait for seconds until they are so much as refused.
    """

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        self._entering: set[asyncio.Task[Any]] = set()
        self._waiting: list[socket.socket] = []
        await super().startup(sockets)
        if self.started:
            listening = [one for at in self.servers for one in at.sockets]
            self._waiting = [socket.socket(fileno=os.dup(one.fileno())) for one in listening]
        for one in self._waiting:
            self._watch(one)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen no more."""
        for one in self._waiting:
            with contextlib.suppress(NotImplementedError):
                asyncio.get_running_loop().remove_reader(one)
            one.close()
        await super().shutdown(sockets)

    def _watch(self, waiting: socket.socket) -> None:
        if waiting.fileno() >= 0:
            with contextlib.suppress(NotImplementedError):  # Windows: one at a time
                asyncio.get_running_loop().add_reader(waiting, self._take_all, waiting)

    def _take_all(self, waiting: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            for _ in range(_MOST_AT_ONCE):
                connection, _ = waiting.accept()
                connection.setblocking(False)
                task = loop.create_task(loop.connect_accepted_socket(self._made, connection))
                self._entering.add(task)
                task.add_done_callback(self._entered)
        except BlockingIOError:
            pass  # nobody is left
        except OSError:  # there is no room for more: those who wait would wake the event loop again and again
            loop.remove_reader(waiting)
            loop.call_later(_NO_ROOM_PAUSE, self._watch, waiting)

    def _entered(self, task: asyncio.Task[Any]) -> None:
        self._entering.discard(task)
        if not task.cancelled():
            task.exception()  # a client that has gone meanwhile is nobody's problem

    def _made(self) -> asyncio.Protocol:
        how: dict[str, Any] = {"server_state": self.server_state, "app_state": self.lifespan.state}
        make: Any = self.config.http_protocol_class
        made: asyncio.Protocol = make(config=self.config, **how)
        return made


class _Silent(uvicorn.Server):
    """A server that leaves signals to the other one."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing."""
        yield


def run(app: Starlette, admin: Starlette, config: Config) -> None:
    """Serve until a signal says stop; SIGHUP reads the file again."""
    if not LOG.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        LOG.addHandler(handler)
        LOG.setLevel(logging.INFO)
    common: dict[str, Any] = {
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,  # nothing depends on who asks
        "timeout_graceful_shutdown": max(1, round(config.drain)),
        "ws": "none",
    }
    serving = app.state.serving
    http = partial(
        Connection,
        operations=_work_of(app),
        load=serving.load,
        tally=serving.tally,
        refusal=refusal_of(config.retry_after),
    )
    questions = _Welcoming(
        uvicorn.Config(app, host=config.host, port=config.port, http=http, **common)  # type: ignore[arg-type]
    )
    administration = _Silent(
        uvicorn.Config(admin, host="127.0.0.1", port=config.admin_port, lifespan="off", **common)
    )
    # What was imported and loaded stays to the end. To look through it for garbage takes a tenth of a second, in which
    # nobody is answered.
    gc.collect()
    gc.freeze()
    factory = questions.config.get_loop_factory()
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(_both(questions, administration, serving))
    except KeyboardInterrupt:
        pass
    except SystemExit:
        raise InvalidInputError(
            f"the ports {config.port} and {config.admin_port} of {config.host} and 127.0.0.1 must be free. Name others "
            f"with --port and --admin-port."
        ) from None


def _work_of(app: Starlette) -> dict[bytes, Operation]:
    """The operations that are work and whose address is always the same."""
    return {
        route.path.encode(): route.endpoint
        for route in app.routes
        if isinstance(route, Route) and isinstance(route.endpoint, Operation)
        if route.endpoint.load is not None and not route.param_convertors
    }


async def _both(questions: uvicorn.Server, administration: uvicorn.Server, serving: Serving) -> None:
    def reload() -> None:
        serving.in_background(_reload(serving))

    with contextlib.suppress(NotImplementedError, AttributeError):  # Windows has no such signal
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    beside = asyncio.ensure_future(administration.serve())
    try:
        await questions.serve()
    finally:
        administration.should_exit = True
        await beside


async def _reload(serving: Serving) -> None:
    with contextlib.suppress(InvalidInputError):  # logged and counted where it was refused
        await serving.reload()
