"""``StockedFull``: a full model whose every answer is kept in a folder, so that no question is paid for twice."""

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Words
from thrifty.files import write_atomically
from thrifty.full.model import FullModel
from thrifty.rows import fingerprints


class StockedFull:
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
        """Outputs of the rows: those in stock, and those that the model is asked for."""
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
