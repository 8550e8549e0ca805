"""Fitted estimators and chains as the bytes of one file, and back.

Of an estimator a file keeps the chain, the constructor arguments and learned attributes that are plain data, and what
moving to another operating point needs: all learned points, the evidence of them, and the certificate.
Attributes that follow from the chain (labels, columns, threshold) are not written twice: two copies could disagree.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn, get_args

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from thrifty._version import __version__
from thrifty.arrays import Bools, Codes, Floats, Int32s, Ints, Numbers, Words
from thrifty.bundle.codec import NotPlainError, ObjectReader, ObjectWriter, known_name, register
from thrifty.bundle.container import (
    DEFAULT_MAX_BYTES,
    Contents,
    check_key,
    pack,
    sign,
    unpack,
    without_signature,
)
from thrifty.bundle.full_models import (
    FullMode,
    as_stored,
    check_stored,
    columns_of_full,
    full_to_store,
    models_to_store,
    with_given_full,
    with_given_models,
)
from thrifty.engine.evidence.budgets import CostCertificate
from thrifty.engine.evidence.certificate import Certificate
from thrifty.engine.evidence.evidence import Evidence, RankedQueries
from thrifty.engine.evidence.frontier import OperatingPoint
from thrifty.engine.evidence.hypothesis_tests import ClassLoss
from thrifty.engine.full.adapters import models_of
from thrifty.engine.full.model import AbsentFull, EstimatorFull, FullModel, PrecomputedFull, as_full_model
from thrifty.engine.full.seconds import Seconds
from thrifty.engine.full.stored import Impute, KernelScores, LinearScores, Scale, StoredModel, stored_model_of
from thrifty.engine.prices.billing import Discounts, ForgottenFunction, PriceList, Resources, RowPrices
from thrifty.engine.prices.prices import Prices, check_models, resolve_prices
from thrifty.engine.table.columns import ColumnType, Levels, level_text
from thrifty.engine.table.reader import Schema
from thrifty.engine.table.training import Spread
from thrifty.engine.tasks.classes import BinaryTask, CostMatrix, MulticlassTask, ProbabilityLoss
from thrifty.engine.tasks.ranking import RankingTask
from thrifty.engine.tasks.regression import RegressionTask
from thrifty.engine.trees import TreeEnsemble
from thrifty.engine.trees.binning import LevelSets
from thrifty.engine.trees.ensemble import children_of
from thrifty.engine.trees.other_libraries import ForeignTrees
from thrifty.engine.walk.calibration import Calibration
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.column_plan import Plan
from thrifty.engine.walk.mixture import Mixture, MixtureStage, TurnByGain
from thrifty.engine.walk.next_model import (
    AtRates,
    Capped,
    Cascades,
    ColumnSets,
    Log,
    Pooling,
    Programme,
    Routes,
    Thresholds,
)
from thrifty.engine.walk.policy import Policy
from thrifty.engine.walk.stage import (
    BoostedStage,
    CascadeStage,
    ConfidentStage,
    ForeignStage,
    ForkStage,
    LeafStage,
    LinearStage,
    TurnByValue,
)
from thrifty.errors import FullModelOutsideWarning, InvalidInputError
from thrifty.learners.cascade.estimators import (
    BudgetedCascade,
    BudgetedClassifier,
    BudgetedRanker,
    BudgetedRegressor,
    StageOptions,
)
from thrifty.learners.dynamod.boosted import BoostedOptions, DynaModGbrtClassifier, DynaModGbrtRegressor
from thrifty.learners.dynamod.confidence import ConfidenceRouter
from thrifty.learners.dynamod.gated import AlternatingEstimator, gather_options
from thrifty.learners.dynamod.leaf import DynaModLstsqClassifier, LeafOptions
from thrifty.learners.dynamod.linear import DynaModLinClassifier, LinearOptions
from thrifty.learners.estimators.base import ChainEstimator
from thrifty.learners.routing.model_cascade import (
    CascadeClassifier,
    CascadeRegressor,
    ModelCascade,
    Retrained,
)
from thrifty.learners.routing.quality import QualityModel, RuntimeModel, TextReader
from thrifty.learners.routing.router import ModelRouter
from thrifty.learners.routing.state import RouterState
from thrifty.learners.table_fit import FitRecord

_MAX_NESTED = 8

_PLAIN: tuple[type, ...] = (
    *(BoostedStage, CascadeStage, ConfidentStage, ForeignStage, ForkStage, LeafStage, LinearStage),
    *(MixtureStage, TurnByGain, TurnByValue, Chain, ColumnType, Levels),
    *(PriceList, Resources, Discounts, ForgottenFunction, RowPrices, CostMatrix, ProbabilityLoss),
    *(AbsentFull, PrecomputedFull, StoredModel, Impute, Scale, KernelScores, LinearScores),
    *(
        AtRates,
        Cascades,
        ColumnSets,
        RuntimeModel,
        Log,
        Plan,
        Pooling,
        Programme,
        Routes,
        Calibration,
        QualityModel,
        TextReader,
        CostCertificate,
    ),
    *(ForeignTrees, LevelSets, StageOptions, Prices, Certificate, ClassLoss, RankedQueries, FitRecord),
    *(BoostedOptions, LeafOptions, LinearOptions, Schema, Seconds, Retrained),
)
_SHARED: tuple[type, ...] = (BinaryTask, MulticlassTask, RankingTask, RegressionTask, Mixture)
for _class in (*_PLAIN, *_SHARED):
    register(_class, shared=_class in _SHARED)
# What measures need besides is not kept.
_OF_MEASURES = ("settings", "is_fixed", "target", "scores", "full_scores")
register(Evidence, left_out=_OF_MEASURES, infinite=("points",))
register(OperatingPoint, infinite=("thresholds",))
register(Policy, infinite=("thresholds", "cost", "score"))
register(EstimatorFull, check=check_stored)
register(Thresholds, infinite=("cuts",))
register(Capped, infinite=("limits",))
register(RouterState, renamed={"silent": "models_without_answers"})
register(TreeEnsemble, infinite=("threshold",))
register(Spread, infinite=("edges",))


# -- stored forms of objects that are not dataclasses of arrays --------------------------------------


@dataclass(frozen=True, eq=False)
class SavedTrees:
    """Trees in level order, whose children follow from which of them are leaves: a bit each."""

    n_features: int
    feature: Int32s
    threshold: Floats
    last_left: np.ndarray[Any, np.dtype[np.uint8]]
    missing_left: Bools
    is_leaf: Bools
    values: Floats
    node_offsets: Int32s
    leaf_offsets: Int32s

    def restored(self) -> TreeEnsemble:
        """The trees."""
        parts = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "is_leaf"}
        nodes = self.node_offsets
        # Differences of offsets out of range would wrap around, look harmless and claim any amount of memory.
        rises = nodes.ndim == 1 and len(nodes) and nodes[0] == 0 and bool(np.all(nodes[1:] >= nodes[:-1]))
        if not rises or self.is_leaf.shape != (nodes[-1], 2) or len(self.leaf_offsets) != len(nodes):
            raise InvalidInputError("trees of the file must have offsets that rise from 0 to their nodes.")
        return TreeEnsemble(**parts, children=children_of(self.is_leaf, nodes)).validate()


register(SavedTrees, infinite=("threshold",))


@register
@dataclass(eq=False, repr=False)
class NotStored(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A model, splitter or generator among the parameters of an estimator that was saved.

    It remembers which tables the original could read, so that a loaded estimator accepts and refuses the same tables as
    before, and it keeps ``fit`` from going on with a default instead of it.

    Parameters
    ----------
    what : str
        Class of the original.
    sparse, allow_nan : bool
        Whether the original could read sparse tables and missing values.
    """

    what: str = "object"
    sparse: bool = True
    allow_nan: bool = True

    @classmethod
    def of(cls, value: Any) -> "NotStored":
        """Placeholder for a value; a placeholder is one."""
        if isinstance(value, cls):
            return value
        name = (value.__name__ if isinstance(value, type) else type(value).__name__)[:100]
        if not hasattr(value, "fit") or isinstance(value, type):
            return cls(name)
        tags = get_tags(value).input_tags
        return cls(name, bool(tags.sparse), bool(tags.allow_nan))

    def fit(self, X: Any, y: Any = None) -> NoReturn:  # noqa: ARG002 - refuses
        """Refuse."""
        raise InvalidInputError(
            f"a {self.what[:100]} among the parameters was not stored in the file, so this estimator cannot be "
            f"fitted again. Give it first, with set_params."
        )

    def predict_proba(self, X: Any) -> NoReturn:
        """Refuse."""
        self.fit(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.sparse
        tags.input_tags.allow_nan = self.allow_nan
        return tags


# -- estimators ----------------------------------------------------------------------------------------

_MODELS = ("full", "cheap", "local")
"""Parameters that are models: they are part of the chain, or not stored at all."""

_KNOWN_OTHERWISE = (
    "classes_",
    "features_",
    "threshold_",
    "n_features_in_",
    "feature_names_in_",
    "chain_",
    "evidence_",
    "certificate_",
)
"""Attributes that follow from the chain, or have a part of their own in a file."""

_ESTIMATORS: dict[str, type[ChainEstimator]] = {}


def register_estimator(estimator: type[ChainEstimator]) -> None:
    """Register a class of estimators, so that files may hold it."""
    _ESTIMATORS[estimator.__name__] = estimator


for _estimator in (
    BudgetedClassifier,
    BudgetedRanker,
    BudgetedRegressor,
    DynaModLinClassifier,
    DynaModGbrtClassifier,
    DynaModGbrtRegressor,
    DynaModLstsqClassifier,
    ConfidenceRouter,
):
    register_estimator(_estimator)


@register
@dataclass(frozen=True, eq=False)
class SavedEstimator:
    """A fitted estimator in a file.

    Attributes
    ----------
    name : str
        Its class.
    chain : Chain
        What serves.
    parameters, attributes : dict
        Constructor arguments, and learned attributes that are plain data.
    evidence : Evidence, optional
        Rows that operating points were evaluated on.
    policy, blend : Policy, ndarray, optional
        All points that a cascade learned, and how it blends them.
    certificate : Certificate, optional
        What was proved.
    """

    name: str
    chain: Chain
    parameters: dict[str, Any]
    attributes: dict[str, Any]
    evidence: Evidence | None = None
    policy: Policy | None = None
    blend: Floats | None = None
    certificate: Certificate | None = None

    @classmethod
    def of(cls, estimator: Any, *, evidence: bool, writer: Any) -> "SavedEstimator":
        """Stored form of a fitted estimator; ``writer`` makes a scratch ``ObjectWriter``, to see what is plain."""
        name = type(estimator).__name__
        if _ESTIMATORS.get(name) is not type(estimator):
            raise _not_saved(name)
        chain = getattr(estimator, "chain_", None)
        if not isinstance(chain, Chain):
            raise InvalidInputError(
                f"a {name} must be fitted before it is saved; this one is not. Call fit first."
            )

        def is_plain(value: Any) -> bool:
            return _is_plain(value, writer)

        parameters = {
            key: value if (value is None or key not in _MODELS) and is_plain(value) else NotStored.of(value)
            for key, value in estimator.get_params(deep=False).items()
        }
        # Learned objects that are no plain data serve nothing; they are made again by a fit.
        attributes = {
            key: value for key, value in vars(estimator).items() if _is_attribute(key) and is_plain(value)
        }
        learned: Any = getattr(estimator, "_learned", None)
        return cls(
            name,
            chain,
            parameters,
            attributes,
            getattr(estimator, "evidence_", None) if evidence else None,
            learned.policy if isinstance(estimator, BudgetedCascade) else None,
            learned.blend if isinstance(estimator, BudgetedCascade) else None,
            getattr(estimator, "certificate_", None),
        )

    def restored(self) -> ChainEstimator:
        """The estimator, its parts checked against each other."""
        chain = self.chain
        if self.name not in _ESTIMATORS:
            raise _refused("class", f"be one of {', '.join(sorted(_ESTIMATORS))}", self.name)
        estimator = _ESTIMATORS[self.name]()
        is_cascade = isinstance(estimator, BudgetedCascade)
        if not chain.stages or chain.policy.is_measured != is_cascade:
            raise _refused("class", "suit the kind of chain", self.name)
        parameters = self.parameters
        if isinstance(estimator, AlternatingEstimator):
            parameters = gather_options(type(estimator), parameters)
        names = set(estimator.get_params(deep=False))
        for key in parameters:
            if key not in names:
                raise _refused(str(key), f"be a parameter of {self.name}", "another name")
        attributes = dict(self.attributes)
        record = attributes.setdefault("record_", FitRecord.from_attributes(attributes))
        if record is None:
            del attributes["record_"]
        elif not isinstance(record, FitRecord):
            raise _refused("record_", "be a FitRecord", type(record).__name__)
        elif record.spread is not None and len(record.spread.edges) != chain.price_list.n_features:
            raise _refused("spread", "be of the columns of the chain", f"{len(record.spread.edges)} columns")
        for key in attributes:
            if not isinstance(key, str) or not _is_attribute(key) or hasattr(type(estimator), key):
                raise _refused(str(key), "be a learned attribute", "another name")
        for key, value in (parameters | attributes | _from_chain(chain)).items():
            setattr(estimator, key, value)
        estimator._learned = chain
        if is_cascade:
            if self.policy is None or not self.policy.is_measured:
                raise _refused("policy", "be known at every point of a cascade", "none")
            points = self.policy.at(len(self.policy) - 1)
            estimator._learned = replace(chain, policy=points, blend=self.blend).validate()
        estimator.certificate_ = self.certificate
        if self.evidence is not None:
            estimator.evidence_ = _about(self.evidence, chain)
        return estimator


@register
@dataclass(frozen=True, eq=False)
class SavedRouter:
    """A fitted ``ModelRouter`` in a file: its arguments, what it learned, and the points that it mixes.

    Prices that are functions of the row are not kept.
    """

    models: dict[str, Any]
    budget: float | dict[str, float] | None
    max_asks: int
    confidence: float | None
    random_state: int | None
    state: RouterState
    low: int
    high: int
    share: float
    certificate: Certificate | CostCertificate | None
    after: dict[str, Any] | None = None
    more: Ints | None = None
    more_shares: Floats | None = None
    prices: Prices | None = None
    cutoff: float | None = None
    cap: Any = None

    @classmethod
    def of(cls, router: ModelRouter) -> "SavedRouter":
        """Stored form of a fitted router."""
        check_is_fitted(router)
        prices, seed = router.model_prices, router.random_state
        return cls(
            {name: None if callable(price) else price for name, price in prices.items()},
            _plain_budget(router.budget),
            int(router.max_asks),
            None if router.confidence is None else float(router.confidence),
            int(seed) if isinstance(seed, int | np.integer) else None,
            router.state_,
            router.policy_.lower,
            router.policy_.upper,
            router.policy_.share,
            router.certificate_,
            router.after,
            router.policy_.more,
            router.policy_.more_shares,
            None if router.prices is None else resolve_prices(None, router.prices, Prices()),
            router.cutoff,
            _plain_budget(router.cap),
        )

    def restored(self) -> ModelRouter:
        """The router, its parts checked against each other."""
        prices, n_points = check_models(self.models), len(self.state.point_family)
        if tuple(prices) != self.state.names:
            raise _refused("models", "be those that the router learned of", "others")
        more = np.empty(0, np.intp) if self.more is None else self.more
        points, of_more = np.r_[self.low, self.high, more], np.zeros(0)
        of_more = of_more if self.more_shares is None else self.more_shares
        left = 1.0 - self.share - of_more.sum()
        shares = np.r_[left, self.share, of_more]
        is_inside = bool(((points >= 0) & (points < n_points) & (shares >= -1e-9)).all())
        if len(shares) != len(points) or not is_inside:
            raise _refused("share", "mix points of the frontier", self.share)
        outcome = "quality" if self.cutoff is None else "runtime"
        outcome = outcome if self.state.largest_loss is None else "loss"
        settings = self.max_asks, self.confidence, self.random_state, self.after, self.prices, outcome
        resources = self.state.resources
        ask = "parallel" if resources is not None and resources.delays else "in turn"
        router = ModelRouter(prices, self.budget, *settings, self.cutoff, ask, self.cap)
        return router.restored(self.state, (points, shares), self.certificate)


def _plain_budget(budget: Any) -> Any:
    """A budget as a file keeps it."""
    if isinstance(budget, Mapping):
        return {str(name): float(amount) for name, amount in budget.items()}
    return None if budget is None else float(budget)


register(SavedRouter, infinite=("budget",))

_CASCADES: dict[str, type[ModelCascade]] = {
    "CascadeClassifier": CascadeClassifier,
    "CascadeRegressor": CascadeRegressor,
}


@register
@dataclass(frozen=True, eq=False)
class SavedCascade:
    """A fitted ``CascadeClassifier`` or ``CascadeRegressor`` in a file: its arguments, estimators and router."""

    name: str
    parameters: dict[str, Any]
    router: ModelRouter
    task: BinaryTask | MulticlassTask | RegressionTask
    schema: Schema
    models: dict[str, EstimatorFull | PrecomputedFull | AbsentFull]
    model_prices: dict[str, Any]
    seconds: dict[str, Seconds]
    decision_seconds: float
    reference: str | None
    largest_loss: float | None = None
    retrained: tuple[Retrained, ...] = ()
    pooling: Pooling | None = None
    columns_of: dict[str, Ints] | None = None
    free_columns: Ints | None = None

    @classmethod
    def of(cls, cascade: ModelCascade, models: dict[str, Any], writer: Any) -> "SavedCascade":
        """Stored form of a fitted cascade; ``writer`` makes a scratch ``ObjectWriter``, to see what is plain."""
        name = type(cascade).__name__
        if _CASCADES.get(name) is not type(cascade):
            raise _not_saved(name)
        parameters = {
            key: value if _is_plain(value, writer) else NotStored.of(value)
            for key, value in cascade.get_params(deep=False).items()
            if key != "estimators"
        }
        parameters["estimators"] = [(key, NotStored.of(model)) for key, model in cascade.estimators]
        schema, task = cascade.schema_, cascade.task_
        types = None if schema.types is None else tuple(map(_plain_type, schema.types))
        return cls(
            name,
            parameters,
            cascade.router_,
            task,  # type: ignore[arg-type]  # one of these, as the fit made it
            replace(schema, types=types),
            models,
            dict(cascade.model_prices_),
            dict(cascade.seconds_),
            cascade.decision_seconds_,
            cascade.reference_,
            getattr(cascade, "largest_loss_", None),
            cascade.retrained_,
            getattr(cascade, "pooling_", None),
            {key: np.array(columns, np.intp) for key, columns in cascade.columns_of_.items()} or None,
            None if cascade.free_columns_ is None else np.array(cascade.free_columns_, np.intp),
        )

    def restored(self) -> ModelCascade:
        """The cascade, its parts checked against each other."""
        kind, state, classes = _CASCADES.get(self.name), self.router.state_, self.task.classes
        if kind is None:
            raise _refused("class", f"be one of {', '.join(sorted(_CASCADES))}", self.name)
        is_classifier, names, n_columns = kind is CascadeClassifier, set(self.models), len(self.schema.names)
        calibration = state.calibration
        columns_of = {key: tuple(of_one.tolist()) for key, of_one in (self.columns_of or {}).items()}
        free = None if self.free_columns is None else tuple(self.free_columns.tolist())
        read = [*(free or ()), *(column for of_one in columns_of.values() for column in of_one)]
        rules = {
            "know the columns of its estimators": set(columns_of) in (set(), names)
            and all(0 <= column < n_columns for column in read)
            and all(columns_of.values()),
            "suit its task": is_classifier != isinstance(self.task, RegressionTask)
            and not isinstance(self.task, RankingTask),
            "have a price of each estimator": set(self.model_prices) == names == set(state.names),
            "be calibrated for its classes": calibration is not None
            and calibration.n_classes == (len(classes) if is_classifier else 1),
            "have a router of its columns": state.model is None
            or state.n_features == (n_columns if free is None else len(free)),
            "know the largest loss": is_classifier or (self.largest_loss or 0.0) > 0.0,
            "refer to an estimator": self.reference is None or self.reference in names,
            "combine its estimators": (
                self.pooling is not None and self.pooling.suits(state.log)
                if is_classifier
                else self.pooling is None
            ),
            "compare with estimators of its router": {one.model for one in self.retrained} <= set(state.pool),
            "measure its estimators": not self.seconds or set(self.seconds) == names,
        }
        for rule, holds in rules.items():
            if not holds:
                raise InvalidInputError(f"a cascade in the file must {rule}.")
        cascade = kind()
        known = set(cascade.get_params(deep=False))
        for key in self.parameters:
            if key not in known:
                raise _refused(str(key), f"be a parameter of {self.name}", "another name")
        columns = self.schema.names if self.schema.kind is not None else None
        for name, model in self.models.items():
            if isinstance(model, EstimatorFull):
                own = columns_of.get(name, tuple(range(n_columns)))
                called = None if columns is None else tuple(columns[column] for column in own)
                _check_model(model, self.task, len(own), called)
            elif isinstance(model, PrecomputedFull):
                models_of(self.task).read_outputs(model.values, None, f"values of {name[:60]} in the file")
        learned: dict[str, Any] = {
            "router_": self.router,
            "task_": self.task,
            "schema_": self.schema,
            "models_": self.models,
            "model_prices_": self.model_prices,
            "seconds_": self.seconds,
            "decision_seconds_": self.decision_seconds,
            "reads_columns_": state.model is not None,
            "reference_": self.reference,
            "columns_of_": columns_of,
            "free_columns_": free,
            "retrained_": self.retrained,
            "n_features_in_": n_columns,
            "_levels": self.schema.levels,
        }
        if columns is not None:
            learned["feature_names_in_"] = np.array(columns, dtype=object)
        if is_classifier:
            learned |= {"classes_": classes, "pooling_": self.pooling}
        else:
            learned["largest_loss_"] = self.largest_loss
        for key, value in (self.parameters | learned).items():
            setattr(cascade, key, value)
        cascade._named_models()
        cascade._name_numbers()
        return cascade


def _not_saved(name: str) -> InvalidInputError:
    return InvalidInputError(
        f"a file holds a Chain, a model whose arrays are known, or one of "
        f"{', '.join(sorted([*_ESTIMATORS, *_CASCADES]))}; got "
        f"{name}. Save its chain_, or make the class known with thrifty.bundle.register_estimator."
    )


def _is_plain(value: Any, writer: Any) -> bool:
    try:
        writer().value(value)
    except NotPlainError:
        return False
    return True


def _is_attribute(name: str) -> bool:
    learned = name.isidentifier() and name.endswith("_") and not name.startswith("_")
    return learned and name not in _KNOWN_OTHERWISE


def _from_chain(chain: Chain) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "chain_": chain,
        "n_features_in_": chain.price_list.n_features,
        "features_": chain.columns if chain.policy.is_measured else chain.stages[0].columns,
    }
    if len(chain.classes):
        attributes["classes_"] = chain.classes
    if chain.names is not None:
        attributes["feature_names_in_"] = np.array(chain.names, dtype=object)
    return attributes


def _about(evidence: Evidence, chain: Chain) -> Evidence:
    """Evidence about a chain, checked against it."""
    n_rows, n_stages = evidence.gate.shape
    n_classes, strata, weight = len(chain.classes), evidence.strata, evidence.weight
    is_ranking = isinstance(chain.task, RankingTask)
    right, unit = evidence.right, evidence.unit
    rules = {
        f"know {chain.n_own_stages} stages": n_stages == chain.n_own_stages and n_rows > 0,
        "be of queries where documents are ranked": is_ranking == (unit is not None),
        "have costs of at least 0": not np.any(evidence.cost < 0),
        "know costs in the resources of the prices": (
            None if chain.price_list.resources is None else len(chain.price_list.resources.names)
        )
        == (None if evidence.costs is None else evidence.costs.shape[-1]),
        "have operating points": evidence.points is not None or n_stages == 1,
        "have a weight of at least 0 for each row": weight is None
        or (weight.shape == (n_rows,) and not np.any(weight < 0) and bool(np.any(weight > 0))),
        "number the class of each row": strata is None
        or (strata.shape == (n_rows,) and n_classes > 0 and int(strata.max()) < n_classes),
        "say of each row and place whether it is right": right is None
        or right.shape == (n_rows, n_stages + 1),
    }
    for rule, holds in rules.items():
        if not holds:
            raise InvalidInputError(f"evidence in the file must {rule}.")
    return replace(
        evidence,
        features=tuple(chain.columns.tolist()),
        tolerance=chain.task.tolerance,
        task=chain.task,
        unit=replace(unit, task=chain.task) if unit and isinstance(chain.task, RankingTask) else unit,
    )


def _refused(name: str, rule: str, value: Any) -> InvalidInputError:
    return InvalidInputError(f"{name[:60]} in the file must {rule}; got {str(value)[:60]}.")


# -- objects as files of version 0.3 hold them --------------------------------------------------------
# Such a class has the name and the fields of the former one.


@register
@dataclass(frozen=True, eq=False)
class QueryEvidence:
    """Evidence of a ranking, with the queries among its fields; see ``Evidence`` and ``RankedQueries``."""

    gate: Floats
    quality: Numbers
    cost: Floats
    task: RankingTask
    document_targets: Floats
    full_quality: Numbers | None = None
    points: Floats | None = None
    weight: Floats | None = None
    features: tuple[int, ...] = ()
    rows: Words | None = None
    seen: Words | None = None
    strata: Codes | None = None
    right: Bools | None = None
    tolerance: float = 0.0
    optimism: Floats | None = None
    against: bool = False

    def restored(self) -> Evidence:
        """The evidence, with its queries as units."""
        names = set(self.__dataclass_fields__) - {"document_targets", "against"}
        unit = RankedQueries(self.document_targets, self.task, self.against).validate()
        return Evidence(**{name: getattr(self, name) for name in names}, unit=unit)


register(QueryEvidence, infinite=("points",))


@register
@dataclass(frozen=True)
class RouterCertificate:
    """Certificate of a router; see ``Certificate`` and ``CostCertificate``."""

    measure: str
    bound: float
    limit: float
    confidence: float
    n_rows: int
    against: str = ""
    n_next: int = 0

    def restored(self) -> Certificate | CostCertificate:
        """The certificate; equal rows counted as independent ones."""
        if self.measure == "bill":
            return CostCertificate(self.limit, self.bound, self.confidence, self.n_rows, self.n_next)
        return Certificate(
            max_loss=self.limit,
            confidence=self.confidence,
            n_rows=self.n_rows,
            n_losses=None,
            bound=self.bound,
            n_candidates=1,
            n_tested=1,
            failed_losses=None,
            failed_bound=None,
            point=None,
            is_fallback=False,
            n_given=self.n_rows,
            n_repeated=None,
            n_seen=None,
            duplicates="count",
            issued="",
            rows=None,
            largest=1.0,
            against=self.against,
        )


# -- to bytes, and back ----------------------------------------------------------------------------------


class _Lowering:
    """Stored form of each object.

    Parameters
    ----------
    full : {"inside", "outside", "absent"}
        What becomes of the full model.
    evidence : bool
        Whether the rows that operating points were evaluated on are written.
    """

    def __init__(self, full: FullMode, evidence: bool) -> None:
        self.full, self.evidence = full, evidence
        self.outside = ""
        self.outside_models: list[str] = []

    def __call__(self, thing: Any) -> Any:
        if isinstance(thing, Chain):
            return self._chain(thing)
        if isinstance(thing, TreeEnsemble):
            return _saved_trees(thing)
        if isinstance(thing, ModelRouter):
            return SavedRouter.of(thing)
        if isinstance(thing, ModelCascade):
            check_is_fitted(thing, "router_")
            models, self.outside_models = models_to_store(thing, self.full)
            return SavedCascade.of(thing, models, writer=lambda: ObjectWriter(self))
        if isinstance(thing, ChainEstimator):
            _check_nested(thing)
            return SavedEstimator.of(thing, evidence=self.evidence, writer=lambda: ObjectWriter(self))
        if type(thing) is EstimatorFull:  # the cheap model of a router
            saved = as_stored(thing)
            if saved is None:
                raise InvalidInputError(
                    f"a {type(thing.estimator).__name__} has no form in a file, and the cheap model is part of what "
                    f"serves. Use trees, a linear model or a support vector machine as the cheap model."
                )
            return saved
        if isinstance(thing, Prices):
            by_row = {
                column: ForgottenFunction(column) if callable(source) else source
                for column, source in thing.by_row.items()
            }
            return replace(thing, by_row=by_row)
        return thing

    def _chain(self, chain: Chain) -> Chain:
        _check_nested(chain)
        for stage in chain.stages:
            cheap = getattr(stage, "cheap", None)
            is_data = type(cheap) in (EstimatorFull, PrecomputedFull, AbsentFull)
            if isinstance(stage, ForeignStage) and not is_data:
                raise InvalidInputError(
                    f"a {type(cheap).__name__} is code, and a file holds only data: a cheap model must be an "
                    f"estimator."
                )
            if known_name(stage) is None:
                raise InvalidInputError(
                    f"a file has no form for the stage {type(stage).__name__}. Make it a dataclass of arrays, and "
                    f"known with thrifty.bundle.register."
                )
        full, outside = full_to_store(chain, self.full)
        self.outside = outside or self.outside
        types = None if chain.types is None else tuple(map(_plain_type, chain.types))
        prices = _without_functions(chain.price_list, chain.names)
        return replace(chain, full=full, price_list=prices, types=types)


def _saved_trees(trees: TreeEnsemble) -> Any:
    is_leaf = trees.children < 0
    if trees.sets is not None or not np.array_equal(children_of(is_leaf, trees.node_offsets), trees.children):
        return trees
    names = [name for name in trees.__dataclass_fields__ if name not in ("children", "sets")]
    return SavedTrees(is_leaf=is_leaf, **{name: getattr(trees, name) for name in names})


def _plain_type(column: ColumnType) -> ColumnType:
    """Categories that are neither text, numbers nor truth values, such as intervals, as text."""
    categories = column.categories or ()
    is_plain = all(
        type(category) in (str, bool, int) or (type(category) is float and np.isfinite(category))
        for category in categories
    )
    return column if is_plain else replace(column, categories=tuple(map(level_text, categories)))


def _without_functions(prices: PriceList, names: tuple[str, ...] | None) -> PriceList:
    """Prices by row with placeholders for their functions, which no file keeps."""
    if prices.by_row is None:
        return prices
    first = [int(np.flatnonzero(prices.group_of == purchase)[0]) for purchase in prices.by_row.purchases]
    called = [column if names is None else names[column] for column in first]
    functions = tuple(
        None if function is None else ForgottenFunction(name)
        for name, function in zip(called, prices.by_row.functions, strict=True)
    )
    return replace(prices, by_row=replace(prices.by_row, functions=functions))


def _lifted(thing: Any) -> Any:
    """Final form of an object that was read."""
    if isinstance(
        thing, SavedTrees | SavedEstimator | SavedRouter | SavedCascade | QueryEvidence | RouterCertificate
    ):
        return thing.restored()
    if isinstance(thing, Chain):
        _check_nested(thing)
        return _with_checked_models(thing)
    return thing


def _with_checked_models(chain: Chain) -> Chain:
    """The chain, whose models suit its columns and its task."""
    full = chain.full
    if not isinstance(full, EstimatorFull | PrecomputedFull | AbsentFull | Chain):
        raise _refused("full", "be a model", type(full).__name__)
    if isinstance(full, EstimatorFull):
        _check_model(full, chain.task, *columns_of_full(chain))
    if isinstance(full, PrecomputedFull):
        full = replace(
            full, values=models_of(chain.task).read_outputs(full.values, None, "values in the file")
        )
    for stage in chain.stages:
        if isinstance(stage, ForeignStage) and isinstance(stage.cheap, EstimatorFull):
            _check_model(stage.cheap, chain.task, len(stage.columns), None)
        elif isinstance(stage, ForeignStage) and not isinstance(stage.cheap, PrecomputedFull | AbsentFull):
            raise _refused("cheap", "be a model", type(stage.cheap).__name__)
    return replace(chain, full=full)


def _check_model(model: EstimatorFull, task: Any, n_columns: int, names: Any) -> None:
    as_full_model(model.estimator, task, n_columns, names=names)
    if model.task != task:
        raise _refused("model", "answer the task of its chain", type(model.task).__name__)


def _check_nested(thing: Any, level: int = 0) -> None:
    """Refuse deeply nested chains: they predict by recursion, which must not exhaust the interpreter."""
    if level >= _MAX_NESTED:
        raise InvalidInputError(
            f"a file holds at most {_MAX_NESTED} chains and estimators within one another; here are more. "
            f"Make them one chain of stages."
        )
    chain = getattr(thing, "chain_", thing)
    if not isinstance(chain, Chain):
        return
    for model in (chain.full, *(getattr(stage, "cheap", None) for stage in chain.stages)):
        _check_nested(getattr(model, "estimator", model), level + 1)


def to_bytes(
    thing: Any, *, full: FullMode = "inside", evidence: bool = True, private_key: Any = None
) -> bytes:
    """Bytes of the file that ``save`` would write."""
    if full not in get_args(FullMode):
        raise InvalidInputError(
            f"full must be one of {', '.join(map(repr, get_args(FullMode)))}; got {full!r}."
        )
    key = None if private_key is None else check_key("private_key", private_key)
    lowering = _Lowering(full, evidence)
    is_known = (
        isinstance(thing, Chain | ChainEstimator | ModelRouter | ModelCascade)
        or known_name(thing) is not None
    )
    stored = thing if is_known else stored_model_of(thing)
    if stored is None:
        raise _not_saved(type(thing).__name__)
    writer = ObjectWriter(lowering)
    writer.object(stored)
    if lowering.outside:
        warnings.warn(
            f"the full model, a {lowering.outside}, has no form in a file and stays outside: give it again with "
            f"load(path, full=model). Rows that stop before it need none. full='outside' "
            f"silences this warning.",
            FullModelOutsideWarning,
            stacklevel=3,
        )
    if lowering.outside_models:
        names = ", ".join(map(repr, lowering.outside_models))
        given = ", ".join(f"{name!r}: ..." for name in lowering.outside_models)
        warnings.warn(
            f"estimators without a form in a file stay outside: {names}. Give them again with load(path, "
            f"estimators={{{given}}}). full='outside' silences this warning.",
            FullModelOutsideWarning,
            stacklevel=3,
        )
    data = pack(Contents({"thrifty": __version__, "objects": writer.objects}, writer.arrays))
    return data if key is None else sign(data, key)


def from_bytes(
    data: bytes,
    *,
    full: Any = None,
    estimators: Any = None,
    wrap: Callable[[FullModel], FullModel] | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    public_key: Any = None,
) -> Any:
    """Object that ``load`` would read from a file of these bytes; models given are asked through ``wrap(model)``."""
    try:
        contents = unpack(without_signature(data, public_key), max_bytes=max_bytes)
        thing = ObjectReader(contents.facts.get("objects"), contents.arrays, _lifted).root()
    except RecursionError:
        raise InvalidInputError("the file is nested too deep to be one that `save` wrote.") from None
    if isinstance(thing, ModelCascade) and full is None:
        return thing if estimators is None else with_given_models(thing, estimators, wrap)
    if estimators is not None or isinstance(thing, ModelCascade):
        named = "full" if estimators is None else "estimators"
        raise InvalidInputError(
            f"{named} is not for a {type(thing).__name__}, which is what the file holds: estimators= gives those of a "
            f"CascadeClassifier or CascadeRegressor, full= the full model of others."
        )
    if full is None and isinstance(thing, StoredModel | ModelRouter | Chain | ChainEstimator):
        return thing
    if isinstance(thing, Chain):
        return with_given_full(thing, full, wrap)
    if not isinstance(thing, ChainEstimator):
        raise InvalidInputError(f"the file must hold a chain or an estimator; got {type(thing).__name__}.")
    thing._change_chain(lambda chain: with_given_full(chain, full, wrap))
    return thing
