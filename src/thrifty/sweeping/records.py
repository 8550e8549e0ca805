"""What a store keeps of a fitted cell and of f0, as bytes of which none can change unnoticed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats
from thrifty.bundle.container import Contents, pack, unpack
from thrifty.evidence.outcomes import RowOutcomes
from thrifty.exceptions import InvalidInputError

__all__ = ["Answers", "Cell"]


_OUTCOMES = ("g", "stop_cost", "go_cost", "stop_right", "go_right", "full_right")


@dataclass(frozen=True, eq=False)
class Cell:
    """One fitted setting.

    Attributes
    ----------
    settings : dict
        What the grid says about it.
    seconds : float
        How long the fit took.
    outcomes : RowOutcomes
        What it did on the validation rows.
    fitted : bytes
        The fitted estimator as a bundle, without f0.
    key : str
        Equal for equal settings and equal start.
    """

    settings: dict[str, Any]
    seconds: float
    outcomes: RowOutcomes
    fitted: bytes = field(repr=False)
    key: str = field(repr=False)

    def to_bytes(self) -> bytes:
        """The cell as one record."""
        found = {name: getattr(self.outcomes, name) for name in _OUTCOMES}
        arrays = {name: np.asarray(value) for name, value in found.items() if value is not None}
        arrays["features"] = np.asarray(self.outcomes.features, dtype=np.int64)
        arrays["fitted"] = np.frombuffer(self.fitted, dtype=np.uint8)
        threshold = self.outcomes.threshold
        return _pack(
            arrays,
            key=self.key,
            settings=json.dumps(self.settings),
            seconds=self.seconds,
            threshold=None if threshold is None else repr(threshold),
        )

    @classmethod
    def from_bytes(cls, record: bytes, key: str) -> Self:
        """The cell that ``to_bytes`` wrote under this key."""
        facts, arrays = _unpack(record, key)
        try:
            settings, threshold = json.loads(facts["settings"]), facts["threshold"]
            fitted = arrays.pop("fitted").tobytes()
            outcomes = RowOutcomes(
                **{**arrays, "features": tuple(arrays["features"].tolist())},  # type: ignore[arg-type]
                settings=settings,
                threshold=None if threshold is None else float(threshold),
            )
            return cls(settings, float(facts["seconds"]), outcomes, fitted, key)
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(key, error) from error


@dataclass(frozen=True, eq=False)
class Answers:
    """What f0 says, asked once for the whole sweep.

    Attributes
    ----------
    train : ndarray of shape (n_samples,)
        Probabilities of class +1 on the training rows, out of fold wherever f0 was fitted here.
    val : ndarray of shape (n_val,)
        Those of the innermost f0 on the validation rows.
    calibration : tuple of float
        Slope and intercept that make probabilities of decision values.
    chain : bytes
        If f0 is itself a chain of stages, the bundle of that chain without its own f0; else empty.
    """

    train: Floats
    val: Floats
    calibration: tuple[float, float] = (1.0, 0.0)
    chain: bytes = b""

    KEY = "f0"

    def to_bytes(self) -> bytes:
        """The answers as one record."""
        arrays = {
            "train": self.train,
            "val": self.val,
            "calibration": np.asarray(self.calibration),
            "chain": np.frombuffer(self.chain, dtype=np.uint8),
        }
        return _pack(arrays, key=self.KEY)

    @classmethod
    def from_bytes(cls, record: bytes) -> Self:
        """The answers that ``to_bytes`` wrote."""
        _, arrays = _unpack(record, cls.KEY)
        try:
            slope, intercept = arrays["calibration"].tolist()
            return cls(arrays["train"], arrays["val"], (slope, intercept), arrays["chain"].tobytes())
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(cls.KEY, error) from error


def _pack(arrays: Mapping[str, NDArray[Any]], **facts: Any) -> bytes:
    return pack(Contents({**facts, "names": list(arrays)}, list(arrays.values())))


def _unpack(record: bytes, key: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    try:
        contents = unpack(record)
        names = contents.facts["names"]
        if contents.facts["key"] != key or len(names) != len(contents.arrays):
            raise InvalidInputError("it is the record of another cell")
        return contents.facts, dict(zip(names, contents.arrays, strict=True))
    except (InvalidInputError, KeyError, TypeError) as error:
        raise _damaged(key, error) from error


def _damaged(key: str, error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"the record {key!r} of the store is damaged ({error}). Delete the file to start afresh."
    )
