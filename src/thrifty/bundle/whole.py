"""The four functions: an object to bytes or into a file, and back."""

from collections.abc import Iterable, Sequence
from typing import Any

import thrifty
from thrifty.bundle.archive import type_names
from thrifty.bundle.container import DEFAULT_MAX_BYTES, Contents, pack, unpack
from thrifty.bundle.context import FullMode, Reading, Writing
from thrifty.bundle.fields import Fields, Packer, Unpacker
from thrifty.bundle.objects import Kind, pack_object, unpack_object
from thrifty.bundle.pruned import PRUNED_FOREST
from thrifty.exceptions import InvalidInputError
from thrifty.files import AnyPath, read_capped, write_atomically

__all__ = ["from_bytes", "load", "save", "to_bytes"]

_MODES = ("inside", "reference", "absent")


def save(
    thing: Any,
    path: AnyPath,
    *,
    full: FullMode = "inside",
    evidence: bool = True,
    kinds: Sequence[Kind] = (),
) -> None:
    """Write a fitted estimator or a chain into one file, without pickle.

    Parameters
    ----------
    thing : fitted estimator of thrifty, Chain, or what a `kind` is about
        What to save. Constructor arguments and learned attributes that are plain data are kept; models among the
        arguments are not, beyond their place in the chain.
    path : path
        The file; an old one is replaced in one step, or left as it is if anything fails.
    full : {"inside", "reference", "absent"}, default="inside"
        What becomes of the full model (f0): written into the file, recognised by its fingerprint and given again
        when loading, or left out.
    evidence : bool, default=True
        Whether to keep the rows that operating points were judged on: gate scores, costs and who was right, but no
        features. Without them ``frontier_`` is not to be had from the loaded object.
    kinds : sequence of Kind
        Further kinds of objects that may be saved, as layers above bring them.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from thrifty import DynaModLinClassifier, load, save
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> f0 = make_pipeline(StandardScaler(), LogisticRegression())
    >>> clf = DynaModLinClassifier(f0, gamma=0.02, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "cancer.thrifty"
    ...     save(clf, path)
    ...     again = load(path)
    >>> bool((again.predict(X) == clf.predict(X)).all())
    True
    """
    write_atomically(path, to_bytes(thing, full=full, evidence=evidence, kinds=kinds))


def load(
    path: AnyPath,
    *,
    full: Any = None,
    trusted: Iterable[str | type] = (),
    max_bytes: int = DEFAULT_MAX_BYTES,
    kinds: Sequence[Kind] = (),
) -> Any:
    """Read what ``save`` or `thrifty fit` wrote: an object that answers exactly as the one that was saved.

    Parameters
    ----------
    path : path
        The file.
    full : fitted classifier, FrozenEstimator, callable or Chain, optional
        The full model (f0). Needed, and checked against its fingerprint, where the file refers to it; otherwise it
        takes the place of whatever full model the file holds.
    trusted : names of types, or types, default=()
        What a model in the file may be made of, besides what skops trusts by itself.
    max_bytes : int, default=2**30
        Files that are larger, or that hold a model that would unpack to more, are refused.
    kinds : sequence of Kind
        Further kinds of objects that the file may hold.
    """
    data = read_capped(path, max_bytes)
    return from_bytes(data, full=full, trusted=trusted, max_bytes=max_bytes, kinds=kinds)


def to_bytes(
    thing: Any, *, full: FullMode = "inside", evidence: bool = True, kinds: Sequence[Kind] = ()
) -> bytes:
    """What ``save`` would write into a file."""
    if full not in _MODES:
        raise InvalidInputError(f"full must be one of {', '.join(map(repr, _MODES))}; got {full!r}.")
    packer = Packer()
    writing = Writing(packer, full, pack_object, evidence=evidence)
    kind = next((one for one in (PRUNED_FOREST, *kinds) if type(thing) is one.holds), None)
    packed = pack_object(thing, writing) if kind is None else {"kind": kind.name, **kind.pack(thing, writing)}
    return pack(Contents({"thrifty": thrifty.__version__, **packed}, packer.arrays))


def from_bytes(
    data: bytes,
    *,
    full: Any = None,
    trusted: Iterable[str | type] = (),
    max_bytes: int = DEFAULT_MAX_BYTES,
    kinds: Sequence[Kind] = (),
) -> Any:
    """What ``load`` would read from a file of these bytes."""
    reading = Reading(unpack_object, full, type_names(trusted), max_bytes)
    try:
        contents = unpack(data, max_bytes=max_bytes)
        fields = Fields(contents.facts, Unpacker(contents.arrays), "the content")
        name = fields.raw("kind")
        kind = next((one for one in (PRUNED_FOREST, *kinds) if one.name == name), None)
        return unpack_object(fields, reading) if kind is None else kind.unpack(fields, reading)
    except RecursionError:
        raise InvalidInputError("the bundle is nested too deep to be one that `save` wrote.") from None
