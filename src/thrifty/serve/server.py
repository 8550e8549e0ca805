"""Two HTTP servers in one event loop: the public application, and administration on 127.0.0.1."""

import asyncio
import contextlib
import gc
import logging
import signal
from typing import Any

import uvicorn
from starlette.applications import Starlette

from thrifty.errors import InvalidInputError
from thrifty.serve.app import direct
from thrifty.serve.config import Config
from thrifty.serve.metrics import LOG
from thrifty.serve.reload import Serving

__all__ = ["run"]

_CONNECTIONS_PER_REQUEST = 16
"""Connections for each request that may be in flight; uvicorn answers 503 on more, whatever they ask for."""


def run(app: Starlette, admin: Starlette, config: Config) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reads the file again."""
    if not LOG.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        LOG.addHandler(handler)
        LOG.setLevel(logging.INFO)
    common: dict[str, Any] = {
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,  # nothing depends on the address of a client
        "timeout_graceful_shutdown": max(1, round(config.drain)),
        "ws": "none",
    }
    max_connections = _CONNECTIONS_PER_REQUEST * config.max_in_flight
    public = uvicorn.Server(
        uvicorn.Config(
            direct(app), host=config.host, port=config.port, limit_concurrency=max_connections, **common
        )
    )
    private = uvicorn.Server(
        uvicorn.Config(admin, host="127.0.0.1", port=config.admin_port, lifespan="off", **common)
    )
    # What was imported and loaded stays to the end. To look through it for garbage takes a tenth of a second, in which
    # no request is answered.
    gc.collect()
    gc.freeze()
    try:
        with asyncio.Runner(loop_factory=public.config.get_loop_factory()) as runner:
            runner.run(_serve(public, private, app.state.serving))
    except KeyboardInterrupt:
        pass
    except SystemExit:
        raise InvalidInputError(
            f"the ports {config.port} and {config.admin_port} of {config.host} and 127.0.0.1 must be free. Name others "
            f"with --port and --admin-port."
        ) from None


async def _serve(public: uvicorn.Server, private: uvicorn.Server, serving: Serving) -> None:
    def reload() -> None:
        serving.in_background(_reload(serving))

    with contextlib.suppress(NotImplementedError, AttributeError):  # Windows has no such signal
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    # A signal ends the server that started last, which hands it on to the other one: both end, the public one last.
    both = [asyncio.ensure_future(server.serve()) for server in (public, private)]
    try:
        await both[0]
    finally:
        private.should_exit = True
        await both[1]


async def _reload(serving: Serving) -> None:
    with contextlib.suppress(InvalidInputError):  # logged and counted where it was refused
        await serving.reload()
