"""The log: a line of JSON for each entry, whichever library writes it, and a limit on entries about errors.

Anyone who can connect can cause errors, such as requests that are no HTTP: of each kind a few lines a second are
written, and the others are counted.
"""

import logging
from typing import Any

import orjson

__all__ = ["LOG", "MAX_PER_SECOND", "failure_place", "log_as_json"]

LOG = logging.getLogger("thrifty.serve")

MAX_PER_SECOND = 10
"""Most entries of one kind in a second, from warnings on."""

_MAX_KINDS, _MAX_MESSAGE = 1000, 1000


def log_as_json() -> None:
    """Write the entries of all loggers to standard error as lines of JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter())
    handler.addFilter(_ErrorLimit())
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
    """One line of JSON; an entry about a request has its facts in place of a message."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {"time": record.created, "level": record.levelname.lower()}
        facts = getattr(record, "facts", None)
        if facts is None:
            facts = {"logger": record.name, "message": record.getMessage()[:_MAX_MESSAGE]}
        entry |= facts
        if record.exc_info and record.exc_info[1] is not None:
            entry["failure"] = failure_place(record.exc_info[1])
        if n_suppressed := getattr(record, "n_suppressed", 0):
            entry["suppressed"] = n_suppressed
        return orjson.dumps(entry, default=str).decode()


class _ErrorLimit(logging.Filter):
    """Lets a few entries of each kind through in a second; the next one says how many were not written."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[Any, tuple[int, int, int]] = {}  # second, entries in it, entries not written so far

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        kind = record.name, str(record.msg), getattr(record, "facts", {}).get("status")
        second, n_written, n_suppressed = self._seen.get(kind, (0, 0, 0))
        if int(record.created) != second:
            second, n_written = int(record.created), 0
        if n_written >= MAX_PER_SECOND:
            self._seen[kind] = second, n_written, n_suppressed + 1
            return False
        if len(self._seen) >= _MAX_KINDS:
            self._seen.clear()
        record.n_suppressed = n_suppressed
        self._seen[kind] = second, n_written + 1, 0
        return True
