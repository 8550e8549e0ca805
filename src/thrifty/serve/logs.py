"""The log: a line of JSON for each entry, whichever library writes it."""

import logging
from typing import Any

import orjson

__all__ = ["LOG", "failure_place", "log_as_json"]

LOG = logging.getLogger("thrifty.serve")

_MAX_MESSAGE = 1000


def log_as_json() -> None:
    """Write the entries of all loggers to standard error as lines of JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter())
    logging.basicConfig(handlers=[handler], force=True)
    logging.captureWarnings(True)
    LOG.setLevel(logging.INFO)


def failure_place(error: BaseException) -> str:
    """The type of an error and the line that raised it; its message may hold values."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    line = "" if trace is None else f" at {trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}"
    return f"{type(error).__name__}{line}"


class _JsonFormatter(logging.Formatter):
    """One line of JSON; an entry about a request has its facts instead of a message."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {"time": record.created, "level": record.levelname.lower()}
        facts = getattr(record, "facts", None)
        if facts is None:
            facts = {"logger": record.name, "message": record.getMessage()[:_MAX_MESSAGE]}
        entry |= facts
        if record.exc_info and record.exc_info[1] is not None:
            entry["failure"] = failure_place(record.exc_info[1])
        return orjson.dumps(entry, default=str).decode()
