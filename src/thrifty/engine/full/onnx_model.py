"""Models in ONNX files, run by ONNX Runtime, which is imported when one is opened."""

from pathlib import Path
from typing import Any

import numpy as np

from thrifty.arrays import Floats
from thrifty.engine.full.adapters import models_of
from thrifty.engine.tasks.task import Task
from thrifty.errors import InvalidInputError
from thrifty.files import read_capped

MAX_ONNX_BYTES = 2**30


class OnnxModel:
    """A model in an ONNX file, run by ONNX Runtime: a ``FullModel`` that reads numbers.

    Parameters
    ----------
    path : Path
        The file. It has one input for all columns, or one for each, and its probabilities or numbers as a tensor.
    task : Task
        What it answers.
    names : tuple of str
        Columns of a row.
    """

    def __init__(self, path: Path, task: Task, names: tuple[str, ...]) -> None:
        try:
            from onnxruntime import InferenceSession
        except ModuleNotFoundError as error:
            raise InvalidInputError(
                f"{path} needs onnxruntime, which is not installed: pip install onnxruntime."
            ) from error
        self._task, self._names, self._path = task, names, path
        try:
            self._session = InferenceSession(read_capped(path, MAX_ONNX_BYTES))
            self._inputs = {one.name: _FLOATS[one.type] for one in self._session.get_inputs()}
            tensors = [one.name for one in self._session.get_outputs() if one.type in _FLOATS]
            usual = [name for name in tensors if name in _USUAL_OUTPUTS]
            self._output = (usual or tensors)[0]
            self.outputs(None, np.zeros((1, len(names))))
        except Exception as error:  # ONNX Runtime raises classes of its own
            raise InvalidInputError(
                f"{path} must be an ONNX model of the {len(names)} columns {', '.join(names[:10])}, as one input of "
                f"floats or one for each column, with a tensor of probabilities or numbers (skl2onnx: zipmap=False): "
                f"{' '.join(str(error).split())[:300]}"
            ) from error

    def outputs(self, table: Any, numbers: Any) -> Floats:  # noqa: ARG002 - one contract for all full models
        """Outputs for some rows."""
        if len(self._inputs) == 1:
            feed = {name: numbers.astype(dtype) for name, dtype in self._inputs.items()}
        else:
            feed = {
                name: numbers[:, [self._names.index(name)]].astype(dtype)
                for name, dtype in self._inputs.items()
            }
        values = self._session.run([self._output], feed)[0]
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        return models_of(self._task).read_outputs(values, len(numbers), f"the ONNX model {self._path}")


_FLOATS = {"tensor(float)": np.float32, "tensor(double)": np.float64}
_USUAL_OUTPUTS = ("probabilities", "output_probability", "variable")
"""Names of outputs in files of skl2onnx and onnxmltools."""
