"""Settings of the gateway, read from serve.toml and checked before it starts."""

import dataclasses
import math
import os
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_type_hints

from thrifty.errors import InvalidInputError, did_you_mean, listed
from thrifty.files import check_path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ADDRESS = re.compile(r"https?://[^/\s?#]+(/[^\s?#]*)?/v2/models/[^/\s?#]+(/versions/[^/\s?#]+)?(/infer)?/?")

Settings = TypeVar("Settings")

LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Addresses that only this machine reaches."""

_INSTEAD = {
    **{
        name: f"The proxy in front of the gateway has it: {directive} in deploy/nginx.conf."
        for name, directive in (
            ("head_timeout", "client_header_timeout"),
            ("body_timeout", "client_body_timeout"),
            ("max_connections_per_address", "limit_conn"),
        )
    },
    **dict.fromkeys(
        ("breaker_failures", "breaker_share", "breaker_window", "breaker_pause"),
        "The circuit breaker is that of all services.",
    ),
    "retry_budget": "Retries are at most a fifth of the calls; max_retries = 0 makes none.",
}
"""Settings of earlier versions, and what took their place."""


def _number(default: Any, least: float, most: float = math.inf) -> Any:
    """A setting that must lie in an interval."""
    return dataclasses.field(default=default, metadata={"range": (least, most)})


def _choice(*choices: str) -> Any:
    """A setting that is one of some words, the first by default."""
    return dataclasses.field(default=choices[0], metadata={"choices": choices})


def _path() -> Any:
    """A setting that names a file."""
    return dataclasses.field(default=None, metadata={"path": True})


def _table(**how: Any) -> Any:
    return dataclasses.field(default_factory=dict, **how)


@dataclass(frozen=True)
class RemoteSettings:
    """Settings of a remote full model: the table ``[remote]``.

    Attributes
    ----------
    connect_timeout, total_timeout : float
        Seconds until a connection must be open, and until the response must be complete, retry included.
    max_retries : int
        Most retries of one call.
    max_in_flight : int
        Most calls at the same time; one more is refused at once.
    max_bytes : int
        Size of the largest response that is read; less is read where few numbers were asked for: 64 KiB, and 1 KiB
        for each number.
    input_name : str, optional
        Name of the one tensor with all columns, shape (n_rows, n_columns); None, or empty, sends a tensor per column.
    output_name : str, optional
        Name of the tensor with the outputs, which is then asked for (``"predict_proba"`` of a scikit-learn classifier
        in MLServer, which otherwise gives labels); None takes what thrifty or MLServer call them, or the only tensor.
    datatype : {"FP64", "FP32"}
        Type of the numbers that are sent.
    """

    connect_timeout: float = _number(0.1, 1e-3, 3600)
    total_timeout: float = _number(0.25, 1e-3, 3600)
    max_retries: int = _number(1, 0)
    max_in_flight: int = _number(64, 1)
    max_bytes: int = _number(8 * 2**20, 1)
    input_name: str | None = "X"
    output_name: str | None = None
    datatype: str = _choice("FP64", "FP32")

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class EstimatorSettings(RemoteSettings):
    """Settings of a model of a cascade that is not in the file: a table ``[models.NAME]``, and those of ``[remote]``.

    Attributes
    ----------
    url : str, optional
        Address of the model behind the Open Inference Protocol, ``http://HOST:PORT/v2/models/NAME``.
    onnx : str, optional
        An ONNX file, which ONNX Runtime runs in this process.
    key_env : str, optional
        Environment variable with the key of that server.
    """

    WHERE: ClassVar[str] = 'url = "http://HOST:PORT/v2/models/NAME" or onnx = "FILE.onnx"'

    url: str | None = None
    onnx: str | None = None
    key_env: str | None = None

    def __post_init__(self) -> None:
        _check(self)
        if (self.url is None) == (self.onnx is None):
            raise InvalidInputError("either url or onnx must say where the model is, and not both.")
        if self.url is not None:
            _check_address(self.url)


@dataclass(frozen=True)
class ProviderSettings:
    """Settings of a provider: a table ``[providers.NAME]`` with exactly one of ``url``, ``database`` and ``path``.

    Attributes
    ----------
    columns : list of str, or dict of str to str
        Columns of the model that it sells; a table maps them to their names there.
    key : str
        Name under which requests carry what it knows rows by, and, in a database or a file, the column that holds it.
    url : str, optional
        Address of a service, asked as ``HttpSource`` asks.
    headers : dict of str to str
        Headers of every question to that service, such as an authorisation.
    database, table : str, optional
        File of an SQLite database, and the table or view in it.
    path : str, optional
        A CSV or Parquet file, which is read once, when the gateway starts.
    timeout : float
        Seconds that one question may take.
    retries : int
        How often a question that failed is put again, while the deadline of the request allows it.
    cache : float
        Seconds for which what was delivered is kept; 0 keeps nothing.
    max_cached : int
        Keys of which something is kept; the oldest make room.
    max_in_flight : int
        Most questions at the same time; a purchase that would be one more fails at once.
    """

    columns: Any
    key: str
    url: str | None = None
    headers: Mapping[str, str] = _table(repr=False)
    database: str | None = _path()
    table: str | None = None
    path: str | None = _path()
    timeout: float = _number(0.25, 1e-3)
    retries: int = _number(1, 0)
    cache: float = _number(0.0, 0)
    max_cached: int = _number(10_000, 1)
    max_in_flight: int = _number(64, 1)

    def __post_init__(self) -> None:
        _check(self)
        if sum(one is not None for one in (self.url, self.database, self.path)) != 1:
            raise InvalidInputError("exactly one of url, database and path must say where to buy.")
        if (self.database is None) != (self.table is None):
            raise InvalidInputError(
                "database and table belong together: the file, and the table or view in it."
            )
        named = self.columns if isinstance(self.columns, Mapping | list) else []
        if not named or not all(isinstance(one, str) for one in [*named, *self.names.values()]):
            raise InvalidInputError(f"columns must be a list of names of columns; got {self.columns!r}.")
        if self.url is not None and any(name != column for name, column in self.names.items()):
            raise InvalidInputError("a service is asked by the names of the model: columns must be a list.")

    @property
    def names(self) -> dict[str, str]:
        """Name of each column at the provider."""
        if isinstance(self.columns, Mapping):
            return dict(self.columns)
        return {name: name for name in self.columns}


@dataclass(frozen=True)
class ModelSettings:
    """Settings of a language model that a router asks: a table ``[models.NAME]``.

    Attributes
    ----------
    url : str
        Base URL of a server that speaks OpenAI's protocol, such as ``https://HOST/v1``.
    model : str, optional
        Name of the model there; its name in the router by default.
    key_env : str, optional
        Environment variable with the key of that server.
    price : float or list of two float, optional
        Dollars per call, or per million tokens in and out; those of the router by default.
    timeout : float
        Seconds that an answer may take, or, where it is passed on as it comes, each part of it.
    stream_timeout : float
        Seconds that an answer that is passed on may take in all.
    max_in_flight : int
        Most calls at the same time.
    max_tokens_name : {"max_tokens", "max_completion_tokens"}
        Field that limits the tokens of an answer there.
    extra_tokens : int
        Tokens that the server may add to a prompt, such as those of a chat template.
    capacity : int, optional
        Most calls a day (UTC), such as cases that persons can read; beyond them other models answer. The ledger of
        ``[chat]`` keeps the count across restarts.
    """

    WHERE: ClassVar[str] = 'url = "https://HOST/v1", key_env = "NAME_OF_A_VARIABLE"'

    url: str
    model: str | None = None
    key_env: str | None = None
    price: Any = None
    timeout: float = _number(60.0, 1e-3, 3600)
    stream_timeout: float = _number(600.0, 1e-3, 86_400)
    max_in_flight: int = _number(256, 1)
    max_tokens_name: str = _choice("max_tokens", "max_completion_tokens")
    extra_tokens: int = _number(64, 0)
    capacity: int | None = _number(None, 0)

    def __post_init__(self) -> None:
        _check(self)
        if not re.fullmatch(r"https?://[^/\s?#]+(/[^\s?#]*)?", self.url):
            raise InvalidInputError(f"url must read http://HOST/v1 or https://HOST/v1; got {self.url!r}.")


@dataclass(frozen=True)
class TenantSettings:
    """Settings of a client with a ceiling of its own, within that of all: a table ``[tenants.NAME]``.

    Attributes
    ----------
    budget : float
        Dollars that its requests may cost in a day (UTC), with calls under way.
    key_env : str
        Environment variable with its API key, by which it is known.
    """

    budget: float = _number(0.0, 0)
    key_env: str = ""

    def __post_init__(self) -> None:
        _check(self)
        if not self.budget > 0 or not self.key_env:
            raise InvalidInputError(
                'a tenant must have a budget above 0, dollars a day, and key_env = "NAME_OF_A_VARIABLE", by which it '
                "is known."
            )


ModelKind = TypeVar("ModelKind", ModelSettings, EstimatorSettings)


@dataclass(frozen=True)
class ChatSettings:
    """Settings of chat completions: the table ``[chat]``.

    Attributes
    ----------
    max_cost, max_cost_per_day : float, optional
        Dollars that one request, and all requests of a day (UTC), may cost at most, failed calls included.
    ledger : str, optional
        File that keeps what was spent today; without one, a restart begins at 0.
    log : str, optional
        CSV file to which a line is added for each call, as ``thrifty route`` reads it.
    max_log_bytes : int
        Size at which the log becomes ``LOG.1``, that one ``LOG.2``, up to ``LOG.9``, and a new one is begun.
    max_tokens : int
        Tokens of an answer where a request names no limit.
    deadline : float
        Seconds in which models are asked again where none answers and some are only busy.
    max_conversations : int
        Conversations whose model is kept; the oldest make room.
    answer_pattern : str, optional
        Regular expression whose last match, or its first group, is the answer that is compared with others.
    """

    max_cost: float | None = _number(None, 0)
    max_cost_per_day: float | None = _number(None, 0)
    ledger: str | None = _path()
    log: str | None = _path()
    max_log_bytes: int = _number(2**27, 1)
    max_tokens: int = _number(1024, 1)
    deadline: float = _number(60.0, 0, 3600)
    max_conversations: int = _number(100_000, 1)
    answer_pattern: str | None = None

    def __post_init__(self) -> None:
        _check(self)
        try:
            re.compile(self.answer_pattern or "")
        except re.error as error:
            raise InvalidInputError(f"answer_pattern must be a regular expression: {error}.") from error


@dataclass(frozen=True)
class Config:
    """Settings of the gateway.

    Attributes
    ----------
    name : str
        Name of the model in addresses: ``/v2/models/NAME``.
    host, port : str, int
        Where clients are answered.
    admin_host, admin_port : str, int
        Where metrics, the status page and the administration are. Another host than 127.0.0.1 needs keys for all of it.
    workers : int
        Processes that answer; they share the port and the budget. Limits on requests and connections are those of each.
    tls_cert, tls_key : str, optional
        PEM files of a certificate chain and its private key, with which both ports speak HTTPS.
    full : str, optional
        Address of the full model behind the Open Inference Protocol, up to and with its name:
        ``http://HOST:PORT/v2/models/NAME``. None asks the full model in the file.
    remote : RemoteSettings or dict
        Deadlines and limits of the calls of that full model.
    on_remote_failure : {"local", "error", "abstain"}
        How a row is treated whose full model does not answer: it gets the last stage's answer, the request is refused
        with 503, or the row gets no answer. Answers of the first and third kind are marked degraded.
    providers : dict of str to ProviderSettings or dict
        Providers of columns that a request does not carry.
    on_provider_failure : {"answer", "skip", "raise"}
        How a row is treated for which a purchase fails: it is answered with what it holds, it goes on without what it
        lacks, or the request is refused with 503. Rows of the first two kinds are marked degraded.
    purchase_deadline : float
        Seconds that all purchases of one request may take.
    budget : float, or dict of resource to float, optional
        Mean cost per row that the stream of rows is to spend; None keeps the operating point of the file.
    budget_window : int
        Rows over which the mean cost is held.
    budget_cap : float, optional
        Mean cost per row that no window of rows may exceed; needs a budget.
    api_key, remote_api_key : str, optional
        Key that requests must carry, and the one that the full model is asked with.
    keys : str, optional
        TOML file with lists of keys: ``clients`` for predictions, ``metrics`` for metrics and status, ``admin`` for
        changes (by default those of clients). Read again on a reload, so that keys can be rotated.
    max_body_bytes, max_rows : int
        Larger requests are refused.
    max_in_flight : int
        Requests under way at once; others wait for room.
    max_delay : float
        Seconds that a request waits for room before it is refused with 503.
    retry_after : int
        Seconds after which a client that was refused should ask again.
    explore : float
        Share of rows, drawn by their keys, that go on buying beyond their stop: to the full model, or of a router's
        conversations to one more model, drawn evenly. It is their ``propensity`` in the log.
    receipts : str, optional
        CSV file to which a line is added for each row that is answered: its key (``row_key``), answer and cost, what it
        held and bought, and with which probability. ``thrifty fit`` learns from it; it holds values of features.
    max_receipts_bytes : int
        Size at which it becomes ``RECEIPTS.1``, that one ``RECEIPTS.2``, up to ``RECEIPTS.9``, and a new one is begun.
    models : dict of str to ModelSettings, EstimatorSettings or dict
        Language models of a router, or models of a cascade that are not in the file.
    tenants : dict of str to TenantSettings or dict
        Clients of a router with a daily budget of their own, within the ceiling of all.
    chat : ChatSettings or dict
        Ceilings and log of chat completions.
    row_key : str, optional
        Column of requests with the keys of their rows, which decide between two operating points where they are mixed.
        None is the column that the fit named; without one, the id of a request is the key of its row.
    unseen : {"refuse", "missing"}
        How text is treated that the fit has not seen, in a cell that is read.
    drain : float
        Seconds that requests under way get to end when the gateway stops.
    log_requests : bool
        Whether each request is a line of the log. Lines hold no values of features.
    """

    name: str = "thrifty"
    host: str = "127.0.0.1"
    port: int = _number(8080, 0, 65_535)
    admin_host: str = "127.0.0.1"
    admin_port: int = _number(8081, 0, 65_535)
    workers: int = _number(1, 1, 1000)
    tls_cert: str | None = _path()
    tls_key: str | None = _path()
    full: str | None = None
    remote: Any = dataclasses.field(default_factory=RemoteSettings)
    on_remote_failure: str = _choice("local", "error", "abstain")
    providers: Mapping[str, Any] = _table(repr=False)  # headers may hold keys
    on_provider_failure: str = _choice("answer", "skip", "raise")
    purchase_deadline: float = _number(1.0, 1e-3, 3600)
    budget: Any = None
    budget_window: int = _number(2000, 1, 10**9)
    budget_cap: float | None = None
    api_key: str | None = dataclasses.field(default=None, repr=False)
    remote_api_key: str | None = dataclasses.field(default=None, repr=False)
    keys: str | None = _path()
    max_body_bytes: int = _number(2**20, 1, 2**30)
    max_rows: int = _number(10_000, 1, 10**6)
    max_in_flight: int = _number(256, 1, 10**6)
    max_delay: float = _number(0.1, 0, 3600)
    retry_after: int = _number(1, 0, 3600)
    explore: float = _number(0.0, 0, 1)
    receipts: str | None = _path()
    max_receipts_bytes: int = _number(2**27, 1)
    models: Mapping[str, Any] = _table()
    tenants: Mapping[str, Any] = _table()
    chat: Any = dataclasses.field(default_factory=ChatSettings)
    row_key: str | None = None
    unseen: str = _choice("refuse", "missing")
    drain: float = _number(10.0, 0, 3600)
    log_requests: bool = True

    def __post_init__(self) -> None:
        _check(self)
        if not _NAME.fullmatch(self.name):
            raise InvalidInputError(
                f"name must be made of letters, digits, '.', '_' and '-', at most 100 of them; got {self.name!r}. It "
                f"is part of an address. Name the model with --name."
            )
        if self.full is not None:
            _check_address(self.full)
        amounts = self.budget.values() if isinstance(self.budget, dict) else [self.budget]
        if any(isinstance(one, bool) or not isinstance(one, int | float | None) for one in amounts):
            raise InvalidInputError(
                f"budget must be a number, or a table of resources, such as {{ dollars = 12, minutes = 15 }}; got "
                f"{self.budget!r}. Write it so in serve.toml."
            )
        if self.budget_cap is not None and self.budget is None:
            raise InvalidInputError(
                f"budget_cap needs a budget, whose controller holds it; got a cap of {self.budget_cap!r} alone. Set "
                f"budget, or leave the cap out."
            )
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidInputError(
                "tls_cert and tls_key belong together: a certificate and its private key."
            )
        if self.receipts is not None and self.budget_cap is not None:
            raise InvalidInputError(
                "receipts hold the probability of each purchase, and budget_cap stops rows for what others paid. Leave "
                "one of them out."
            )
        for name in ("api_key", "remote_api_key"):
            if getattr(self, name) is not None:
                _check_key(name, getattr(self, name))
        tables: dict[str, Any] = {"remote": RemoteSettings, "chat": ChatSettings}
        for name, kind in tables.items():
            object.__setattr__(self, name, _settings_of(kind, getattr(self, name), f"[{name}]"))
        named: dict[str, Callable[..., Any]] = {
            "providers": partial(_settings_of, ProviderSettings),
            "models": _model_settings,
            "tenants": partial(_settings_of, TenantSettings),
        }
        for name, read in named.items():
            settings = {key: read(table, f"[{name}.{key}]") for key, table in getattr(self, name).items()}
            object.__setattr__(self, name, settings)
        for name in self.tenants:
            if not _NAME.fullmatch(name):
                raise InvalidInputError(
                    f"[tenants.{name}] must have a name of letters, digits, '.', '_' and '-', at most 100 of them: it "
                    f"is part of the name of a file."
                )
        sellers: dict[str, str] = {}
        for name, provider in self.providers.items():
            for column in provider.names:
                if sellers.setdefault(column, name) != name:
                    raise InvalidInputError(
                        f"[providers.{name}] sells {column!r}, which another provider sells. Choose one."
                    )

    def models_of(
        self, kind: type[ModelKind], names: Collection[str], needed: Collection[str]
    ) -> Mapping[str, ModelKind]:
        """Settings of the models of a system that has these names, and needs to know where some of them are."""
        for name in self.models:
            if name not in names:
                raise InvalidInputError(f"[models.{name}] is no model of the system.{closest(name, names)}")
        for name in {**self.models, **dict.fromkeys(needed)}:
            if not isinstance(self.models.get(name), kind):
                raise InvalidInputError(f"[models.{name}] must say where {name!r} is: {kind.WHERE}.")
        return self.models

    def with_changes(self, **changes: Any) -> "Config":
        """The settings with those of the changes that are not None."""
        return dataclasses.replace(self, **{name: new for name, new in changes.items() if new is not None})


def read_config(path: Path) -> Config:
    """Read settings from a TOML file; unknown names are refused."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path} must be a TOML file: {error}. Correct it there.") from error
    return _settings_of(Config, table, str(path))


def read_keys(path: Path | None) -> dict[str, list[str]]:
    """Read a TOML file of keys: lists of text by the names ``clients``, ``metrics`` and ``admin``; None has no keys."""
    if path is None:
        return {"clients": [], "metrics": [], "admin": []}
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path} must be a TOML file of keys: {error}. Correct it there.") from error
    keys = {**read_keys(None), **table}
    for name, of_role in keys.items():
        if name not in ("clients", "metrics", "admin") or not isinstance(of_role, list):
            raise InvalidInputError(
                f"{path} must hold lists of keys, called clients, metrics and admin; got {name!r}."
            )
        for key in of_role:
            _check_key(f"each key of {name!r} in {path}", key)
    if not keys["clients"]:
        raise InvalidInputError(
            f"{path} must hold at least one key of clients: without any, predictions are open."
        )
    return keys


def _check_address(url: str) -> None:
    if not _ADDRESS.fullmatch(url):
        raise InvalidInputError(
            f"the address of a remote model must read http://HOST/v2/models/NAME; got {url!r}. It is asked through the "
            f"Open Inference Protocol v2, which MLServer, Triton and KServe speak."
        )


def _model_settings(table: Any, where: str) -> Any:
    """Settings of a language model, or of an estimator: an ONNX file, or an address of the inference protocol."""
    if isinstance(table, ModelSettings | EstimatorSettings):
        return table
    is_estimator = isinstance(table, Mapping) and ("onnx" in table or "/v2/models/" in str(table.get("url")))
    return _settings_of(EstimatorSettings if is_estimator else ModelSettings, table, where)


def _check_key(name: str, key: Any) -> None:
    is_text = isinstance(key, str) and bool(key)
    if not (is_text and key.isascii() and key.isprintable() and key.strip() == key):
        raise InvalidInputError(
            f"{name} must be made of printable ASCII characters, without a space at either end. Choose another key, or "
            f"leave it out."
        )


def key_from(variable: str | None) -> str | None:
    """Key in an environment variable that settings name."""
    if variable is not None and not os.environ.get(variable):
        raise InvalidInputError(
            f"key_env names the environment variable {variable!r}, which is not set. Set it."
        )
    return None if variable is None else os.environ[variable]


def closest(name: str, known: Collection[str]) -> str:
    """A sentence that names the closest known name, or some of the known ones."""
    return did_you_mean(name, known) or f" Known are {listed(sorted(known), 10)}."


def _settings_of(kind: type[Settings], table: Any, where: str) -> Settings:
    """Settings in a table; unknown names and broken rules are refused with the place of the table."""
    if isinstance(table, kind):
        return table
    if not isinstance(table, Mapping):
        raise InvalidInputError(f"{where} must be a table of settings; got {type(table).__name__}.")
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]  # a dataclass: mypy sees a type
    known = {field.name for field in fields}
    for name in table:
        if name not in known:
            hint = f" {_INSTEAD[name]}" if name in _INSTEAD else closest(name, known)
            raise InvalidInputError(f"{where} sets {name!r}, which is no setting.{hint}")
    for field in fields:
        if field.default is field.default_factory and field.name not in table:  # both are missing
            raise InvalidInputError(f"{where} must set {field.name!r}.")
    try:
        return kind(**table)
    except InvalidInputError as error:
        raise InvalidInputError(f"{where}: {error}") from error


_TYPES: dict[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "text"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    bool: ((bool,), "true or false"),
}


def _check(settings: Any) -> None:
    """Refuse values of another type than declared, outside of their interval, or that are none of the choices."""
    hints = get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        name, value, hint = field.name, getattr(settings, field.name), hints[field.name]
        plain = next((kind for kind in _TYPES if hint in (kind, kind | None)), None)
        if hint is Any or (value is None and plain is not hint):
            continue
        types, words = _TYPES.get(plain, ((Mapping,), "a table"))
        is_right = isinstance(value, types) and (plain is bool or not isinstance(value, bool))
        if not is_right or (isinstance(value, float) and not math.isfinite(value)):
            shown = "" if name.endswith("api_key") else f"; got {value!r}"
            raise InvalidInputError(f"{name} must be {words}{shown}. Write it so in serve.toml.")
        least, most = field.metadata.get("range", (-math.inf, math.inf))
        if plain in (int, float) and not least <= value <= most:
            interval = f"lie in [{least:g}, {most:g}]" if math.isfinite(most) else f"be at least {least:g}"
            raise InvalidInputError(f"{name} must {interval}; got {value!r}.")
        if "path" in field.metadata:
            try:
                check_path(value)
            except InvalidInputError as error:
                raise InvalidInputError(f"{name}: {error}") from error
        choices = field.metadata.get("choices", (value,))
        if value not in choices:
            raise InvalidInputError(
                f"{name} must be one of {listed(choices)}; got {value!r}.{closest(value, choices)}"
            )
