"""Settings of the gateway: what may be written into serve.toml, checked before anything starts."""

import dataclasses
import difflib
import math
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from thrifty.errors import InvalidInputError

__all__ = ["Config", "meant", "read_config"]

ON_REMOTE_FAILURE = ("local", "error", "abstain")
ON_PROVIDER_FAILURE = ("answer", "skip", "raise")
UNSEEN = ("refuse", "missing")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Config:
    """Settings of the gateway.

    Attributes
    ----------
    name : str
        Name of the model in addresses: ``/v2/models/NAME``.
    host, port : str, int
        Where questions are answered.
    admin_port : int
        Where metrics, the status page and the administration are, on 127.0.0.1 always.
    full : str, optional
        Address of the full model behind the Open Inference Protocol, up to and with its name:
        ``http://HOST:PORT/v2/models/NAME``. None asks the full model in the file.
    remote : dict
        Deadlines and limits of the calls of that full model, by the names of ``RemoteSettings``.
    on_remote_failure : {"local", "error", "abstain"}
        What becomes of a row whose full model does not answer: it gets the last stage's answer, the request
        is refused with 503, or the row gets no answer. Answers of the first and third kind are marked degraded.
    providers : dict of str to dict
        Who sells columns that a request does not carry, by the names of ``ProviderSettings``.
    on_provider_failure : {"answer", "skip", "raise"}
        What becomes of a row for which a purchase fails: it is answered with what it holds, it goes on without what it
        lacks, or the request is refused with 503. Rows of the first two kinds are marked degraded.
    purchase_deadline : float
        Seconds that all purchases of one request may take.
    budget : float, optional
        Mean cost per row that the stream of rows is to spend; None keeps the operating point of the file.
    budget_window : int
        Rows over which the mean spend is held.
    budget_cap : float, optional
        Mean cost per row that no window of rows may exceed.
    api_key, remote_api_key : str, optional
        Key that questions and changes must carry, and the one that the full model is asked with.
    max_body_bytes, max_rows : int
        Larger questions are refused.
    body_timeout : float
        Seconds that a client may take to send its question.
    max_in_flight : int
        Questions under way at once; more are turned away with 503.
    max_delay : float
        Seconds of the processor that the questions which are waiting may need together; more are turned away with
        503. Those that wait for the full model or for a provider do not count.
    retry_after : int
        Seconds after which somebody who was turned away should come again.
    explore : float
        Share of rows answered by a stage about which the full model is asked too, to compare both.
    row_key : str, optional
        Column of requests with the keys of their rows, which decide between two operating points where they are mixed.
        None is the column that the fit named; without one, the id of a request is the key of its row.
    unseen : {"refuse", "missing"}
        What becomes of text that the fit has not seen, in a cell that is read.
    drain : float
        Seconds that questions under way get to end when the gateway stops.
    log_requests : bool
        Whether each question is a line of the log. Lines hold no values of features.
    """

    name: str = "thrifty"
    host: str = "127.0.0.1"
    port: int = 8080
    admin_port: int = 8081
    full: str | None = None
    remote: Mapping[str, Any] = field(default_factory=dict)
    on_remote_failure: str = "local"
    providers: Mapping[str, Any] = field(default_factory=dict, repr=False)  # headers may hold keys
    on_provider_failure: str = "answer"
    purchase_deadline: float = 1.0
    budget: float | None = None
    budget_window: int = 2000
    budget_cap: float | None = None
    api_key: str | None = field(default=None, repr=False)
    remote_api_key: str | None = field(default=None, repr=False)
    max_body_bytes: int = 2**20
    max_rows: int = 10_000
    body_timeout: float = 10.0
    max_in_flight: int = 256
    max_delay: float = 0.05
    retry_after: int = 1
    explore: float = 0.0
    row_key: str | None = None
    unseen: str = "refuse"
    drain: float = 10.0
    log_requests: bool = True

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            _check_type(one.name, getattr(self, one.name), get_type_hints(Config)[one.name])
        _check_choice("on_remote_failure", self.on_remote_failure, ON_REMOTE_FAILURE)
        _check_choice("on_provider_failure", self.on_provider_failure, ON_PROVIDER_FAILURE)
        _check_choice("unseen", self.unseen, UNSEEN)
        if not _NAME.fullmatch(self.name):
            raise InvalidInputError(
                f"name must be made of letters, digits, '.', '_' and '-', at most 100 of them; got {self.name!r}. It "
                f"is part of an address. Name the model with --name."
            )
        for name, least, most in (
            ("port", 0, 65_535),
            ("admin_port", 0, 65_535),
            ("purchase_deadline", 1e-3, 3600),
            ("budget_window", 1, 10**9),
            ("max_body_bytes", 1, 2**30),
            ("max_rows", 1, 10**6),
            ("body_timeout", 1e-3, 3600),
            ("max_in_flight", 1, 10**6),
            ("max_delay", 1e-3, 3600),
            ("retry_after", 0, 3600),
            ("explore", 0, 1),
            ("drain", 0, 3600),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise InvalidInputError(f"{name} must lie in [{least:g}, {most:g}]; got {value!r}.")
        for name in ("api_key", "remote_api_key"):
            key = getattr(self, name)
            if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key and key):
                raise InvalidInputError(
                    f"{name} must be made of printable ASCII characters, without a space at either end. Choose "
                    f"another key, or leave it out."
                )

    def with_changes(self, **changes: Any) -> "Config":
        """The settings with those of the changes that are not None."""
        return dataclasses.replace(self, **{name: one for name, one in changes.items() if one is not None})


def read_config(path: Path) -> Config:
    """Settings in a TOML file; a name that is not known is refused."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path} must be a TOML file: {error}. Correct it there.") from error
    known = {one.name for one in dataclasses.fields(Config)}
    for name in found:
        if name not in known:
            raise InvalidInputError(f"{path} sets {name!r}, which is no setting.{meant(name, known)}")
    try:
        return Config(**found)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error


def meant(name: str, known: Collection[str]) -> str:
    """A sentence that names what was probably meant, or some of what there is."""
    near = difflib.get_close_matches(name, list(known), n=1)
    if near:
        return f" Did you mean {near[0]!r}?"
    shown = sorted(known)[:10]
    return f" Known are {', '.join(map(repr, shown))}{', ...' if len(known) > len(shown) else ''}."


def _check_choice(name: str, value: str, choices: Collection[str]) -> None:
    if value not in choices:
        raise InvalidInputError(
            f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}.{meant(value, choices)}"
        )


def _check_type(name: str, value: Any, hint: Any) -> None:
    if value is None and hint in (str | None, float | None):
        return
    kinds: dict[Any, tuple[tuple[type, ...], str]] = {
        str: ((str,), "text"),
        str | None: ((str,), "text"),
        int: ((int,), "a whole number"),
        float: ((int, float), "a number"),
        float | None: ((int, float), "a number"),
        bool: ((bool,), "true or false"),
    }
    types, words = kinds.get(hint, ((Mapping,), "a table"))
    is_right = isinstance(value, types) and (hint is bool or not isinstance(value, bool))
    if not is_right or (isinstance(value, float) and not math.isfinite(value)):
        shown = "" if name.endswith("api_key") else f"; got {value!r}"
        raise InvalidInputError(f"{name} must be {words}{shown}. Write it so in serve.toml.")
