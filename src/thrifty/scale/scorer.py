"""``Scorer``: a saved system as a function of Arrow record batches, which every engine can send to its workers."""

import hashlib
import os
import signal
import threading
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from thrifty.arrays import Floats, Words
from thrifty.bundle.container import DEFAULT_MAX_BYTES
from thrifty.bundle.objects import from_bytes
from thrifty.engine.evidence.collect import chain_of
from thrifty.engine.full.model import FullModel
from thrifty.engine.table.reader import Cells
from thrifty.engine.tasks.ranking import RankingTask
from thrifty.engine.walk.chain import Chain
from thrifty.errors import InvalidInputError, listed
from thrifty.files import read_capped
from thrifty.learners.routing.router import ModelRouter
from thrifty.learners.table_fit import record_of
from thrifty.rows import fingerprints, key_words
from thrifty.threads import limited_threads


def answers_of(chain: Chain, cells: Cells) -> dict[str, Any]:
    """Answer, probability (of a label), number of the stage and cost of each row, in columns.

    Of several resources a column for each follows, such as ``cost_minutes``; the cost is then their sum at exchange
    rates.
    """
    reader = chain.reader(cells)
    walk = chain.walk(reader)
    outputs = chain.answer(reader, walk)
    by_resource = chain.costs(reader, walk).T if chain.by_resource else ()
    return {
        "answer": chain.task.answers(outputs),
        **({"probability": chain.task.confidence(outputs)} if len(chain.classes) else {}),
        "stage": walk.route,
        "cost": chain.spent(reader, walk),
        **dict(zip(resource_columns(chain), by_resource, strict=True)),
    }


def resource_columns(chain: Chain) -> list[str]:
    """Names of the columns of costs in each of several resources; none where there is one."""
    resources = chain.price_list.resources
    return [] if resources is None else [f"cost_{name}" for name in resources.names]


def csv_types(chain: Chain, others: Sequence[str]) -> dict[str, str]:
    """Types of the columns of a CSV file: numbers where the fit had numbers, text in all others."""
    schema = chain.schema
    numbers = [name for place, name in enumerate(schema.names) if schema.is_number(place)]
    return dict.fromkeys((*schema.names, *others), "string") | dict.fromkeys(numbers, "double")


def stage_names(chain: Chain) -> list[str]:
    """Names of the stages in tables of answers; the last is the full model."""
    return [*map(str, range(chain.n_stages)), "full"]


class Scorer:
    """A saved system, or router, that answers Arrow record batches.

    A scorer is small and can be pickled: it carries the path of the file and its SHA-256, not the system. Each process
    loads the system once, at the first batch, and refuses a file that has changed since the scorer was made. A batch is
    answered in one thread: engines, and ``--jobs``, have a process or thread for each core.

    Parameters
    ----------
    path : path
        File that ``save`` or `thrifty fit` wrote. Every process that scores must be able to read it.
    at : mapping, optional
        Operating point: keyword arguments of the ``at`` method of the estimator, such as ``{"budget": 3.0}``. By
        default that of the file.
    row_key : str, optional
        Column with a key for each row, which the answers carry. Where a budget mixes two operating points, the key
        decides which of them a row follows, the same in every partition. By default that of the fit.
    unseen : {"refuse", "missing"}, default="refuse"
        Treatment of text that was not in the training table.
    full : fitted estimator or callable, optional
        The full model (f0), where the file does not hold it; it is pickled with the scorer.
    full_cache : path, optional
        Folder that keeps every answer of the full model, so that a part that is scored again pays for none twice. Give
        each full model a folder of its own.
    full_batch_size : int, default=100
        Most rows in one call of a full model with ``full_cache``: what a process that is killed may pay for again.
    embed : bool, default=False
        Whether the scorer carries the bytes of the file instead of its path, for workers that cannot read the path.
    public_key : path, optional
        PEM file of an ed25519 public key; the system must be signed with its private key.

    Attributes
    ----------
    digest : str
        SHA-256 of the file.

    Examples
    --------
    >>> import tempfile, pathlib, pyarrow as pa
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    >>> from thrifty import BudgetedClassifier, StageOptions, save
    >>> from thrifty.scale import Scorer
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "iris.thrifty"
    ...     stages = StageOptions(max_stages=3, sizes=[(10, 3)])
    ...     save(BudgetedClassifier(LinearDiscriminantAnalysis(), stages=stages).fit(X, y), path)
    ...     scorer = Scorer(path)
    ...     answers = scorer(pa.RecordBatch.from_pandas(X.head(3)))
    >>> answers.schema.names
    ['answer', 'probability', 'stage', 'cost']
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        at: Mapping[str, Any] | None = None,
        row_key: str | None = None,
        unseen: str = "refuse",
        full: Any = None,
        full_cache: str | os.PathLike[str] | None = None,
        full_batch_size: int = 100,
        embed: bool = False,
        public_key: str | os.PathLike[str] | None = None,
    ) -> None:
        if unseen not in ("refuse", "missing"):
            raise InvalidInputError(f"unseen must be 'refuse' or 'missing'; got {unseen!r}.")
        if full_batch_size < 1:
            raise InvalidInputError(f"full_batch_size must be 1 or more; got {full_batch_size!r}.")
        data = read_capped(path, DEFAULT_MAX_BYTES)
        self.path = str(Path(path).absolute())
        self.digest = hashlib.sha256(data).hexdigest()
        self.at = dict(at or {})
        self.row_key = row_key
        self.unseen = unseen
        self.public_key = None if public_key is None else str(Path(public_key).absolute())
        self.full = full
        self.full_cache = None if full_cache is None else str(Path(full_cache).absolute())
        self.full_batch_size = full_batch_size
        # Copies of this scorer share what a process has loaded; a scorer with another full model does not.
        self._full_id = "" if full is None and full_cache is None else uuid4().hex
        self._data = data if embed else None

    @classmethod
    def of(cls, system: Any, **options: Any) -> "Scorer":
        """A scorer, unchanged, or that of a file."""
        return system if isinstance(system, Scorer) else cls(system, **options)

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value for name, value in vars(self).items() if name not in ("_loaded", "columns", "copied")
        }

    @property
    def system(self) -> Any:
        """The system at its operating point."""
        return self._loaded[0]

    @property
    def router(self) -> ModelRouter | None:
        """The system, where it is a router."""
        return self.system if isinstance(self.system, ModelRouter) else None

    @property
    def chain(self) -> Chain:
        """Chain of the system, where it has one."""
        chain = self._loaded[1]
        assert chain is not None  # asked for only where the system is no router
        return chain

    @cached_property
    def _loaded(self) -> tuple[Any, Chain | None]:
        """System and chain, loaded once per process."""
        key = (self.digest, repr(sorted(self.at.items())), self.public_key, self._full_id)
        with _loading:
            if key not in _systems:
                _systems[key] = self._load()
            return _systems[key]

    def _load(self) -> tuple[Any, Chain | None]:
        data = self._data if self._data is not None else read_capped(self.path, DEFAULT_MAX_BYTES)
        if hashlib.sha256(data).hexdigest() != self.digest:
            raise InvalidInputError(
                f"{self.path} has changed since the scorer was made; its SHA-256 was {self.digest[:12]}... Make "
                f"another scorer, and score all rows with one file."
            )
        system = from_bytes(data, full=self.full, wrap=self._cached, public_key=self.public_key)
        system = system.at(**self.at) if self.at else system
        if isinstance(system, ModelRouter):
            return system, None
        chain = chain_of(system).ready()
        if self.full is None and self.full_cache is not None:
            chain = chain.with_innermost(self._cached(chain.innermost))
        return system, chain

    def _cached(self, full: FullModel) -> FullModel:
        return full if self.full_cache is None else CachedFull(full, self.full_cache, self.full_batch_size)

    @cached_property
    def columns(self) -> list[str]:
        """Columns that some route reads, the row key and the query: no other column needs to be loaded."""
        if self.router is not None:
            return [*self.router.table_columns, *self.copied]
        chain = self.chain
        names = chain.schema.names
        used = np.ones(len(names), bool) if chain.price_list.by_row else chain.bought_by_place.any(axis=0)
        return [*(names[place] for place in np.flatnonzero(used)), *self.copied]

    @cached_property
    def copied(self) -> list[str]:
        """Columns that the answers copy from the rows: the row key, and the query of a ranking."""
        is_ranking = self.router is None and isinstance(self.chain.task, RankingTask)
        query = getattr(self.system, "query_name_", None) if is_ranking else None
        return list(dict.fromkeys(name for name in (self.key_column, query) if name))

    @property
    def key_column(self) -> str | None:
        """Column with the keys of the rows: that of the scorer, else that of the fit; None where rows are numbered."""
        return self.row_key or record_of(self.system).row_key or None

    def schema(self, rows: Any) -> Any:
        """Arrow schema of the answers to rows of a given schema."""
        import pyarrow as pa

        lacking = [name for name in self.copied if name not in rows.names]
        if lacking:
            raise InvalidInputError(
                f"the table lacks column {lacking[0]!r}, which holds the keys of its rows. Its columns are "
                f"{listed(rows.names)}."
            )
        number, text = pa.float64(), pa.string()
        if self.router is not None:
            answers = {"answer": text, "cost": number, **dict.fromkeys(self.resource_columns, number)}
        elif len(self.chain.classes):
            labels = pa.array(self.chain.classes).type
            answers = {"answer": labels, "probability": number, "stage": text, "cost": number}
        else:
            answers = {"answer": number, "stage": text, "cost": number}
        if self.router is None:
            answers |= dict.fromkeys(resource_columns(self.chain), number)
        return pa.schema([*(rows.field(name) for name in self.copied), *answers.items()])

    @property
    def types(self) -> dict[str, str]:
        """Types of the columns of a CSV file: numbers where the fit had numbers, text in all others."""
        if self.router is None:
            return csv_types(self.chain, self.copied)
        kind = "string" if self.router.reads_texts else "double"
        return dict.fromkeys(self.copied, "string") | dict.fromkeys(self.router.table_columns, kind)

    @property
    def resource_columns(self) -> list[str]:
        """Columns of the answers with the cost in each of several resources."""
        if self.router is None:
            return resource_columns(self.chain)
        resources = self.router.state_.resources
        return [] if resources is None else [f"cost_{name}" for name in resources.names]

    @property
    def dearest(self) -> tuple[str, str]:
        """Column and value of the answers of rows that the full model, or the best single one, answers."""
        return ("stage", "full") if self.router is None else ("answer", self.router.best_model)

    def __call__(self, batch: Any, *, first_row: int = 0) -> Any:
        """Answer a record batch.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Rows; may be empty. Columns that no route reads may be left out.
        first_row : int, default=0
            Number of the first row in its file, from 0: the key of a row where no column holds one.

        Returns
        -------
        answers : pyarrow.RecordBatch
            Row key, answer, probability (of a label), stage and cost of each row, in the order of the batch. Of a
            router, the first model to ask and what the row is expected to cost.
        """
        import pyarrow as pa

        schema, n_rows = self.schema(batch.schema), batch.num_rows
        if not n_rows:
            return pa.RecordBatch.from_pylist([], schema=schema)
        frame = pa.Table.from_batches([batch]).select(
            [name for name in self.columns if name in batch.schema.names]
        )
        # Engines run a task for each core.
        with limited_threads(openmp=1, blas=1):
            answers = self._answers(frame.to_pandas(ignore_metadata=True), batch, first_row)
        columns = [*(batch.column(name) for name in self.copied), *answers.values()]
        return pa.RecordBatch.from_arrays(
            [
                values if isinstance(values, pa.Array) else pa.array(values, field.type)
                for values, field in zip(columns, schema, strict=True)
            ],
            schema=schema,
        )

    def table(self, table: Any) -> Any:
        """Answer an Arrow table."""
        import pyarrow as pa

        whole = table.combine_chunks()
        batches = whole.to_batches() or [pa.RecordBatch.from_pylist([], schema=whole.schema)]
        return pa.Table.from_batches([self(batch) for batch in batches])

    def _answers(self, frame: Any, batch: Any, first_row: int) -> dict[str, Any]:
        """Answers to the rows of a data frame, in columns."""
        import pyarrow as pa

        if self.router is not None:
            model, cost = self.router.first_asked(self.router.rows_of(frame))
            return {"answer": model, **self.router.cost_columns(cost)}
        cells = self.chain.schema.cells(
            frame,
            unseen_is_missing=self.unseen == "missing",
            row_keys=self._keys(batch, first_row),
        )
        cells = replace(cells, row_numbers=cells.row_numbers + first_row)
        answers = answers_of(self.chain, cells)
        stage = pa.DictionaryArray.from_arrays(pa.array(answers["stage"]), stage_names(self.chain))
        answers["stage"] = stage.cast(pa.string())
        return answers

    def _keys(self, batch: Any, first_row: int) -> Words:
        key = self.key_column
        if key is None:
            return np.arange(first_row, first_row + batch.num_rows, dtype=np.uint64)
        column = batch.column(key)
        is_whole = not column.null_count and str(column.type).startswith(("int", "uint"))
        return key_words(column.to_numpy() if is_whole else column.to_pylist(), f"column {key!r}")


_systems: dict[Any, tuple[Any, Chain | None]] = {}
_loading = threading.Lock()


class CachedFull:
    """A full model that is asked about the same content once, however often a part is scored again.

    Answers are kept by the content of the columns that the model reads, a line each with its checksum, in a file for
    each process. They reach the disk before they are used, and before the next call; SIGTERM and Ctrl-C wait for that.
    A process that ends in another way loses the answers of the call under way.

    Parameters
    ----------
    full : FullModel
        The model that is paid for.
    folder : str
        Folder of the answers; several processes and machines may share it.
    batch_size : int
        Most rows in one call of the model.
    """

    def __init__(self, full: FullModel, folder: str, batch_size: int) -> None:
        self.full = full
        self.folder = Path(folder)
        self.batch_size = batch_size
        self.folder.mkdir(parents=True, exist_ok=True)
        self._own = self.folder / f"{uuid4().hex}.answers"
        self._n_read: dict[Path, int] = {}
        self._known: dict[int, Floats] = {}
        self._writing = threading.Lock()

    def outputs(self, table: Any, numbers: Any) -> Floats:
        """Outputs of the rows: those in the folder, and those that the model is asked for."""
        keys = _keys_of(table, numbers).tolist()
        new = [*{key: place for place, key in enumerate(keys) if key not in self._known}.items()]
        for first in range(0, len(new), self.batch_size):
            self._read_new_lines()
            some = new[first : first + self.batch_size]
            asked = {key: place for key, place in some if key not in self._known}
            if asked:
                rows = np.array(list(asked.values()), dtype=np.intp)
                part = table.iloc[rows] if hasattr(table, "iloc") else table[rows]
                with _signals_deferred():
                    outputs = np.asarray(self.full.outputs(part, numbers[rows]), dtype=np.float64)
                    self._keep(dict(zip(asked, outputs, strict=True)))
        return np.array([self._known[key] for key in keys])

    def _keep(self, answers: dict[int, Floats]) -> None:
        self._known.update(answers)
        lines = [f"{key:x} {' '.join(map(repr, outputs.tolist()))}" for key, outputs in answers.items()]
        try:
            with self._writing, open(self._own, "ab") as file:
                file.write("".join(f"{line} #{_checksum(line)}\n" for line in lines).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            # A line that is cut must be the last of its file.
            self._own = self._own.with_name(f"{uuid4().hex}.answers")
            raise InvalidInputError(
                f"answers of the full model cannot be kept in {self.folder}: {error.strerror}. Make room, and go on."
            ) from error

    def _read_new_lines(self) -> None:
        """Read the answers that processes have kept meanwhile; a line that is not finished is left for later."""
        for path in self.folder.glob("*.answers"):
            n_read = self._n_read.get(path, 0)
            if path.stat().st_size > n_read:
                with open(path, "rb") as file:
                    file.seek(n_read)
                    data = file.read()
                whole = data[: data.rfind(b"\n") + 1]
                self._n_read[path] = n_read + len(whole)
                answers = [_answer_of(line) for line in whole.decode(errors="replace").split("\n")[:-1]]
                self._known.update(answer for answer in answers if answer is not None)
                n_damaged = sum(answer is None for answer in answers)
                if n_damaged:
                    warnings.warn(
                        f"{path} was changed: {n_damaged:,} of its lines are no answers of the full model any more. "
                        f"It is asked about their rows again.",
                        stacklevel=2,
                    )


def _answer_of(line: str) -> tuple[int, Floats] | None:
    """Key and outputs in a line; None where it was changed. Lines of version 0.3 have no checksum."""
    text, _, checksum = line.rpartition(" #")
    if text and checksum != _checksum(text):
        return None
    try:
        key, *numbers = (text or line).split()
        outputs = list(map(float, numbers))
        # As they were written: a checksum whose mark was changed is no number.
        return (int(key, 16), np.array(outputs)) if list(map(repr, outputs)) == numbers else None
    except ValueError:
        return None


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


@contextmanager
def _signals_deferred() -> Iterator[None]:
    """Let the first SIGTERM or Ctrl-C take effect at the end of the block; the second one does at once."""
    if threading.current_thread() is not threading.main_thread():  # where Python has no handlers
        yield
        return
    came: list[int] = []

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    def note(number: int, _frame: Any) -> None:
        came.append(number)
        restore()

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        restore()
        for number in came:
            signal.raise_signal(number)


def _keys_of(table: Any, numbers: Any) -> Words:
    """A word for the content of each row: of its numbers, and of the text of a data frame."""
    keys = fingerprints(numbers, exact=True)
    if not hasattr(table, "columns"):
        return keys
    from pandas.util import hash_pandas_object

    frame = table if hasattr(table, "iloc") else table.to_pandas()
    texts: Words = hash_pandas_object(frame, index=False, categorize=False).to_numpy(np.uint64)
    return keys ^ texts
