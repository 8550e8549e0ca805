"""Identity of rows: fingerprints, folds and random numbers that are fixed functions of a row.

Drawn from a generator, chance would depend on the order, the number and the batch of rows. Here it depends on

* a *fingerprint of the content* of a row, for folds and subsamples of training rows: equal rows are treated alike, so a
  row of weight 2 is that row given twice, and no duplicate leaks from a fold into the model that predicts it;
* the *key* of a row, where two operating points are mixed: the same key takes the same route in one table, in
  partitions, alone, and through every entry point.

Content is compared in single precision (24 bits, seven digits): a table in float32, or one whose numbers another
processor computed with another last bit, falls into the same folds.
"""

import math
import re
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from thrifty.arrays import Bools, Ints, Words
from thrifty.errors import InvalidInputError

# Odd multipliers of the splitmix64 generator (Steele, Lea and Flood, 2014): they spread one changed
# input bit over all 64 output bits.
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_27, _30, _31 = np.uint64(27), np.uint64(30), np.uint64(31)

BLOCK = 16_384
"""Cells hashed in one call: enough to amortise the call, few enough to stay in the cache."""


def fingerprints(X: object, seed: int = 0, *, exact: bool = False) -> Words:
    """A 64-bit fingerprint per row of a dense or CSR table; equal rows and seeds give equal ones.

    Numbers are equal that agree in single precision, unless ``exact`` is true: then every bit counts.
    """
    return mix(_content(X, exact=exact) + _mixed(seed, seed + 1)[0])


def content_keys(X: object, strata: Ints) -> Words:
    """Two fingerprints per row, shape (n_rows, 2): of what it holds, and of that together with its class."""
    return labelled_keys(fingerprints(X), strata.astype(np.uint64))


def labelled_keys(held: Words, labels: Words) -> Words:
    """Two fingerprints per row, shape (n_rows, 2): of what it holds, as given, and of that together with its label."""
    return np.column_stack([held, mix(held ^ mix(labels + np.uint64(1)))])


def query_keys(keys: Words, query: Ints | None) -> Words:
    """Fingerprints of queries from those of their rows, in any order; of rows if there are no queries."""
    if query is None:
        return keys
    number = np.unique(query, return_inverse=True)[1]
    summed = np.zeros((int(number.max()) + 1, keys.shape[1]), dtype=np.uint64)
    np.add.at(summed, number, keys)
    return summed


def _content(X: object, *, exact: bool) -> Words:
    """A word per row, before any seed is mixed in."""
    words = _words if exact else _single_words
    # A sum over the cells that are not zero, so that dense, sparse and explicitly stored zeros agree.
    content = np.zeros(X.shape[0], dtype=np.uint64)  # type: ignore[attr-defined]  # an array or a sparse matrix
    if sparse.issparse(X):
        coo = sparse.coo_array(X)
        columns = mix(coo.col.astype(np.uint64) + np.uint64(1))
        np.add.at(content, coo.row, _cells(coo.data, columns, words))
        return content
    table = np.asarray(X)
    columns = _mixed(1, table.shape[1] + 1)
    step = max(BLOCK // max(len(columns), 1), 1)
    for begin in range(0, len(table), step):
        block = slice(begin, begin + step)
        content[block] = _cells(table[block], columns, words).sum(axis=1, dtype=np.uint64)
    return content


def _cells(values: NDArray[np.float64], columns: Words, words: Callable[[Any], Words]) -> Words:
    """A word per cell that depends on its value and on the word of its column; nothing for a zero."""
    mixed = mix(words(values) ^ columns)
    mixed[values == 0] = 0
    return mixed


def uniforms(X: object, seed: int = 0) -> NDArray[np.float64]:
    """One number in (0, 1) per row, uniform over rows and fixed by the row's content and the seed."""
    return _as_uniform(fingerprints(X, seed))


class Subsampler:
    """Random subsamples of the same rows under many seeds: ``uniforms(X, seed) < share`` with exact content, faster.

    The share is compared with the 64-bit words before they become floats. Seeds are usually asked for one after the
    other: where rows are few, the next seeds are drawn in the same call.
    """

    def __init__(self, X: object, share: float) -> None:
        self._content = _content(X, exact=True)
        self._end = np.uint64(math.ceil(share * 2.0**53 - 0.5) << 11)
        self._n_together = max(BLOCK // max(len(self._content), 1), 1)
        self._first, self._drawn = 0, np.empty((0, len(self._content)), dtype=bool)

    def __call__(self, seed: int) -> Bools:
        """Mask of the rows that are drawn."""
        if not self._first <= seed < self._first + len(self._drawn):
            seeds = _mixed(seed, seed + self._n_together)
            self._first, self._drawn = seed, mix(self._content + seeds[:, None]) < self._end
        return self._drawn[seed - self._first]

    def masks(self, first: int, n_seeds: int) -> Bools:
        """Masks of the rows drawn under each of ``n_seeds`` consecutive seeds, shape (n_seeds, n_rows)."""
        return np.stack([self(seed) for seed in range(first, first + n_seeds)])


def content_folds(X: object, strata: NDArray[Any], n_folds: int, seed: int = 0) -> NDArray[np.intp]:
    """Fold of each row: stratified, equal rows together, independent of the order and number of rows.

    Distinct rows of each stratum are ordered by fingerprint and assigned to the folds in turn.
    """
    if n_folds < 2:
        raise InvalidInputError(f"cv must be at least 2 folds; got {n_folds!r}.")
    return _assign_folds(fingerprints(X, seed), strata, n_folds)


def _assign_folds(keys: Words, strata: NDArray[Any], n_folds: int) -> NDArray[np.intp]:
    """Fold of each key: distinct ones of each stratum by their order, in turn."""
    fold = np.zeros(len(keys), dtype=np.intp)
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        _, rank = np.unique(keys[members], return_inverse=True)
        fold[members] = rank % n_folds
    return fold


def query_folds(X: object, query: Ints, strata: Ints, n_folds: int, seed: int = 0) -> Ints:
    """Fold of each row: rows of one query together, and equal queries together, in any order of their rows.

    Each fold has its share of the queries in which a row of the last stratum is, where there are enough of both kinds.
    """
    number = np.unique(query, return_inverse=True)[1]
    held, kind = np.zeros(int(number.max()) + 1, dtype=np.uint64), np.zeros(int(number.max()) + 1, np.intp)
    np.add.at(held, number, fingerprints(X, seed))
    np.maximum.at(kind, number, strata)
    n_distinct = len(np.unique(held))
    if min(len(np.unique(held[kind == each])) for each in np.unique(kind)) < n_folds:
        kind = np.zeros_like(kind)
    if n_distinct < 2:
        return np.zeros(len(number), dtype=np.intp)
    return _assign_folds(held, kind, min(n_folds, n_distinct))[number]


def key_words(keys: Any, name: str = "row_key") -> Words:
    """A 64-bit word for each row key: a whole number is itself, any other key a hash of its text.

    Text that writes a whole number is that number, so that a key is the same in a file, a request and a data frame.

    Parameters
    ----------
    keys : array-like of shape (n_rows,)
        Whole numbers, texts, dates, or tuples of these.
    name : str
        What to call the keys in an error.
    """
    keys = keys if isinstance(keys, list | tuple) else np.asarray(keys)
    if isinstance(keys, np.ndarray):
        if keys.ndim != 1:
            raise InvalidInputError(f"{name} must have one key for each row; got shape {keys.shape}.")
        if keys.dtype.kind in "iub":
            return keys.astype(np.uint64)
        keys = (keys.astype(str) if keys.dtype.kind in "mM" else keys).tolist()
    return np.array([_key_word(key, name, place) for place, key in enumerate(keys)], dtype=np.uint64)


def _key_word(key: Any, name: str, place: int) -> int:
    if key is None or type(key).__name__ in ("NAType", "NaTType") or key != key:
        raise InvalidInputError(
            f"{name} is missing in row {place}. Every row needs a key; leave {name} out to use the number of the row."
        )
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    text = "\x1f".join(map(str, key)) if isinstance(key, tuple) else str(key)
    if isinstance(key, Integral) or re.fullmatch("0|-?[1-9][0-9]{0,19}", text):
        number = int(key)
        if -(2**63) <= number < 2**64:
            return number % 2**64
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def key_chance(keys: Words, seed: int = 0) -> NDArray[np.float64]:
    """One number in (0, 1) per row key, uniform over keys and fixed by the key and the seed."""
    return _as_uniform(mix(mix(keys + np.uint64(1)) + _mixed(seed, seed + 1)[0]))


def _as_uniform(words: Words) -> NDArray[np.float64]:
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53


def _single_words(values: NDArray[np.float64]) -> Words:
    """Words of numbers rounded to the 24 bits of single precision, over the range of double precision."""
    words = _words(values)
    words += np.uint64(1 << 28)
    words &= np.uint64(~((1 << 29) - 1) & (2**64 - 1))
    return words


def _words(values: NDArray[np.float64]) -> Words:
    # Adding 0.0 turns -0.0 into 0.0: numbers that compare equal must hash equal. Processors differ in the sign of NaN.
    plain = np.ascontiguousarray(values, dtype=np.float64) + 0.0
    plain[np.isnan(plain)] = np.nan
    return plain.view(np.uint64)


@lru_cache(maxsize=8)
def _mixed(first: int, end: int) -> Words:
    """Words of the numbers from ``first`` to before ``end``, which are the same from call to call."""
    return mix(np.arange(first, end, dtype=np.uint64))


def mix(word: Words) -> Words:
    """Scramble the 64 bits of each number (the finaliser of splitmix64)."""
    word = word ^ (word >> _30)
    word *= _FIRST
    word ^= word >> _27
    word *= _SECOND
    word ^= word >> _31
    return word
