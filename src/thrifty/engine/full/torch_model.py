"""Networks of torch as models: rows go to the device in batches, numpy comes back.

**What a row costs depends on the size of the batch it is in**: ``seconds_at`` measures it, copies included.

torch is imported when a network is asked. Rows may be a table or any array whose first axis is rows; they become
numbers of the type of the weights, in ``shape`` where that is given.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from thrifty.arrays import Floats, Ints, Labels
from thrifty.engine.full.seconds import median_seconds
from thrifty.errors import InvalidInputError

BATCH_SIZES = (1, 32, 256)
N_REPEATS = 20
"""Calls of which the median is what a batch takes."""


class _Device:
    """Networks on their device: rows to tensors, and what a batch takes."""

    def __init__(self, networks: Sequence[Any], device: Any, shape: Sequence[int] | None) -> None:
        try:
            import torch
        except ModuleNotFoundError as error:
            raise InvalidInputError(
                "networks need torch, which is not installed: pip install 'thrifty[torch]'."
            ) from error
        self.torch, self.shape = torch, shape
        modules = [one for one in networks if isinstance(one, torch.nn.Module)]
        weights = [weight for one in modules for weight in one.parameters()]
        floats = [weight for weight in weights if weight.is_floating_point()]
        self.dtype = floats[0].dtype if floats else torch.float32
        default = "cuda" if torch.cuda.is_available() else "cpu"
        if device is None:
            device = weights[0].device if weights else default
        self.device = torch.device(device)
        for one in modules:
            one.to(self.device).eval()

    def tensor(self, rows: Any) -> Any:
        """Rows on the device, through pinned memory where that is a GPU."""
        tensor = self.torch.tensor(rows)
        if tensor.is_floating_point():  # bytes are fewer: they change their type on the device
            tensor = tensor.to(self.dtype)
        if self.shape is not None:
            tensor = tensor.reshape(len(rows), *self.shape)
        if self.device.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True).to(self.dtype)

    def numpy(self, outputs: list[Any]) -> Floats:
        """Outputs of all batches, once the device has them."""
        result: Floats = self.torch.cat(outputs).cpu().double().numpy()
        return result

    def probabilities(self, logits: Any, n_classes: int, name: str) -> Any:
        """Probabilities from the logits of a batch."""
        if logits.ndim != 2 or logits.shape[1] != n_classes:
            raise InvalidInputError(
                f"{name} must return logits of {n_classes} classes, shape (n_rows, {n_classes}); got "
                f"{tuple(logits.shape)}. Give classes= in the order of the logits, or their number."
            )
        return self.torch.softmax(logits.float(), dim=1)


def _batches(rows: Ints, batch_size: int) -> list[Ints]:
    if batch_size < 1:
        raise InvalidInputError(f"batch_size must be at least 1; got {batch_size}.")
    return [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]


def _seconds_per_row(ask: Callable[[Any], Any], rows: Any, batch_size: int) -> float:
    """Median seconds of a row; each call returns numpy, and so waits for the device."""
    batch = rows[np.arange(batch_size) % len(rows)]
    return median_seconds(partial(ask, batch), N_REPEATS, n_warm=3) / batch_size


def _labels(classes: int | Sequence[Any]) -> Labels:
    return np.arange(classes) if isinstance(classes, int) else np.asarray(classes)


class _TorchModel(BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A fitted network; subclasses say what it returns."""

    def __init__(
        self, module: Any, *, device: Any = None, batch_size: int = 256, shape: Sequence[int] | None = None
    ) -> None:
        self.module = module
        self.device = device
        self.batch_size = batch_size
        self.shape = shape

    def fit(self, X: Any, y: Any = None) -> NoReturn:  # noqa: ARG002 - scikit-learn's signature
        """Refuse: the network is trained elsewhere."""
        raise InvalidInputError(
            f"{type(self).__name__} holds a network that is trained already. Train it with torch, and give it to a "
            f"cascade with cv='prefit', or inside FrozenEstimator, with rows that it was not trained on."
        )

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def seconds_at(self, X: Any, batch_sizes: Sequence[int] = BATCH_SIZES) -> dict[int, float]:
        """Seconds per row in batches of these sizes, from rows in memory to answers in memory; medians, warm."""
        rows = np.asarray(X)
        return {size: _seconds_per_row(self._outputs, rows, size) for size in batch_sizes}

    def _outputs(self, X: Any) -> Floats:
        """What the network returns, through ``_read``."""
        rows, on = np.asarray(X), _Device([self.module], self.device, self.shape)
        with on.torch.inference_mode():
            everyone = _batches(np.arange(len(rows)), self.batch_size)
            return on.numpy([self._read(on, self.module(on.tensor(rows[batch]))) for batch in everyone])

    def _read(self, on: _Device, outputs: Any) -> Any:
        raise NotImplementedError


class TorchClassifier(ClassifierMixin, _TorchModel):  # type: ignore[misc]  # scikit-learn is untyped
    """A trained network of torch as a classifier, for ``CascadeClassifier`` with ``cv="prefit"`` and as a full model.

    Parameters
    ----------
    module : torch.nn.Module or callable
        From a batch of rows on the device to logits, shape (n_rows, n_classes). A module is put into evaluation mode
        and moved to the device; do so yourself with those that a function calls.
    classes : int or sequence
        Labels in the order of the logits, or the number of classes, whose labels then are 0, 1, and so on.
    device : str or torch.device, default=None
        Where it runs; None is where the module's weights are, or a GPU where there is one for other callables.
    batch_size : int, default=256
        Rows that are asked about at a time.
    shape : sequence of int, default=None
        Shape of a row for the network, such as ``(3, 32, 32)``, where rows are lines of a table.

    Attributes
    ----------
    classes_ : ndarray
        Labels.
    """

    def __init__(
        self,
        module: Any,
        classes: int | Sequence[Any] = 2,
        *,
        device: Any = None,
        batch_size: int = 256,
        shape: Sequence[int] | None = None,
    ) -> None:
        super().__init__(module, device=device, batch_size=batch_size, shape=shape)
        self.classes = classes

    @property
    def classes_(self) -> Labels:
        """Labels."""
        return _labels(self.classes)

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of all classes: the softmax of the logits."""
        return self._outputs(X) if len(X) else np.empty((0, len(self.classes_)))

    def predict(self, X: Any) -> Labels:
        """Label of the largest probability."""
        labels: Labels = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels

    def _read(self, on: _Device, outputs: Any) -> Any:
        return on.probabilities(outputs, len(self.classes_), "module")


class TorchRegressor(RegressorMixin, _TorchModel):  # type: ignore[misc]  # scikit-learn is untyped
    """A trained network of torch as a regressor; it returns one number for each row.

    Parameters
    ----------
    module, device, batch_size, shape
        As of ``TorchClassifier``.
    """

    def predict(self, X: Any) -> Floats:
        """Number of each row."""
        return self._outputs(X) if len(X) else np.empty(0)

    def _read(self, on: _Device, outputs: Any) -> Any:  # noqa: ARG002 - one contract with the classifier
        if outputs.shape not in ((len(outputs),), (len(outputs), 1)):
            raise InvalidInputError(
                f"module must return one number for each row; got shape {tuple(outputs.shape)}. Wrap it in a function "
                f"that takes the column that is meant."
            )
        return outputs.reshape(-1)


class TorchExits:
    """Early exits of one network as models of a ``ModelRouter``; what a row has passed is kept, not computed again.

    Parameters
    ----------
    exits : dict of str to (part, head)
        For each exit, the part of the network from the exit before it, and the head from what the part returns to
        logits; in the order of the network. Modules or callables.
    classes : int or sequence
        Labels in the order of the logits, or their number.
    device, batch_size, shape
        As of ``TorchClassifier``.
    """

    def __init__(
        self,
        exits: Mapping[str, tuple[Any, Any]],
        classes: int | Sequence[Any],
        *,
        device: Any = None,
        batch_size: int = 256,
        shape: Sequence[int] | None = None,
    ) -> None:
        self.exits = dict(exits)
        self.classes_ = _labels(classes)
        self.device = device
        self.batch_size = batch_size
        self.shape = shape

    def asker(self, X: Any) -> Callable[[str, Ints], Floats]:
        """Function of the name of an exit and numbers of rows that returns probabilities, for ``ModelRouter.run``.

        What rows have passed stays on the device as long as the function lives.
        """
        names, table = list(self.exits), np.asarray(X)
        parts, heads = zip(*self.exits.values(), strict=True)
        on = _Device([*parts, *heads], self.device, self.shape)
        passed = np.full(len(table), -1)
        kept: dict[int, Any] = {}

        def ask(name: str, rows: Ints) -> Floats:
            last, rows = names.index(name), np.asarray(rows)
            answers: Floats = np.empty((len(rows), len(self.classes_)))
            # From the last part that a row has passed, or from its beginning where that is behind this exit.
            before = np.where(passed[rows] < last, passed[rows], -1)
            for begin in np.unique(before):
                places = np.flatnonzero(before == begin)
                outputs = []
                for batch in _batches(places, self.batch_size):
                    numbers = on.torch.as_tensor(rows[batch], device=on.device)
                    x = on.tensor(table[rows[batch]]) if begin < 0 else kept[int(begin)][numbers]
                    for part in parts[begin + 1 : last + 1]:
                        x = part(x)
                    if last < len(parts) - 1:
                        if last not in kept:
                            kept[last] = x.new_empty((len(table), *x.shape[1:]))
                        kept[last][numbers] = x
                    outputs.append(
                        on.probabilities(heads[last](x), len(self.classes_), f"the head of {name!r}")
                    )
                answers[places] = on.numpy(outputs)
            passed[rows] = np.maximum(passed[rows], last)
            return answers

        def in_inference_mode(name: str, rows: Ints) -> Floats:
            with on.torch.inference_mode():
                return ask(name, rows)

        return in_inference_mode

    def seconds_at(self, X: Any, batch_sizes: Sequence[int] = BATCH_SIZES) -> dict[int, dict[str, float]]:
        """Seconds per row of each exit, all parts before it included, in batches of these sizes."""
        rows = np.asarray(X)

        def ask(name: str, batch: Any) -> Floats:
            return self.asker(batch)(name, np.arange(len(batch)))

        return {
            size: {name: _seconds_per_row(partial(ask, name), rows, size) for name in self.exits}
            for size in batch_sizes
        }

    def after(self, prices: Mapping[str, float]) -> dict[str, dict[str, float]]:
        """Prices of exits after earlier ones, as ``ModelRouter`` takes them: the difference of their prices."""
        names = list(self.exits)
        return {
            name: {other: max(prices[name] - prices[other], 0.0) for other in names[:place]}
            for place, name in enumerate(names)
            if place
        }
