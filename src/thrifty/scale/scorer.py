"""``Scorer``: a saved system as a function of Arrow record batches, which every engine can send to its workers."""

import hashlib
import io
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Words
from thrifty.bundle.container import DEFAULT_MAX_BYTES
from thrifty.bundle.objects import from_bytes
from thrifty.chain.chain import Chain
from thrifty.errors import InvalidInputError
from thrifty.evidence.collect import chain_of
from thrifty.files import read_capped, write_atomically
from thrifty.full.model import FullModel
from thrifty.rows import fingerprints, key_words
from thrifty.tables.frames import listed
from thrifty.tables.reader import Cells
from thrifty.tasks.ranking import RankingTask
from thrifty.threads import limited_threads

__all__ = ["Scorer", "answers_of", "stage_names"]


def answers_of(chain: Chain, cells: Cells) -> dict[str, Any]:
    """Answer, probability (of a label), number of the stage and cost of each row, in columns."""
    reader = chain.reader(cells)
    walk = chain.walk(reader)
    outputs = chain.answer(reader, walk)
    return {
        "answer": chain.task.answers(outputs),
        **({"probability": chain.task.confidence(outputs)} if len(chain.classes) else {}),
        "stage": walk.route,
        "cost": chain.spent(reader, walk),
    }


def stage_names(chain: Chain) -> list[str]:
    """Names of the stages in tables of answers; the last is the full model."""
    return [*map(str, range(chain.n_stages)), "full"]


class Scorer:
    """A saved system that answers Arrow record batches.

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
        Folder that keeps every answer of the full model, so that a part that is scored again pays for none twice.
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
        embed: bool = False,
        public_key: str | os.PathLike[str] | None = None,
    ) -> None:
        if unseen not in ("refuse", "missing"):
            raise InvalidInputError(f"unseen must be 'refuse' or 'missing'; got {unseen!r}.")
        data = read_capped(path, DEFAULT_MAX_BYTES)
        self.path = str(Path(path).absolute())
        self.digest = hashlib.sha256(data).hexdigest()
        self.at = dict(at or {})
        self.row_key = row_key
        self.unseen = unseen
        self.public_key = None if public_key is None else str(Path(public_key).absolute())
        self.full = full
        self.full_cache = None if full_cache is None else str(Path(full_cache).absolute())
        self._data = data if embed else None

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value for name, value in vars(self).items() if name not in ("_loaded", "columns", "copied")
        }

    @property
    def system(self) -> Any:
        """The system at its operating point."""
        return self._loaded[0]

    @property
    def chain(self) -> Chain:
        """Chain of the system."""
        return self._loaded[1]

    @cached_property
    def _loaded(self) -> tuple[Any, Chain]:
        """System and chain, loaded once per process."""
        key = (self.digest, repr(sorted(self.at.items())), self.public_key, self.full_cache)
        with _loading:
            if key not in _systems:
                _systems[key] = self._load()
            return _systems[key]

    def _load(self) -> tuple[Any, Chain]:
        data = self._data if self._data is not None else read_capped(self.path, DEFAULT_MAX_BYTES)
        if hashlib.sha256(data).hexdigest() != self.digest:
            raise InvalidInputError(
                f"{self.path} has changed since the scorer was made; its SHA-256 was {self.digest[:12]}... Make "
                f"another scorer, and score all rows with one file."
            )
        system = from_bytes(data, full=self.full, public_key=self.public_key)
        system = system.at(**self.at) if self.at else system
        chain = chain_of(system).ready()
        if self.full_cache is not None:
            chain = chain.with_innermost(CachedFull(chain.innermost, self.full_cache))
        return system, chain

    @cached_property
    def columns(self) -> list[str]:
        """Columns that some route reads, the row key and the query: no other column needs to be loaded."""
        chain = self.chain
        names = chain.schema.names
        used = np.ones(len(names), bool) if chain.price_list.by_row else chain.bought_by_place.any(axis=0)
        return [*(names[place] for place in np.flatnonzero(used)), *self.copied]

    @cached_property
    def copied(self) -> list[str]:
        """Columns that the answers copy from the rows: the row key, and the query of a ranking."""
        key = self.row_key or getattr(self.system, "row_key_name_", None)
        query = (
            getattr(self.system, "query_name_", None) if isinstance(self.chain.task, RankingTask) else None
        )
        return list(dict.fromkeys(name for name in (key, query) if name))

    def schema(self, given: Any) -> Any:
        """Arrow schema of the answers to rows of a given schema."""
        import pyarrow as pa

        lacking = [name for name in self.copied if name not in given.names]
        if lacking:
            raise InvalidInputError(
                f"the table lacks column {lacking[0]!r}, which holds the keys of its rows. Its columns are "
                f"{listed(given.names)}."
            )
        labels = pa.array(self.chain.classes).type if len(self.chain.classes) else pa.float64()
        answers = {"answer": labels, "probability": pa.float64(), "stage": pa.string(), "cost": pa.float64()}
        if not len(self.chain.classes):
            del answers["probability"]
        return pa.schema(
            [
                *(given.field(name) for name in self.copied),
                *(pa.field(name, kind) for name, kind in answers.items()),
            ]
        )

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
            Row key, answer, probability (of a label), stage and cost of each row, in the order of the batch.
        """
        import pyarrow as pa

        schema, n_rows = self.schema(batch.schema), batch.num_rows
        if not n_rows:
            return pa.RecordBatch.from_pylist([], schema=schema)
        frame = pa.Table.from_batches([batch]).select(
            [name for name in self.columns if name in batch.schema.names]
        )
        cells = self.chain.schema.cells(
            frame.to_pandas(ignore_metadata=True),
            unseen_is_missing=self.unseen == "missing",
            row_keys=self._keys(batch, first_row),
        )
        cells = replace(cells, row_numbers=cells.row_numbers + first_row)
        # Engines run a task for each core.
        with limited_threads(openmp=1, blas=1):
            answers = answers_of(self.chain, cells)
        stage = pa.DictionaryArray.from_arrays(pa.array(answers["stage"]), stage_names(self.chain))
        answers["stage"] = stage.cast(pa.string())
        columns = [*(batch.column(name) for name in self.copied), *answers.values()]
        return pa.RecordBatch.from_arrays(
            [
                one if isinstance(one, pa.Array) else pa.array(one, field.type)
                for one, field in zip(columns, schema, strict=True)
            ],
            schema=schema,
        )

    def _keys(self, batch: Any, first_row: int) -> Words:
        key = self.row_key or getattr(self.system, "row_key_name_", None)
        if not key:
            return np.arange(first_row, first_row + batch.num_rows, dtype=np.uint64)
        column = batch.column(key)
        is_whole = not column.null_count and str(column.type).startswith(("int", "uint"))
        return key_words(column.to_numpy() if is_whole else column.to_pylist(), f"column {key!r}")


_systems: dict[Any, tuple[Any, Chain]] = {}
_loading = Lock()


class CachedFull:
    """A full model that is asked about the same content once, however often a part is scored again.

    Answers are kept by the content of the columns that the model reads. They reach the disk before they are used, a
    file for each question, so that a process that is killed loses at most the question under way.

    Parameters
    ----------
    full : FullModel
        The model that is paid for.
    folder : str
        Folder of the answers; several processes and machines may share it.
    batch_size : int, default=1000
        Most rows in one question.
    """

    def __init__(self, full: FullModel, folder: str, batch_size: int = 1000) -> None:
        self.full = full
        self.folder = Path(folder)
        self.batch_size = batch_size
        self.folder.mkdir(parents=True, exist_ok=True)
        self._read: set[str] = set()
        self._known: dict[int, Floats] = {}

    def outputs(self, table: Any, numbers: Any) -> Floats:
        """Outputs of the rows: those in the folder, and those that the model is asked for."""
        keys = _keys_of(table, numbers)
        words = keys.tolist()
        if any(word not in self._known for word in words):
            self._read_new_files()
        new = {word: place for place, word in enumerate(words) if word not in self._known}
        places = np.array(list(new.values()), dtype=np.intp)
        for first in range(0, len(places), self.batch_size):
            rows = places[first : first + self.batch_size]
            part = table.iloc[rows] if hasattr(table, "iloc") else table[rows]
            self._keep(keys[rows], np.asarray(self.full.outputs(part, numbers[rows]), dtype=np.float64))
        return np.array([self._known[word] for word in words])

    def _keep(self, keys: Words, outputs: Floats) -> None:
        buffer = io.BytesIO()
        np.savez(buffer, keys=keys, outputs=outputs)
        name = f"{hashlib.sha256(keys.tobytes()).hexdigest()[:32]}.npz"
        write_atomically(self.folder / name, buffer.getvalue())
        self._read.add(name)
        self._known.update(zip(keys.tolist(), outputs, strict=True))

    def _read_new_files(self) -> None:
        """Read the answers that other processes have kept."""
        for path in sorted(self.folder.glob("*.npz")):
            if path.name not in self._read:
                with np.load(path, allow_pickle=False) as kept:
                    self._known.update(zip(kept["keys"].tolist(), kept["outputs"], strict=True))
                self._read.add(path.name)


def _keys_of(table: Any, numbers: Any) -> Words:
    """A word for the content of each row: of its numbers, and of the text of a data frame."""
    keys = fingerprints(numbers, exact=True)
    if not hasattr(table, "columns"):
        return keys
    from pandas.util import hash_pandas_object

    frame = table if hasattr(table, "iloc") else table.to_pandas()
    texts: Words = hash_pandas_object(frame, index=False, categorize=False).to_numpy(np.uint64)
    return keys ^ texts
