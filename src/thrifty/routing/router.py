"""``ModelRouter``: many models with prices, one budget.

An answer of a model is a column with a price: the router buys answers one after another, looks at whether they agree,
and stops for each row when another answer is not worth its price. ``quality`` has what is expected before asking,
``policy`` the rules and how they are learned, ``logs`` the checks of what a log holds.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.stats import norm, skew
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from thrifty.arrays import Floats, Ints, Labels, Words
from thrifty.errors import InvalidInputError
from thrifty.estimators.base import all_or_nothing
from thrifty.estimators.checks import check_count, check_seed, validated
from thrifty.evidence.tests import betting_bound, check_confidence, check_max_loss
from thrifty.plots import draw_frontier
from thrifty.routing.logs import (
    MIN_ROWS,
    ModelPrice,
    answer_codes,
    check_models,
    check_price,
    check_propensity,
    check_quality,
    complete,
    costs_of,
    is_text,
    matrix,
    normalise,
    tokens_in,
    whole_rows,
)
from thrifty.routing.policy import (
    Log,
    Walked,
    choose_pool,
    concave_hull,
    judge,
    learn_families,
    walk,
)
from thrifty.routing.quality import QualityModel, TextReader, crossfit, learn_text_reader, ridge
from thrifty.routing.session import RouterSession
from thrifty.rows import fingerprints, key_chance, key_words
from thrifty.threads import limited_threads

MAX_POOL = 8
"""Models that the policy chooses from: those of the best cascades and those nearest the Pareto front."""

N_FOLDS = 5
_FEW_ROWS = 10
"""Rows that a model must be known of to be added."""

_N_NEXT = 0.5
"""With ``confidence``, the budget is held over this many new rows for each row of the log."""


class Replay(NamedTuple):
    """What the policy would have done on a log, row by row."""

    asked: Labels
    """Names of the models asked, in order, "" behind the last; shape (n_rows, most asks)."""
    model: Labels
    """Name of the model whose answer was taken."""
    cost: Floats
    quality: Floats


@dataclass(frozen=True, eq=False)
class RouterFrontier:
    """Operating points on the concave hull of mean cost and quality, judged out of fold.

    Attributes
    ----------
    cost, quality : ndarray of shape (n_points,)
        Means per row.
    standard_error : ndarray of shape (n_points,)
        Standard error of the mean quality.
    rule : tuple of str
        Kind of rule of each point.
    single_cost, single_quality : ndarray of shape (n_models,)
        Each model alone, in the order of ``models``.
    """

    cost: Floats
    quality: Floats
    standard_error: Floats
    rule: tuple[str, ...]
    single_cost: Floats
    single_quality: Floats

    def quality_at(self, budget: Any) -> Any:
        """Mean quality at a budget, between two points by mixing them; NaN below the least cost."""
        found = np.interp(budget, self.cost, self.quality)
        return np.where(np.asarray(budget) < self.cost[0], np.nan, found)

    def plot(self, ax: Any = None, **line: Any) -> Any:
        """Draw quality against mean cost on matplotlib axes, beside the single models, and return them."""
        labels = ("mean cost per row", "mean quality")
        ax = draw_frontier(ax, self.cost, self.quality, labels, steps=False, **line)
        ax.plot(self.single_cost, self.single_quality, "x", color="grey", label="single models")
        return ax

    @property
    def aiq(self) -> float:
        """Average improvement in quality (RouterBench): mean quality over budgets up to the dearest model's cost."""
        low, high = float(self.cost[0]), float(self.single_cost.max())
        at = np.unique([low, high, *self.cost[(self.cost > low) & (self.cost < high)]])
        value = np.interp(at, self.cost, self.quality)
        return float(np.trapezoid(value, at) / (high - low)) if high > low else float(value[0])

    def gap_recovered(self, budget: Any) -> Any:
        """Share of the quality gap between the cheapest and the best model that a budget recovers (PGR)."""
        weak = float(self.single_quality[self.single_cost.argmin()])
        best = float(self.single_quality.max())
        return (self.quality_at(budget) - weak) / max(best - weak, 1e-12)

    @property
    def apgr(self) -> float:
        """Mean gap recovered over budgets from the cheapest to the best model's cost (RouteLLM's APGR)."""
        low, high = self.single_cost.min(), self.single_cost[self.single_quality.argmax()]
        return float(np.nanmean(self.gap_recovered(np.linspace(max(low, self.cost[0]), high, 101))))

    def cpt(self, share: float) -> float:
        """Least budget that recovers a share of the gap, as a share of the way to the best model's cost; or NaN."""
        low, high = self.single_cost.min(), self.single_cost[self.single_quality.argmax()]
        budgets = np.linspace(max(low, self.cost[0]), self.cost[-1], 2001)
        enough = np.flatnonzero(self.gap_recovered(budgets) >= share - 1e-12)
        return (
            float((budgets[enough[0]] - low) / (high - low)) if len(enough) and high > low else float("nan")
        )


@dataclass(frozen=True)
class RouterCertificate:
    """What was proved on rows that the router was not fitted on.

    Attributes
    ----------
    measure : {"quality", "bill"}
        Whether mean quality lost against ``against``, or the mean cost of the next rows, is bounded.
    bound, limit : float
        Upper bound, and the limit that was asked for.
    confidence : float
        Confidence of the bound.
    n_rows : int
        Rows that it was proved on.
    against : str
        The model compared with; empty for bills.
    n_next : int
        Number of next rows that a bill is for; 0 for quality.
    """

    measure: str
    bound: float
    limit: float
    confidence: float
    n_rows: int
    against: str = ""
    n_next: int = 0

    def __str__(self) -> str:
        share = f"with confidence {self.confidence:g}, from {self.n_rows:,} rows"
        if self.measure == "bill":
            return f"the next {self.n_next:,} rows cost at most {self.bound:.4g} a row, {share}"
        return f"mean quality is at most {self.bound:.4f} below that of {self.against}, {share}"


@dataclass(frozen=True, eq=False)
class RouterState:
    """What a fit learned; a file holds it.

    Attributes
    ----------
    names, pool : tuple of str
        All models, and those that the policy chooses from, cheapest first.
    reader : TextReader or None
        Reads texts; None where rows are tables.
    model : QualityModel
        Expected quality and cost.
    log, folds, keys : Log, ndarray, ndarray
        Training rows with what was expected of them out of fold, their folds, and fingerprints of their content.
    tokens : ndarray or None
        Tokens of each text.
    evidence_mean : ndarray of shape (n_pool,)
        Stands for evidence that is missing.
    families, family_names : tuple
        Rules, learned from all rows.
    point_family, point_place : ndarray of shape (n_points,)
        The rule of each point of the frontier.
    point_quality, point_cost : ndarray of shape (n_rows, n_points)
        Each row under each rule, judged out of fold.
    single_cost, single_quality : ndarray of shape (n_models,)
        Means of each model alone.
    n_features : int
        Columns of tables; 0 for texts.
    columns : tuple of str or None
        Their names, where they have any.
    silent : tuple of str
        Models that were added later: the log does not know their answers, which are not compared.
    """

    names: tuple[str, ...]
    pool: tuple[str, ...]
    reader: TextReader | None
    model: QualityModel
    log: Log
    folds: Ints
    keys: Words
    tokens: Floats | None
    evidence_mean: Floats
    families: tuple[Any, ...]
    family_names: tuple[str, ...]
    point_family: Ints
    point_place: Ints
    point_quality: Floats
    point_cost: Floats
    single_cost: Floats
    single_quality: Floats
    n_features: int
    columns: tuple[str, ...] | None = None
    silent: tuple[str, ...] = ()

    @property
    def best_single(self) -> int:
        """The single model of the highest quality; the cheaper of equals."""
        return int(np.lexsort((self.single_cost, -np.round(self.single_quality, 6)))[0])

    def validate(self) -> "RouterState":
        """Refuse parts that do not fit together."""
        n_points, n_pool = len(self.point_family), len(self.pool)
        if not 2 <= n_pool == self.log.n_models <= MAX_POOL:
            raise InvalidInputError(f"a router must choose from 2 to {MAX_POOL} models; got {n_pool}.")
        rules = {
            "have pool models among its models": set(self.pool) <= set(self.names),
            "have expectations of each pool model": len(self.model.mean) == n_pool,
            "know the family and the rule of each point": n_points > 0
            and len(self.families) == len(self.family_names)
            and self.point_place.shape == self.point_family.shape
            and all(0 <= one < len(self.families) for one in self.point_family)
            and all(
                0 <= place < self.families[family].n_rules
                for family, place in zip(self.point_family, self.point_place, strict=True)
            ),
            "have rules that suit its log": all(one.suits(self.log) for one in self.families),
            "know each row under each point": self.point_cost.shape == (len(self.log), n_points)
            and self.point_quality.shape == (len(self.log), n_points),
            "know the models whose answers are not compared": set(self.silent) <= set(self.names),
            "know each model alone": self.single_cost.shape
            == self.single_quality.shape
            == (len(self.names),),
        }
        for rule, holds in rules.items():
            if not holds:
                raise InvalidInputError(f"a router must {rule}.")
        return self


class _Choice(NamedTuple):
    """Two points of the frontier, and the share of rows that follow the second."""

    low: int
    high: int
    share: float


class ModelRouter(BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Many models with prices, one budget: which models to ask about each row, and whose answer to take.

    Learned from a log: what each model answered to each row, whether that was right, and what it cost. Single models,
    routing by the row, fixed cascades (ask two, a third where they disagree) and a dynamic programme over sets of asked
    models are compared out of fold and mixed, so that the mean cost per row is the budget.

    Parameters
    ----------
    models : dict from str to price, or list of str
        The models. A price is a number per call, a pair of dollars per million tokens in and out, or a function of the
        row. A list of names where ``fit`` is given what was billed.
    budget : float, default=None
        Mean cost per row; None is the best quality at any cost.
    max_asks : int, default=3
        Models that may be asked about one row.
    confidence : float, default=None
        With 0.95, a margin is kept so that the mean cost of half as many new rows as the log has stays below the
        budget, as estimated from the rows of the fit; ``certified`` proves it on new ones. None keeps no margin.
    random_state : int, RandomState or None, default=0
        Seed of folds and trees.

    Attributes
    ----------
    pool_ : list of str
        Models that the policy chooses from, cheapest first.
    frontier_ : RouterFrontier
        Mean cost and quality of the operating points.
    expected_cost_, expected_quality_ : float
        Mean cost and quality at the budget, judged out of fold.
    certificate_ : RouterCertificate or None
        What ``certified`` proved.

    Examples
    --------
    >>> import numpy as np
    >>> from thrifty import ModelRouter
    >>> rng = np.random.default_rng(0)
    >>> hard = rng.random(400)
    >>> X = np.column_stack([hard, rng.random(400)])
    >>> quality = np.column_stack([rng.random(400) > hard, rng.random(400) > 0.1])
    >>> router = ModelRouter({"small": 1.0, "large": 10.0}, budget=4.0).fit(X, quality)
    >>> list(router.predict([[0.05, 0.5], [0.95, 0.5]]))
    ['small', 'large']
    >>> session = router.start(X[0])
    >>> while session.next_ask is not None:
    ...     session = session.give(f"what {session.next_ask} says")
    >>> session.answer == f"what {session.model} says"
    True
    """

    normalise = staticmethod(normalise)
    """Canonical form in which answers are compared, None where nothing could be parsed; a subclass may replace it."""

    def __init__(
        self,
        models: Any = None,
        budget: float | None = None,
        max_asks: int = 3,
        confidence: float | None = None,
        random_state: Any = 0,
    ) -> None:
        self.models = models
        self.budget = budget
        self.max_asks = max_asks
        self.confidence = confidence
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags

    # -- learning --------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        quality: Any,
        cost: Any = None,
        answers: Any = None,
        evidence: Any = None,
        propensity: Any = None,
    ) -> Self:
        """Learn from a log.

        Parameters
        ----------
        X : list of str, or table of shape (n_rows, n_features)
            Texts, or numbers: a table or embeddings.
        quality : array-like of shape (n_rows, n_models)
            In [0, 1], or right and wrong; NaN where a model was not asked. Columns of data frames are found by name.
        cost : array-like of shape (n_rows, n_models), optional
            What was billed; unless given, by the prices of the models.
        answers : array-like of shape (n_rows, n_models), optional
            Texts, or labels that are equal within a row where answers are; None, NaN, "" or a negative number where
            nothing could be parsed. Without them and without evidence one model is asked about each row.
        evidence : array-like of shape (n_rows, n_models), optional
            A number known after asking, such as a log-probability.
        propensity : array-like of shape (n_rows, n_models) or (n_rows,), optional
            Probability with which each model was asked, for logs in which not all were.
        """
        prices = check_models(self.models)
        max_asks = check_count("max_asks", self.max_asks)
        seed = check_seed(self.random_state)
        self._check_goal(self.budget, self.confidence)
        names = tuple(prices)
        with all_or_nothing(self), limited_threads(openmp=1, blas=1):
            is_texts = is_text(X)
            rows = list(X) if is_texts else validated(self, X, reset=True)
            n_rows = len(rows)
            if n_rows < MIN_ROWS:
                raise InvalidInputError(
                    f"a log must have at least {MIN_ROWS} rows to learn from; got {n_rows}. Log more rows."
                )
            scores = check_quality(quality, names, n_rows)
            costs = costs_of(X, cost, answers, prices, n_rows)
            codes = None if answers is None else answer_codes(answers, names, n_rows, self.normalise)
            shown = (
                None if evidence is None else matrix("evidence", evidence, names, n_rows).astype(np.float64)
            )
            known = ~np.isnan(scores)
            asked = check_propensity(propensity, known, names)
            kept, partial = whole_rows(scores, costs, propensity)
            if not kept.all():
                rows = [row for row, keep in zip(rows, kept, strict=True) if keep] if is_texts else rows[kept]
                scores, costs, asked = scores[kept], costs[kept], asked[kept]
                codes = None if codes is None else codes[kept]
                shown = None if shown is None else shown[kept]
            keys = key_words(rows) if is_texts else fingerprints(rows)
            folds = np.unique(key_chance(keys, seed), return_inverse=True)[1] % N_FOLDS
            if len(np.unique(folds)) < N_FOLDS:
                raise InvalidInputError(
                    f"X must have at least {N_FOLDS} different rows; got {len(np.unique(keys))}."
                )
            reader = learn_text_reader(rows, seed) if is_texts else None
            Z: Floats = np.asarray(rows) if reader is None else reader.transform(rows)
            if partial:
                scores, costs = complete(Z, scores, costs, asked, folds, names)
                codes = shown = None
            pool = choose_pool(names, scores, costs, codes, MAX_POOL)
            model, prior, expected = crossfit(Z, scores[:, pool], costs[:, pool], folds, seed)
            evidence_mean = np.zeros(len(pool))
            names_in = getattr(self, "feature_names_in_", None)
            if shown is not None:
                shown = shown[:, pool]
                evidence_mean = np.array(
                    [one[np.isfinite(one)].mean() if np.isfinite(one).any() else 0.0 for one in shown.T]
                )
                shown = np.where(np.isfinite(shown), shown, evidence_mean)
            log = Log(
                prior,
                expected,
                scores[:, pool],
                costs[:, pool],
                None if codes is None else codes[:, pool],
                shown,
            )
            self._state = _learn_policy(
                RouterState(
                    names=names,
                    pool=tuple(names[model] for model in pool),
                    reader=reader,
                    model=model,
                    log=log,
                    folds=folds,
                    keys=keys,
                    tokens=tokens_in(rows) if is_texts else None,
                    evidence_mean=evidence_mean,
                    single_cost=costs.mean(axis=0),
                    single_quality=scores.mean(axis=0),
                    n_features=0 if is_texts else int(Z.shape[1]),
                    columns=None if is_texts or names_in is None else tuple(map(str, names_in)),
                    **_NO_POLICY,
                ),
                max_asks,
            )
            self._go_to(self.budget, self.confidence)
        return self

    def _check_goal(self, budget: Any, confidence: Any) -> None:
        if budget is not None and not (
            isinstance(budget, int | float | np.number) and not isinstance(budget, bool) and budget > 0
        ):
            raise InvalidInputError(f"budget must be positive; got {budget!r}. It is the mean cost of a row.")
        if confidence is not None:
            check_confidence(confidence)

    def _go_to(self, budget: float | None, confidence: float | None) -> None:
        """Choose the points to mix, and say what is expected of them."""
        choice = _choose(self._state, budget, confidence)
        self._set_choice(choice)

    def _set_choice(self, choice: _Choice) -> None:
        state = self._state
        self._choice = choice
        self.pool_ = list(state.pool)
        self.expected_cost_ = _mixed_mean(state.point_cost, choice)
        self.expected_quality_ = _mixed_mean(state.point_quality, choice)
        self.certificate_: RouterCertificate | None = None

    def _restore(
        self, state: RouterState, choice: tuple[int, int, float], certificate: RouterCertificate | None
    ) -> Self:
        """Take the place of the router that a file was written from."""
        self._state = state
        if state.reader is None:
            self.n_features_in_ = state.n_features
        if state.columns is not None:
            self.feature_names_in_ = np.array(state.columns, dtype=object)
        self._set_choice(_Choice(*choice))
        self.certificate_ = certificate
        return self

    # -- other settings of the same fit ------------------------------------------------------------

    def at(self, *, budget: float | None = None, confidence: float | None = None) -> Self:
        """Return the same fit at another budget; nothing is learned again."""
        state = self._fitted()
        self._check_goal(budget, confidence)
        other = copy.copy(self)
        other._choice = _choose(state, budget, confidence)
        other.budget, other.confidence = budget, confidence
        other._set_choice(other._choice)
        return other

    def with_prices(self, prices: Mapping[str, Any]) -> Self:
        """Return a router for other prices of some models: the policy is learned again, expectations are kept.

        A price per token may change in its two parts differently where rows are texts, whose tokens are known.
        """
        state = self._fitted()
        log, old = state.log, check_models(self.models)
        costs, expected = log.cost.copy(), log.expected.copy()
        single, factor = state.single_cost.copy(), state.model.cost_factor.copy()
        for name, given in prices.items():
            if name not in state.names:
                raise InvalidInputError(
                    f"prices must be of models that are known; got {name!r}. with_model adds one."
                )
            before, after = old[name], check_price(name, given)
            ratio: Any
            if isinstance(before, float) and isinstance(after, float):
                ratio = after / before
            elif isinstance(before, tuple) and isinstance(after, tuple):
                parts = after[0] / before[0], after[1] / before[1]
                ratio = parts[0]
                if not np.isclose(*parts):
                    if state.tokens is None or name not in state.pool:
                        raise InvalidInputError(
                            f"the prices in and out of {name!r} must change by the same factor where tokens are not "
                            f"known; got {parts[0]:.3g} and {parts[1]:.3g}. Fit again with the new costs."
                        )
                    billed = log.cost[:, state.pool.index(name)]
                    asked = np.minimum(before[0] * state.tokens / 1e6, billed)
                    ratio = (asked * parts[0] + (billed - asked) * parts[1]) / np.maximum(billed, 1e-300)
            else:
                raise InvalidInputError(
                    f"the new price of {name!r} must be of the same kind as {before!r}; got {given!r}."
                )
            if name in state.pool:
                place = state.pool.index(name)
                mean = costs[:, place].mean()
                costs[:, place] *= ratio
                change = float(costs[:, place].mean() / mean)
                expected[:, place] *= change
                factor[place] *= change
            else:
                change = float(ratio)
            single[state.names.index(name)] *= change
        changed = replace(
            state,
            log=replace(log, cost=costs, expected=expected),
            single_cost=single,
            model=replace(state.model, cost_factor=factor),
        )
        return self._relearned(
            changed, {**old, **{name: check_price(name, one) for name, one in prices.items()}}
        )

    def with_model(self, name: str, price: Any, X: Any, quality: Any, cost: Any = None) -> Self:
        """Return a router that may also ask a new model, of which only few rows are known.

        Its expected quality is a linear combination of those of the other models, learned from the few rows; the policy
        is learned again. Answers of the new model are not compared with others until the router is fitted again.

        Parameters
        ----------
        name : str
            The new model.
        price : float or pair of float
            Its price, as in ``models``; a price per token needs ``cost``.
        X : rows as in ``fit``
            At least ten rows that it was asked about.
        quality : array-like of shape (n_rows,)
            How good its answers were, in [0, 1].
        cost : array-like of shape (n_rows,), optional
            What was billed for them.
        """
        state, prices = self._fitted(), check_models(self.models)
        new = check_models({**prices, name: price}) if name not in prices else {}
        if not new:
            raise InvalidInputError(
                f"name must be that of a new model; {name!r} is known. Fit again to change it."
            )
        prior, _, _ = self._before_asking(X)
        scores = check_quality(np.reshape(quality, (-1, 1)), [name], len(prior))[:, 0]
        if len(scores) < _FEW_ROWS or np.isnan(scores).any():
            raise InvalidInputError(
                f"quality of {name!r} must be known in at least {_FEW_ROWS} rows; got {int((~np.isnan(scores)).sum())}."
            )
        billed = None if cost is None else np.reshape(cost, (-1, 1))
        spent = float(costs_of(X, billed, None, {name: new[name]}, len(scores)).mean())
        found = ridge(np.column_stack([np.ones(len(prior)), prior]), scores[:, None], 10.0)[:, 0]
        log, n_rows = state.log, len(state.log)
        expected = found[0] + log.prior @ found[1:]
        constant = np.full(n_rows, spent)
        whole = Log(
            np.column_stack([log.prior, expected]),
            np.column_stack([log.expected, constant]),
            np.column_stack([log.quality, np.clip(expected, 0.0, 1.0)]),
            np.column_stack([log.cost, constant]),
            None if log.answers is None else np.column_stack([log.answers, np.full(n_rows, -1)]),
            None if log.evidence is None else np.column_stack([log.evidence, np.zeros(n_rows)]),
        )
        model = state.model.with_combination(float(found[0]), found[1:], spent)
        pool, kept = (*state.pool, name), np.arange(len(state.pool) + 1)
        if len(pool) > MAX_POOL:
            best = choose_pool(pool[:-1], log.quality, log.cost, log.answers, MAX_POOL - 1)
            kept = np.array([*np.sort(best), len(pool) - 1])
        changed = replace(
            state,
            names=(*state.names, name),
            pool=tuple(pool[one] for one in kept),
            model=model.take(kept),
            log=whole.take(kept),
            evidence_mean=np.append(state.evidence_mean, 0.0)[kept],
            single_cost=np.append(state.single_cost, spent),
            single_quality=np.append(state.single_quality, whole.quality[:, -1].mean()),
            silent=(*state.silent, name),
        )
        return self._relearned(changed, new)

    def _relearned(self, state: RouterState, models: dict[str, ModelPrice]) -> Self:
        """The router with a policy that is learned again from a changed state."""
        other = copy.copy(self)
        other.models = models
        with limited_threads(openmp=1, blas=1):
            other._state = _learn_policy(state, int(self.max_asks))
        other._go_to(self.budget, self.confidence)
        return other

    # -- answers -----------------------------------------------------------------------------------

    def _fitted(self) -> RouterState:
        check_is_fitted(self, "_state")
        state: RouterState = self._state
        return state

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_state")

    def _price_of(self, name: str) -> ModelPrice:
        return check_models(self.models)[name]

    def _read(self, X: Any) -> tuple[Floats, Words]:
        """Rows as numbers, and their keys."""
        state = self._fitted()
        if state.reader is None:
            # One row of a session has no names; scikit-learn would warn of it.
            plain = state.columns is not None and isinstance(X, np.ndarray) and X.dtype.kind == "f"
            has_width = plain and X.ndim == 2 and X.shape[1] == state.n_features
            Z = X.astype(np.float64) if has_width else validated(self, X, reset=False)
            return Z, fingerprints(Z)
        if not is_text(X):
            raise InvalidInputError(f"X must be a list of texts, as in fit; got {type(X).__name__}.")
        return state.reader.transform(list(X)), key_words(list(X))

    def _before_asking(self, X: Any) -> tuple[Floats, Floats, Floats]:
        """Expected quality and cost of the pool, and a number in (0, 1) for each row, fixed by its content."""
        Z, keys = self._read(X)
        prior, expected = self._fitted().model.predict(Z)
        return prior, expected, key_chance(keys)

    def _rule_of(self, chance: float) -> tuple[int, int]:
        return self._mixed_rules()[int(chance < self._choice.share)][1]

    def _mixed_rules(self) -> list[tuple[float, tuple[int, int]]]:
        """Shares of rows, and family and place of the rule that they follow: the cheaper point first."""
        state, (low, high, share) = self._fitted(), self._choice
        return [
            (weight, (int(state.point_family[point]), int(state.point_place[point])))
            for weight, point in ((1.0 - share, low), (share, high))
        ]

    def predict(self, X: Any) -> Labels:
        """First model to ask about each row; equal rows are treated alike."""
        state = self._fitted()
        prior, expected, chance = self._before_asking(X)
        log = Log(prior, expected, np.full_like(prior, np.nan), np.full_like(prior, np.nan))
        first = np.empty(len(prior), dtype=np.intp)
        for share, point in self._parts(chance):
            family = state.families[state.point_family[point]]
            first[share] = family.decide(int(state.point_place[point]), (), log.rows(share)).ask
        return np.array(state.pool, dtype=object)[first]

    def _parts(self, chance: Floats) -> list[tuple[Any, int]]:
        high = chance < self._choice.share
        return [
            (mask, point)
            for mask, point in ((~high, self._choice.low), (high, self._choice.high))
            if mask.any()
        ]

    def start(self, x: Any) -> RouterSession:
        """Start a session of one row: a text, or the numbers of a row."""
        return RouterSession(self, x)

    def replay(
        self, X: Any, quality: Any, cost: Any = None, answers: Any = None, evidence: Any = None
    ) -> Replay:
        """What the policy would have asked, paid and got on a log, row by row; arguments as in ``fit``."""
        log, chance = self._log_of(X, quality, cost, answers, evidence)
        return self._walked(log, chance)

    def _walked(self, log: Log, chance: Floats) -> Replay:
        state = self._fitted()
        parts = [
            (
                mask,
                walk(
                    state.families[state.point_family[point]], int(state.point_place[point]), log.rows(mask)
                ),
            )
            for mask, point in self._parts(chance)
        ]
        width = max(part.asked.shape[1] for _, part in parts)
        asked = np.full((len(log), width), -1)
        found = Walked(asked, np.empty(len(log), np.intp), np.empty(len(log)), np.empty(len(log)))
        for mask, part in parts:
            found.asked[mask, : part.asked.shape[1]] = part.asked
            found.model[mask], found.cost[mask], found.quality[mask] = part.model, part.cost, part.quality
        names = np.array([*state.pool, ""], dtype=object)
        return Replay(names[found.asked], names[found.model], found.cost, found.quality)

    def _log_of(self, X: Any, quality: Any, cost: Any, answers: Any, evidence: Any) -> tuple[Log, Floats]:
        """A new log of the pool, and the chance of each row."""
        state, prices = self._fitted(), check_models(self.models)
        names, n_rows = state.names, len(X)
        prior, expected, chance = self._before_asking(X)
        pool = [names.index(name) for name in state.pool]
        scores = matrix("quality", quality, names, n_rows).astype(np.float64)[:, pool]
        costs = costs_of(X, cost, answers, prices, n_rows)[:, pool]
        codes = shown = None
        if state.log.answers is not None:
            if answers is None:
                raise InvalidInputError(
                    "the router was fitted with answers, and looks at them: give answers=."
                )
            codes = answer_codes(answers, names, n_rows, self.normalise, may_be_unparsed=True)[:, pool]
            codes[:, [name in state.silent for name in state.pool]] = -1
        if state.log.evidence is not None:
            given = (
                np.full((n_rows, len(names)), np.nan)
                if evidence is None
                else matrix("evidence", evidence, names, n_rows)
            )
            shown = given.astype(np.float64)[:, pool]
            shown = np.where(np.isfinite(shown), shown, state.evidence_mean)
        return Log(prior, expected, scores, np.where(np.isnan(costs), expected, costs), codes, shown), chance

    # -- what is known of it -------------------------------------------------------------------------

    @property
    def frontier_(self) -> RouterFrontier:
        """Mean cost and quality of the operating points, judged out of fold."""
        state = self._fitted()
        quality = state.point_quality
        return RouterFrontier(
            state.point_cost.mean(axis=0),
            quality.mean(axis=0),
            quality.std(axis=0) / np.sqrt(len(quality)),
            tuple(state.family_names[family] for family in state.point_family),
            state.single_cost,
            state.single_quality,
        )

    def certified(
        self,
        X: Any,
        quality: Any,
        cost: Any = None,
        answers: Any = None,
        evidence: Any = None,
        *,
        max_loss: float | None = None,
        budget: float | None = None,
        against: str | None = None,
        n_next: int | None = None,
        confidence: float = 0.95,
    ) -> Self:
        """Return the router at the cheapest setting that is proved on new rows, with its ``certificate_``.

        Parameters
        ----------
        X, quality, cost, answers, evidence
            New rows of a log, as in ``fit``; rows of the fit are refused.
        max_loss : float, optional
            Mean quality that may be lost against a single model. Points are tested from the dearest down, and the
            cheapest one before the first that fails is taken (fixed-sequence testing).
        budget : float, optional
            Mean cost of the next ``n_next`` rows; the dearest mix whose bill is bounded by it is taken.
        against : str, optional
            The model compared with; the best single one of the fit unless given.
        n_next : int, optional
            Rows that the bill is for; as many as are given here unless given.
        confidence : float, default=0.95
            Confidence of the bound.
        """
        state = self._fitted()
        check_confidence(confidence)
        if (max_loss is None) == (budget is None):
            raise InvalidInputError(f"give one of max_loss and budget; got {max_loss!r} and {budget!r}.")
        log, _ = self._log_of(X, quality, cost, answers, evidence)
        keys = self._read(X)[1]
        n_seen = int(np.isin(keys, state.keys).sum())
        if n_seen:
            raise InvalidInputError(
                f"{n_seen} of {len(log)} rows are rows of the fit, which prove nothing about new ones. Leave them out."
            )
        if budget is not None:
            self._check_goal(budget, None)
            return self._with_bill(log, budget, n_next or len(log), confidence)
        check_max_loss(max_loss)
        limit = float(max_loss or 0.0)
        name = state.names[state.best_single] if against is None else against
        if name not in state.names:
            raise InvalidInputError(f"against must be one of the models; got {name!r}.")
        reference = matrix("quality", quality, state.names, len(log)).astype(np.float64)[
            :, state.names.index(name)
        ]
        found: tuple[int, float] | None = None
        for point in reversed(range(len(state.point_family))):
            walked = walk(state.families[state.point_family[point]], int(state.point_place[point]), log)
            bound = betting_bound(reference - walked.quality, confidence)
            if not bound <= limit:
                break
            found = point, bound
        if found is None:
            raise InvalidInputError(
                f"max_loss={limit:g} cannot be proved on these {len(log)} rows: the best setting loses up to "
                f"{bound:.4f} against {name}. Give more rows, or allow a larger loss."
            )
        other = copy.copy(self)
        other._set_choice(_Choice(found[0], found[0], 0.0))
        other.certificate_ = RouterCertificate("quality", found[1], limit, float(confidence), len(log), name)
        return other

    def _with_bill(self, log: Log, budget: float, n_next: int, confidence: float) -> Self:
        state = self._fitted()
        costs = np.column_stack(
            [
                walk(state.families[family], int(place), log).cost
                for family, place in zip(state.point_family, state.point_place, strict=True)
            ]
        )
        choice = _held_choice(costs, budget, n_next, confidence)
        if choice is None:
            raise _infeasible(budget, _upper_bill(costs, _Choice(0, 0, 0.0), n_next, confidence), confidence)
        other = copy.copy(self)
        other._set_choice(choice)
        bound = _upper_bill(costs, choice, n_next, confidence)
        other.certificate_ = RouterCertificate(
            "bill", bound, float(budget), float(confidence), len(log), "", n_next
        )
        return other

    def bill(self, n_rows: int, confidence: float = 0.95) -> float:
        """Upper prediction bound of the total cost of the next ``n_rows`` rows, from the rows of the fit."""
        check_confidence(confidence)
        n_rows = check_count("n_rows", n_rows)
        return n_rows * _upper_bill(self._fitted().point_cost, self._choice, n_rows, confidence)

    def explain(self) -> str:
        """What the router chooses from, and what is expected of it."""
        state, choice = self._fitted(), self._choice
        best = state.best_single
        rules = [state.family_names[state.point_family[point]] for point in (choice.low, choice.high)]
        words = (
            rules[0]
            if choice.share == 0.0
            else f"{rules[0]} for {1 - choice.share:.0%} of rows, else {rules[1]}"
        )
        return (
            f"expected quality {self.expected_quality_:.3f} for {self.expected_cost_:.3g} a row ({words}); "
            f"{state.names[best]} alone has {state.single_quality[best]:.3f} for {state.single_cost[best]:.3g}"
        )


_NO_POLICY: dict[str, Any] = {
    "families": (),
    "family_names": (),
    "point_family": np.empty(0, np.intp),
    "point_place": np.empty(0, np.intp),
    "point_quality": np.empty((0, 0)),
    "point_cost": np.empty((0, 0)),
}


def _learn_policy(state: RouterState, max_asks: int) -> RouterState:
    """Learn all families, judge them out of fold, and keep the points on the concave hull."""
    names, families, qualities, costs = [], [], [], []
    for name, learn in learn_families(state.log, max_asks):
        quality, cost = judge(learn, state.log, state.folds)
        names.append(name)
        families.append(learn(state.log))
        qualities.append(quality)
        costs.append(cost)
    n_rules = [family.n_rules for family in families]
    quality, cost = np.column_stack(qualities), np.column_stack(costs)
    # Means that differ in their last bits only are the same point: the simpler family comes first.
    mean_cost = cost.mean(axis=0)
    hull = concave_hull(_rounded(mean_cost), np.round(quality.mean(axis=0), 9))
    return replace(
        state,
        families=tuple(families),
        family_names=tuple(names),
        point_family=np.repeat(np.arange(len(families)), n_rules)[hull],
        point_place=np.concatenate([np.arange(n) for n in n_rules])[hull],
        point_quality=quality[:, hull],
        point_cost=cost[:, hull],
    ).validate()


def _rounded(values: Floats) -> Floats:
    """Values rounded to nine significant digits of the largest."""
    unit = float(10.0 ** np.ceil(np.log10(values.max())))
    rounded: Floats = np.round(values / unit, 9) * unit
    return rounded


def _mixed_mean(values: Floats, choice: _Choice) -> float:
    return float(
        (1.0 - choice.share) * values[:, choice.low].mean() + choice.share * values[:, choice.high].mean()
    )


def _choose(state: RouterState, budget: float | None, confidence: float | None) -> _Choice:
    """The mix of two points that spends the budget, or holds it with a confidence."""
    last = state.point_cost.shape[1] - 1
    if budget is None or np.isinf(budget):
        return _Choice(last, last, 0.0)
    if confidence is not None:
        n_next = max(int(_N_NEXT * len(state.point_cost)), 1)
        held = _held_choice(state.point_cost, budget, n_next, confidence)
        if held is None:
            least = _upper_bill(state.point_cost, _Choice(0, 0, 0.0), n_next, confidence)
            raise _infeasible(budget, least, confidence)
        return held
    mix = _mix_at(state.point_cost.mean(axis=0), budget)
    if mix is None:
        raise _infeasible(budget, float(state.point_cost[:, 0].mean()), None)
    return mix


def _infeasible(budget: float, least: float, confidence: float | None) -> InvalidInputError:
    held = "" if confidence is None else f" with confidence {confidence:g}"
    return InvalidInputError(
        f"budget must be at least {least:.4g}{held}, what the cheapest way to an answer costs a row; got {budget:g}."
    )


def _mix_at(cost: Floats, budget: float) -> _Choice | None:
    if budget < cost[0] * (1.0 - 1e-9):
        return None
    low = int(np.searchsorted(cost, max(budget, cost[0]), side="right")) - 1
    if low == len(cost) - 1:
        return _Choice(low, low, 0.0)
    return _Choice(low, low + 1, float((max(budget, cost[0]) - cost[low]) / (cost[low + 1] - cost[low])))


def _held_choice(costs: Floats, budget: float, n_next: int, confidence: float) -> _Choice | None:
    """The dearest mix of neighbouring points whose upper prediction bound is at most the budget."""
    mean = np.maximum.accumulate(costs.mean(axis=0))
    if _upper_bill(costs, _Choice(0, 0, 0.0), n_next, confidence) > budget:
        return None
    low, high = float(mean[0]), float(min(mean[-1], budget))
    top = _mix_at(mean, high)
    if top is not None and _upper_bill(costs, top, n_next, confidence) <= budget:
        return top
    found = _Choice(0, 0, 0.0)
    for _ in range(40):
        middle = (low + high) / 2.0
        choice = _mix_at(mean, middle)
        if choice is not None and _upper_bill(costs, choice, n_next, confidence) <= budget:
            low, found = middle, choice
        else:
            high = middle
    return found


def _upper_bill(costs: Floats, choice: _Choice, n_next: int, confidence: float) -> float:
    """Upper prediction bound of the mean cost of the next rows: normal, with a correction for skewness."""
    one, two, share = costs[:, choice.low], costs[:, choice.high], choice.share
    mean = (1.0 - share) * one.mean() + share * two.mean()
    second = (1.0 - share) * (one * one).mean() + share * (two * two).mean()
    spread = np.sqrt(max(second - mean * mean, 0.0))
    if spread == 0.0:
        return float(mean)
    n_few = min(len(costs), n_next)
    quantile = float(norm.ppf(confidence))
    # Cornish and Fisher's correction: sums of few dear rows have a longer tail above than the normal distribution.
    heavy = (
        max(float(skew(two if share > 0.5 else one)), 0.0)
        * (2.0 * quantile**2 + 1.0)
        / (6.0 * np.sqrt(n_few))
    )
    return float(mean + (quantile + heavy) * spread * np.sqrt(1.0 / len(costs) + 1.0 / n_next))
