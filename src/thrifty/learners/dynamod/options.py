"""Settings of how the DynaMod estimators learn, in one object: ``options=LinearOptions(refit=True)``."""

import functools
import warnings
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, ClassVar, Literal, TypeVar

from sklearn.base import BaseEstimator

from thrifty.engine.prices.billing import check_amount
from thrifty.engine.trees.binning import MAX_BINS
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod.objective import DistanceName, check_distance
from thrifty.learners.estimators.checks import check_count
from thrifty.learners.trees.boosting import Boosting

__all__ = ["BoostedOptions", "LeafOptions", "LinearOptions", "PairOptions"]

AnyClass = TypeVar("AnyClass", bound="type[Any]")


@dataclass(eq=False, repr=False)
class PairOptions(BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Settings of every alternation; its parameters are read and set as those of an estimator.

    Parameters
    ----------
    distance : {"kl", "squared"}
        How the gate is compared with the shares.
    cross_fit : bool, default=False
        Evaluate the cheap model while learning on rows that it was not fitted on, as the full model is: one more pair
        for each fold of ``cv``, which takes as many times as long. The threshold that spends a budget, and the
        evidence, are then out of fold too. False is the paper.
    max_iter, tol : int, float
        Rounds of the alternation, and the change of the objective below which it stops.
    """

    _: KW_ONLY
    distance: DistanceName = "kl"
    cross_fit: bool = False
    max_iter: int = 50
    tol: float = 1e-4

    _min_iter: ClassVar[int] = 1
    _amounts: ClassVar[tuple[str, ...]] = ("tol",)

    def check(self) -> None:
        """Refuse settings out of their range."""
        check_distance(self.distance)
        check_count("max_iter", self.max_iter, min_value=self._min_iter)
        for name in self._amounts:
            check_amount(name, getattr(self, name))


@dataclass(eq=False, repr=False)
class LinearOptions(PairOptions):
    """Settings of ``DynaModLinClassifier``.

    Parameters
    ----------
    distance : {"kl", "squared"}, default="kl"
        How the gate is compared with the shares.
    cross_fit : bool, default=False
        Evaluate the cheap model while learning on rows that it was not fitted on, as the full model is: one more pair
        for each fold of ``cv``, which takes as many times as long. The threshold that spends a budget, and the
        evidence, are then out of fold too. False is the paper.
    max_iter, tol : int, float, default=200, 1e-4
        Rounds of the alternation, and the decrease of the objective below which it stops.
    init : {"logistic", "gaussian"} or tuple of two arrays, default="logistic"
        Start of (g, f1): g = 0 and f1 an L2-regularised logistic regression, Gaussian noise, or given slopes,
        each followed by its intercept or not; of several classes f1 has a row of them for each class.
    n_init : int, default=1
        Number of starts; those after the first are Gaussian. The lowest objective is kept.
    refit : bool, default=False
        Once the columns are chosen, alternate again on them alone with no price to pay, only a ridge of
        C = 1: undoes the shrinkage that the choice cost f1 and g. Not in the paper.
    gate_reads_margin : bool, default=False
        After f1, learn the gate again with ``|f1|`` (of several classes: how far the best score leads the
        second) as a further column, which costs nothing. Lets
        a linear gate say "f1 is unsure here". The paper has it for its local gates only. The margins are those of
        the training rows: a linear f1 on few columns hardly overfits.
    standardize : bool, default=True
        Divide each column by its standard deviation while learning, so that the penalty treats
        them alike; the weights are given back on the original scale.
    l2 : float, default=1e-6
        Ridge on the slopes, which keeps them bounded where a free feature separates the classes.

    Examples
    --------
    >>> from thrifty import DynaModLinClassifier
    >>> from thrifty.learners.dynamod import LinearOptions
    >>> clf = DynaModLinClassifier(gamma=0.02, options=LinearOptions(refit=True))
    >>> clf.set_params(options__tol=1e-3).options
    LinearOptions(refit=True, tol=0.001)
    """

    max_iter: int = 200
    init: Any = "logistic"
    n_init: int = 1
    refit: bool = False
    gate_reads_margin: bool = False
    standardize: bool = True
    l2: float = 1e-6

    _amounts = ("l2", "tol")

    def check(self) -> None:
        """Refuse settings out of their range."""
        super().check()
        check_count("n_init", self.n_init)
        if isinstance(self.init, str) and self.init not in ("logistic", "gaussian"):
            raise InvalidInputError(
                f"init must be 'logistic', 'gaussian' or a tuple (g, f1) of slopes; got {self.init!r}."
            )


@dataclass(eq=False, repr=False)
class BoostedOptions(PairOptions):
    """Settings of the two DynaMod-Gbrt estimators.

    Parameters
    ----------
    distance, cross_fit
        As in ``LinearOptions``.
    max_iter, tol : int, float, default=10, 1e-3
        Rounds of the alternation, and the change of the objective below which it stops. Trees are
        greedy, so the objective may rise; what is kept is the last round.
    n_trees : int, default=100
        Trees of g and of f1 each.
    max_depth : int, default=4
        Levels of splits, at most 12.
    learning_rate : float, default=0.1
        Factor on every leaf.
    step : {"newton", "gradient"}, default="newton"
        Leaves that divide by the curvature, or the paper's least squares on the gradient.
    l2 : float, default=1.0
        Added to the curvature of a leaf (Newton steps only).
    min_child_weight, min_child_samples : float, int, default=0.0, 1
        Least curvature and least rows of a leaf.
    max_bins : int, default=255
        Bins per feature.
    gate_reads_score : bool, default=False
        After the alternation, grow the gate once more with f1's own score as a further, free feature; the scores it
        learns from are out of fold.
    """

    max_iter: int = 10
    tol: float = 1e-3
    n_trees: int = 100
    max_depth: int = 4
    learning_rate: float = 0.1
    step: Literal["gradient", "newton"] = "newton"
    l2: float = 1.0
    min_child_weight: float = 0.0
    min_child_samples: int = 1
    max_bins: int = 255
    gate_reads_score: bool = False

    _amounts = ("l2", "min_child_weight", "learning_rate", "tol")

    def check(self) -> None:
        """Refuse settings out of their range."""
        check_count("n_trees", self.n_trees)
        check_count("max_depth", self.max_depth, max_value=12)
        check_count("min_child_samples", self.min_child_samples)
        check_count("max_bins", self.max_bins, min_value=2, max_value=MAX_BINS)
        if self.step not in ("gradient", "newton"):
            raise InvalidInputError(f"step must be 'gradient' or 'newton'; got {self.step!r}.")
        super().check()

    def boosting(self) -> Boosting:
        """Settings of the trees."""
        return Boosting(
            n_trees=self.n_trees,
            max_depth=self.max_depth,
            learning_rate=self.learning_rate,
            step=self.step,
            l2=self.l2,
            min_child_weight=self.min_child_weight,
            min_child_samples=self.min_child_samples,
        )


@dataclass(eq=False, repr=False)
class LeafOptions(PairOptions):
    """Settings of ``DynaModLstsqClassifier``.

    Parameters
    ----------
    distance : {"squared", "kl"}, default="squared"
        How the gate is compared with the shares. "kl" is DynaMod-Lin over leaves.
    cross_fit : bool, default=False
        As in ``LinearOptions``: a small model that is grown or fitted here is grown again for each fold; of one
        in a ``FrozenEstimator`` only the leaves are learned again.
    max_iter, tol : int, float, default=50, 1e-4
        Rounds of the alternation, and the change of the objective below which it stops. No rounds are the gate
        by confidence, exactly.
    ridge : float, default=20.0
        Rows' worth of pull that keeps leaf values near the start.
    n_trees, max_leaves, max_depth, learning_rate, min_child_weight : default=10, 32, 12, 0.6, 5.0
        Limits of the trees grown here; not used with ``local``.
    max_bytes : int, default=None
        Most bytes that the device has for trees, f1 and gate. Trees grown here then take the number and the size, among
        those that fit, that answer best on a fold of the rows, f1 and full model together; ``n_trees`` and
        ``max_leaves`` have no say. A ``local`` model that is larger is refused.
    gate_weight : float, default=1.0
        Weight of the gate's question in a split's gain while trees are grown here: they are grown for f1 and g at
        once. 0 grows them for f1 alone.
    """

    distance: DistanceName = "squared"
    ridge: float = 20.0
    n_trees: int = 10
    max_leaves: int = 32
    max_depth: int = 12
    learning_rate: float = 0.6
    min_child_weight: float = 5.0
    max_bytes: int | None = None
    gate_weight: float = 1.0

    _min_iter = 0
    _amounts = ("ridge", "learning_rate", "min_child_weight", "gate_weight", "tol")

    def check(self) -> None:
        """Refuse settings out of their range."""
        check_count("n_trees", self.n_trees)
        check_count("max_leaves", self.max_leaves, min_value=2)
        check_count("max_depth", self.max_depth, max_value=12)
        if self.max_bytes is not None:
            check_count("max_bytes", self.max_bytes)
        super().check()

    def boosting(self, n_trees: int, max_leaves: int) -> Boosting:
        """Settings of trees, so many of so many leaves."""
        return Boosting(
            n_trees=n_trees,
            max_depth=self.max_depth,
            learning_rate=self.learning_rate,
            min_child_weight=self.min_child_weight,
            max_leaves=max_leaves,
        )


def accept_former_settings(estimator: AnyClass) -> AnyClass:
    """Accept the settings in ``options`` as constructor arguments too, as version 0.3 did, with a warning.

    A decorator of estimators. The signature stays that of the decorated constructor, which ``get_params`` reads.
    """
    init = estimator.__init__

    @functools.wraps(init)
    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        settings = {name: kwargs.pop(name) for name in former_settings(estimator, kwargs)}
        init(self, *args, **kwargs)
        if settings:
            _warn(estimator, settings)
            self.options = (
                estimator._options_class(**settings)
                if self.options is None
                else type(self.options)(**self.options.get_params(deep=False) | settings)
            )

    estimator.__init__ = initialise
    return estimator


def former_settings(estimator: type[Any], names: Any) -> list[str]:
    """Those of some names that were constructor arguments in version 0.3 and are settings in ``options`` now."""
    settings = {field.name for field in fields(estimator._options_class)}
    return [name for name in names if name in settings]


def gather_options(estimator: type[Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters of an estimator in a file of version 0.3, with their settings in ``options``."""
    former = former_settings(estimator, parameters)
    if not former:
        return parameters
    options = estimator._options_class(**{name: parameters[name] for name in former})
    return {name: value for name, value in parameters.items() if name not in former} | {"options": options}


def in_options(estimator: type[Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters of ``set_params``, with settings of version 0.3 as ``options__name``."""
    former = former_settings(estimator, parameters)
    if former:
        _warn(estimator, {name: parameters[name] for name in former}, stacklevel=4)
    return {f"options__{name}" if name in former else name: value for name, value in parameters.items()}


def _warn(estimator: type[Any], settings: dict[str, Any], *, stacklevel: int = 3) -> None:
    listed = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    warnings.warn(
        f"{', '.join(settings)}: settings of {estimator.__name__} are in its options, "
        f"options={estimator._options_class.__name__}({listed}). "
        f"The former arguments go with the next release.",
        FutureWarning,
        stacklevel=stacklevel,
    )
