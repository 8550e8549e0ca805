"""What a skops archive describes, as plain data: the names of classes, their attributes, and arrays.

Nothing is imported and nothing is built, so whoever reads a description decides what becomes of it. A member that is
neither a collection, a number, text nor an array stays a name.
"""

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from thrifty.bundle.container import parsed_size
from thrifty.errors import InvalidInputError
from thrifty.full.trees import Described

__all__ = ["Description"]

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
