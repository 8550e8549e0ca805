"""Models of other libraries as skops archives: looked at before anything is built.

What a skops archive describes, as plain data: the names of classes, their attributes, and arrays.

Nothing is imported and nothing is built, so whoever reads a description decides what becomes of it. A member that is
neither a collection, a number, text nor an array stays a name.

Foreign models that hold together: the checks that their compiled code leaves out.

skops vouches for the types a model is made of, not for the numbers in it. Compiled code of scikit-learn that walks
trees or sums over support vectors takes indices and lengths on trust, and reads foreign memory, or never ends, where
they are wrong. So those numbers are checked here before the model is asked anything.

Trees that are known by name never come here: they are arrays of our own.

Foreign models as bytes: skops writes and reads them, and what it is given to read is checked first.

A skops file is a zip archive of arrays and a description. Before anything of it is unpacked: names that
stay inside, no kind of member but those that skops writes, no archive in an archive in an archive, and a
total size that its own directory admits, the caller allows and the length of the archive accounts for. The description
is measured before it is parsed. Trees that we know become arrays of our own; skops builds only the rest.
"""

import io
import json
import math
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.svm import SVR, NuSVR
from sklearn.svm._base import BaseLibSVM
from sklearn.tree._tree import Tree

from thrifty.arrays import Bools
from thrifty.bundle.container import parsed_size
from thrifty.errors import InvalidInputError
from thrifty.full.trees import Described, tree_classifier_of

__all__ = [
    "Description",
    "UntrustedTypesError",
    "check_archive",
    "check_sound",
    "dump_model",
    "load_model",
    "type_names",
]

_COLLECTIONS = {"ListNode": list, "TupleNode": tuple, "SetNode": list}
_OBJECTS = ("ObjectNode", "TreeNode")
_MOST_LEVELS = 60
_ROOM = 24 << 20
_NODE = 400  # bytes that skops takes for everything it builds, besides what describes it


class Description:
    """An archive of skops, opened for reading.

    Parameters
    ----------
    data : bytes
        The archive, whose members were checked. A description that would take more memory than the length of the
        archive accounts for is refused before it is parsed.
    """

    def __init__(self, data: bytes) -> None:
        self._archive = zipfile.ZipFile(io.BytesIO(data))
        text = self._archive.read("schema.json")
        size = parsed_size(text) + _NODE * text.count(b"__loader__")
        if size > 4 * len(data) + _ROOM:
            raise InvalidInputError(
                f"a model in the bundle has a description that would take up to {size} bytes of memory, and an archive "
                f"of {len(data)} bytes may take {4 * len(data) + _ROOM} for it. The file was not written by `save`."
            )
        self._schema = json.loads(text)
        sizes = {member.filename: member.file_size for member in self._archive.infolist()}
        # A member is unpacked again wherever it is referred to.
        self.n_bytes = sum(sizes.get(str(node.get("file")), 0) for node in self._nodes())
        if self.n_bytes > 5 * len(data) + _ROOM:
            raise InvalidInputError(
                f"a model in the bundle refers to {self.n_bytes} bytes of arrays, more than an archive of {len(data)} "
                f"bytes may. The file was not written by `save`."
            )

    def model(self) -> Any:
        """The object that the archive holds."""
        return self._plain(self._schema, 0)

    def check_trees(self) -> None:
        """Refuse scikit-learn's trees of shapes that make their compiled code fail while it builds them."""
        for node in self._nodes():
            if node.get("__loader__") != "TreeNode":
                continue
            tree, reduced = self._plain(node, 0), node.get("__reduce__")
            arguments = self._plain(reduced.get("args"), 0) if isinstance(reduced, dict) else None
            if not _is_whole(tree.attributes, arguments):
                raise InvalidInputError(
                    "a Tree in the bundle has nodes, values or numbers of classes in shapes that do not agree. The "
                    "model was damaged or made to do harm."
                )

    def _nodes(self) -> Iterator[dict[str, Any]]:
        waiting = [self._schema]
        while waiting:
            node = waiting.pop()
            if isinstance(node, dict):
                yield node
                waiting += node.values()
            elif isinstance(node, list):
                waiting += node

    def _plain(self, node: Any, level: int) -> Any:
        if not isinstance(node, dict) or level > _MOST_LEVELS:
            raise InvalidInputError("a model in the bundle is described in a form that skops does not write.")
        loader, content = node.get("__loader__"), node.get("content")
        if loader == "JsonNode":
            return json.loads(content) if isinstance(content, str) else None
        if loader in _COLLECTIONS and isinstance(content, list):
            return _COLLECTIONS[loader](self._plain(item, level + 1) for item in content)
        if loader == "DictNode" and isinstance(content, dict):
            return {key: self._plain(item, level + 1) for key, item in content.items()}
        if loader == "NdArrayNode":
            return self._array(node, level)
        if loader in _OBJECTS and isinstance(content, dict):
            attributes = self._plain(content, level + 1)
            return Described(_class_of(node), attributes if isinstance(attributes, dict) else {})
        return Described(_class_of(node), {})

    def _array(self, node: dict[str, Any], level: int) -> Any:
        if node.get("type") == "numpy":
            raw = self._archive.read(str(node.get("file")))
            array = np.load(io.BytesIO(raw), allow_pickle=False)
            return array if _class_of(node) == "numpy.ndarray" or array.ndim else array[()]
        items = node.get("content")
        if not isinstance(items, list):
            raise InvalidInputError("a model in the bundle holds an array without content.")
        array = np.empty(len(items), dtype=object)
        for place, item in enumerate(items):
            array[place] = self._plain(item, level + 1)
        return array


def _class_of(node: dict[str, Any]) -> str:
    return f"{node.get('__module__')}.{node.get('__class__')}"


def _is_whole(tree: Mapping[str, Any], arguments: Any) -> bool:
    nodes, values = tree.get("nodes"), tree.get("values")
    if not isinstance(nodes, np.ndarray) or not isinstance(values, np.ndarray):
        return False
    if nodes.ndim != 1 or values.ndim != 3 or len(nodes) != len(values) or not isinstance(arguments, tuple):
        return False
    n_features, n_classes, n_outputs = arguments if len(arguments) == 3 else (None, None, None)
    return (
        type(n_features) is int
        and isinstance(n_classes, np.ndarray)
        and n_classes.dtype.kind == "i"
        and n_classes.shape == (n_outputs,) == values.shape[1:2]
        and n_classes.min(initial=values.shape[2]) >= 1
        and n_classes.max(initial=0) == values.shape[2]
    )


_LEAF = -1


def check_sound(model: Any) -> None:
    """Refuse a model whose support vectors, neighbours or trees point outside themselves."""
    for part, owner in _with_owners(model):
        try:
            problem = _problem(part, owner)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            problem = f"lacks what it needs ({type(error).__name__}: {str(error)[:80]})"
        if problem:
            raise InvalidInputError(
                f"a {type(part).__name__} in the bundle {problem}. The model was damaged or made to do harm."
            )


def _problem(part: Any, owner: Any) -> str | None:
    if isinstance(part, BaseLibSVM):
        return _svm_problem(part)
    if isinstance(part, Tree):
        return _tree_problem(part, owner)
    if isinstance(part, TreePredictor):
        return _predictor_problem(part, owner)
    if "_fit_X" in getattr(part, "__dict__", {}):
        return _neighbours_problem(part)
    return None


def _with_owners(model: Any) -> Iterator[tuple[Any, Any]]:
    """Everything a model is made of, each with the estimator that holds it; shared parts once."""
    seen: set[int] = set()
    waiting: list[tuple[Any, Any]] = [(model, None)]
    while waiting:
        part, owner = waiting.pop()
        if id(part) in seen or isinstance(part, str | bytes | int | float | type(None)):
            continue
        seen.add(id(part))
        yield part, owner
        holder = part if isinstance(part, BaseEstimator) else owner
        waiting += [(inner, holder) for inner in _inner(part)]


def _inner(part: Any) -> list[Any]:
    if isinstance(part, dict):
        return list(part.values())
    if isinstance(part, list | tuple | set):
        return list(part)
    if isinstance(part, np.ndarray):
        return list(part.flat) if part.dtype == object else []
    return list(getattr(part, "__dict__", {}).values())


def _svm_problem(svm: BaseLibSVM) -> str | None:
    if svm.kernel == "precomputed":
        return "has a precomputed kernel, which indexes tables of its own"
    counts, vectors = np.asarray(svm._n_support), svm.support_vectors_
    n_vectors, width = vectors.shape
    if sparse.issparse(vectors):
        # Raises where an index points outside.
        vectors.check_format(full_check=True)
        svm._dual_coef_.check_format(full_check=True)
    elif vectors.dtype != np.float64:
        return f"has support vectors of type {vectors.dtype}"
    if bool(svm._sparse) != sparse.issparse(vectors):
        return "does not know whether its support vectors are sparse"
    if "_impl" in vars(svm):
        return "is of another kind than its class says"
    if isinstance(svm, SVR | NuSVR):
        # The compiled code counts the vectors of a regressor twice, as if it had two classes.
        right_counts = np.array_equal(counts, [n_vectors, n_vectors])
    else:
        right_counts = len(counts) == len(svm.classes_) >= 2 and counts.sum(dtype=np.int64) == n_vectors
    n_pairs = len(counts) * (len(counts) - 1) // 2
    agree = (
        counts.dtype == np.int32
        and right_counts
        and np.all(counts >= 0)
        and n_vectors == len(svm.support_)
        and svm._dual_coef_.shape == (len(counts) - 1, n_vectors)
        and svm._intercept_.shape == (n_pairs,)
        and len(svm._probA) == len(svm._probB) in (0, n_pairs)
        and width == svm.n_features_in_ == svm.shape_fit_[1]
    )
    return None if agree else "has support vectors, weights and counts that do not agree"


def _neighbours_problem(model: Any) -> str | None:
    """Distances are computed over as many columns as a table has, and votes are counted by the number of a class."""
    known = vars(model)
    rows, labels = known["_fit_X"], known.get("_y")
    if sparse.issparse(rows):
        # Raises where an index points outside.
        rows.check_format(full_check=True)
    elif rows.dtype not in (np.float32, np.float64):
        return f"has rows of type {rows.dtype}"
    if rows.shape != (known["n_samples_fit_"], known["n_features_in_"]):
        return f"has rows of shape {rows.shape} for {known['n_features_in_']} columns"
    if "classes_" not in known or labels is None:
        return None
    is_class = labels.shape == rows.shape[:1] and labels.dtype.kind == "i" and len(labels) > 0
    if not is_class or labels.min() < 0 or labels.max() >= len(known["classes_"]):
        return "has votes for classes that are not there"
    return None


def _tree_problem(tree: Tree, owner: Any) -> str | None:
    n_features = getattr(owner, "n_features_in_", tree.n_features)
    if tree.n_features != n_features:
        return f"reads {tree.n_features} columns where its model has {n_features}"
    if len(tree.value) != tree.node_count or tree.node_count < 1:
        return "has fewer values than nodes"
    left, right = tree.children_left, tree.children_right
    is_leaf = left == _LEAF
    problem = _nodes_problem(is_leaf, left, right, tree.feature, n_features)
    if problem is None and _is_deeper(is_leaf, left, right, tree.max_depth):
        # Paths through the tree are written into memory for so many nodes.
        return f"is deeper than the {tree.max_depth} levels that it claims"
    return problem


def _is_deeper(is_leaf: Bools, left: NDArray[Any], right: NDArray[Any], claimed: int) -> bool:
    level = np.zeros(1, dtype=np.intp)
    for _ in range(min(max(claimed, 0), len(is_leaf))):
        inner = level[~is_leaf[level]]
        level = np.unique(np.concatenate([left[inner], right[inner]]))
        if not len(level):
            return False
    return bool(np.any(~is_leaf[level]))


def _predictor_problem(predictor: TreePredictor, owner: Any) -> str | None:
    nodes = predictor.nodes
    n_features = getattr(owner, "n_features_in_", None)
    if n_features is None or nodes.ndim != 1 or not len(nodes):
        return "has no nodes or no model around it"
    inner = nodes[nodes["is_leaf"] == 0]
    categorical = inner["is_categorical"] != 0
    if np.any(inner["bitset_idx"][categorical] >= len(predictor.raw_left_cat_bitsets)):
        return "points outside its sets of categories"
    return _nodes_problem(
        nodes["is_leaf"] != 0,
        nodes["left"].astype(np.int64),
        nodes["right"].astype(np.int64),
        nodes["feature_idx"],
        n_features,
    )


def _nodes_problem(
    is_leaf: Bools,
    left: NDArray[Any],
    right: NDArray[Any],
    feature: NDArray[Any],
    n_features: int,
) -> str | None:
    own = np.arange(len(is_leaf))[~is_leaf]
    for child in (left[~is_leaf], right[~is_leaf]):
        # A child after its parent rules out that a row goes round in circles.
        if np.any((child <= own) | (child >= len(is_leaf))):
            return "has a node whose child does not come after it"
    if np.any((feature[~is_leaf] < 0) | (feature[~is_leaf] >= n_features)):
        return f"looks at a column outside 0 .. {n_features - 1}"
    return None


_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}\.(npy|npz|bin|json)")
_ENCRYPTED = 0x1
_KNOWN_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ROOM_TO_UNPACK, _ROOM_TO_BUILD = 24 << 20, 12 << 20


class UntrustedTypesError(InvalidInputError):
    """A model is made of types that nobody said were trusted; ``types`` are their names."""

    def __init__(self, message: str, types: Iterable[str]) -> None:
        super().__init__(message)
        self.types = tuple(types)


def dump_model(model: Any) -> NDArray[np.uint8]:
    """A fitted model as the bytes of a skops file that ``load_model`` has room for."""
    import skops.io

    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        try:
            # The first level of compression makes a model five times smaller; the next ones cost more than they save.
            data = skops.io.dumps(model, compression=method, compresslevel=1)
        except Exception as error:  # whatever a foreign model raises while it is taken apart
            raise InvalidInputError(
                f"skops cannot write the {type(model).__name__}: {str(error)[:200]} "
                f"Keep it elsewhere and save with full='reference' or full='absent'."
            ) from error
        if _has_room(data):
            return np.frombuffer(data, np.uint8)
    raise InvalidInputError(
        f"the {type(model).__name__} is made of so many parts that a file of it would take more memory than its length "
        f"accounts for. Keep it elsewhere and save with full='reference' or full='absent'."
    )


def load_model(data: bytes, *, trusted: Iterable[str] = (), max_bytes: int) -> Any:
    """The model in a skops file, if it is made of trusted types only and holds together.

    Trees that we know come back as a ``TreeClassifier``, and need no trust.
    """
    check_archive(data, max_bytes=max_bytes)
    try:
        description = Description(data)
        known = tree_classifier_of(description.model())
        if known is not None:
            return known
        description.check_trees()
        if description.n_bytes > _room_to_build(data):
            raise _bad_archive("would take more memory than its length accounts for")
    except InvalidInputError:
        raise
    except Exception as error:  # a damaged archive may fail in any way, nested too deep included
        raise _unreadable(error) from error
    return _built(data, set(trusted))


def _built(data: bytes, trusted: set[str]) -> Any:
    """What skops makes of an archive whose members and description were checked."""
    import skops.io
    from skops.io.exceptions import UntrustedTypesFoundException

    try:
        model = skops.io.loads(data, trusted=sorted(trusted))
    except UntrustedTypesFoundException:
        unknown = sorted(set(skops.io.get_untrusted_types(data=data)) - trusted)
        raise UntrustedTypesError(
            f"a model in the bundle is made of types that are not trusted by themselves: {', '.join(unknown)}. If you "
            f"know where the file comes from, load it with trusted={unknown!r}, or give the full model with full=.",
            unknown,
        ) from None
    except Exception as error:  # a damaged archive may fail in any way, nested too deep included
        raise _unreadable(error) from error
    check_sound(model)
    return model


def _unreadable(error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"a model in the bundle cannot be read: {type(error).__name__}: {str(error)[:150]}."
    )


def _room_to_build(data: bytes) -> int:
    # skops holds every array twice while it builds.
    return 2 * len(data) + _ROOM_TO_BUILD


def _has_room(data: bytes) -> bool:
    """Whether an archive would be read."""
    try:
        check_archive(data, max_bytes=sys.maxsize)
        return Description(data).n_bytes <= _room_to_build(data)
    except InvalidInputError:
        return False


def type_names(trusted: Any) -> tuple[str, ...]:
    """Full names of the types a caller trusts, given by name or as themselves."""
    given = [trusted] if isinstance(trusted, str | type) else list(trusted)
    for item in given:
        if not isinstance(item, str | type):
            raise InvalidInputError(
                f"trusted must hold names of types such as 'sklearn.tree._tree.Tree', or types; got {item!r}."
            )
    return tuple(
        item if isinstance(item, str) else f"{item.__module__}.{item.__qualname__}" for item in given
    )


def check_archive(data: bytes, *, max_bytes: int) -> None:
    """Refuse an archive that is not one of skops, or that would unpack to more than is allowed for its length."""
    try:
        _check_members(data, min(max_bytes, 5 * len(data) + _ROOM_TO_UNPACK), "npy npz bin json")
    except InvalidInputError:
        raise
    except Exception as error:  # zip directories can be wrong in more ways than zipfile has errors for
        raise _bad_archive(f"cannot be unpacked ({type(error).__name__}: {str(error)[:100]})") from error


def _check_members(data: bytes, room: int, kinds: str) -> int:
    """Check every member; returns how many bytes are left of ``room``."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        # zipfile never reads more of a member than its directory declares, so the sum bounds what can come out.
        room -= sum(member.file_size for member in members)
        if room < 0:
            raise _bad_archive("would unpack to more than `max_bytes` or its length allows")
        if len({member.filename for member in members}) < len(members):
            raise _bad_archive("holds two members of one name")
        for member in members:
            _check_member(member, kinds)
        for member in members:
            if member.filename.endswith(".npy"):
                _check_npy(archive.read(member))
            elif member.filename.endswith(".npz"):
                room = _check_members(archive.read(member), room, "npy")
    return room


def _check_member(member: zipfile.ZipInfo, kinds: str) -> None:
    name = _NAME.fullmatch(member.filename)
    if name is None or name.group(1) not in kinds.split():
        raise _bad_archive(f"holds a member named {member.filename[:60]!r}, which skops does not write")
    if member.flag_bits & _ENCRYPTED or member.compress_type not in _KNOWN_METHODS:
        raise _bad_archive(
            f"holds {member.filename!r} encrypted or compressed in a way that skops does not use"
        )


def _check_npy(raw: bytes) -> None:
    """The header of an array must describe exactly the bytes that follow it."""
    stream = io.BytesIO(raw)
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise _bad_archive(f"holds an array in version {version} of numpy's format")
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = header(stream)
    if dtype.hasobject or dtype.itemsize == 0:
        raise _bad_archive(f"holds an array of type {str(dtype)[:60]}, which is not numbers or text")
    if math.prod(shape) * dtype.itemsize != len(raw) - stream.tell() or min(shape, default=0) < 0:
        raise _bad_archive(f"holds an array whose header claims the shape {str(shape)[:60]} over other bytes")


def _bad_archive(problem: str) -> InvalidInputError:
    return InvalidInputError(f"a model in the bundle {problem}. The file was not written by `save`.")
