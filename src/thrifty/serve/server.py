"""Two HTTP servers in one event loop: questions on one port, administration on another, of this machine alone."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette

from thrifty.exceptions import InvalidInputError
from thrifty.serve.admission import LOG
from thrifty.serve.config import Config
from thrifty.serve.reload import Serving

__all__ = ["run"]


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
        "timeout_graceful_shutdown": max(1, round(config.drain)),
        "ws": "none",
    }
    questions = uvicorn.Server(uvicorn.Config(app, host=config.host, port=config.port, **common))
    administration = _Silent(
        uvicorn.Config(admin, host="127.0.0.1", port=config.admin_port, lifespan="off", **common)
    )
    factory = questions.config.get_loop_factory()
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(_both(questions, administration, app.state.serving))
    except KeyboardInterrupt:
        pass
    except SystemExit:
        raise InvalidInputError(
            f"the ports {config.port} and {config.admin_port} of {config.host} and 127.0.0.1 must be free. Name others "
            f"with --port and --admin-port."
        ) from None


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
