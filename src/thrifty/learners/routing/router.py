"""``ModelRouter``: many models with prices, one budget.

An answer of a model is a column with a price: the router buys answers one after another, looks at whether they agree,
and stops for each row when another answer is not worth its price. ``quality`` has what is expected before asking,
``policy`` the rules and how they are learned, ``state`` what a fit knows, ``logs`` the checks of what a log holds.
Operating points, budgets, bills and certificates are those of cascades.
"""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from thrifty._moved import FormerName
from thrifty.arrays import Bools, Floats, Ints, Labels, Words
from thrifty.engine.evidence.budgets import CostBounds, CostCertificate
from thrifty.engine.evidence.certificate import Certificate, certify
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.frontier import Frontier
from thrifty.engine.evidence.hypothesis_tests import check_confidence, check_max_loss
from thrifty.engine.walk.policy import Policy
from thrifty.errors import InvalidInputError
from thrifty.learners.estimators.base import all_or_nothing
from thrifty.learners.estimators.checks import check_count, check_seed, validated
from thrifty.learners.routing.frontier import RouterFrontier
from thrifty.learners.routing.logs import (
    MIN_ROWS,
    ModelPrice,
    answer_codes,
    check_billed,
    check_models,
    check_price,
    check_propensity,
    check_quality,
    complete,
    costs_of,
    doubly_robust,
    inverse_propensity,
    is_text,
    matrix,
    normalise,
    numbers,
    qualities,
    tokens_in,
    warn_of_support,
    whole_rows,
)
from thrifty.learners.routing.policy import (
    Log,
    Walked,
    choose_pool,
    walk,
)
from thrifty.learners.routing.quality import crossfit, learn_text_reader, ridge
from thrifty.learners.routing.session import RouterSession
from thrifty.learners.routing.state import MAX_POOL, NO_POLICY, RouterState, learn_policy
from thrifty.rows import fingerprints, key_chance, key_words
from thrifty.threads import limited_threads

N_FOLDS = 5
_FEW_ROWS = 10
"""Rows that a model must be known of to be added, or judged."""
_N_NEXT = 0.5
"""With ``confidence``, the budget is held over this many new rows for each row of the log."""
_MIN_TAKEN = 0.05
"""Share of rows that a policy sends to a model, from which on missing support is warned of."""


class Replay(NamedTuple):
    """What the policy would have done on a log, row by row."""

    asked: Labels
    """Names of the models asked, in order, "" behind the last; shape (n_rows, most asks)."""
    model: Labels
    """Name of the model whose answer was taken."""
    cost: Floats
    quality: Floats
    """NaN where the log does not have it; with ``propensity``, doubly robust: its mean estimates that of the policy."""
    ips: Floats | None = None
    """With ``propensity``, terms of the self-normalised inverse-propensity estimate of quality, which is their mean."""


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
        budget, as estimated from the rows of the fit; ``certified`` does so from new ones. None keeps no margin.
    random_state : int, RandomState or None, default=0
        Seed of folds and trees.

    Attributes
    ----------
    pool_ : list of str
        Models that the policy chooses from, cheapest first.
    frontier_ : RouterFrontier
        Mean cost and quality of the operating points.
    expected_cost_, expected_score_ : float
        Mean cost and quality at the budget, judged out of fold.
    certificate_ : Certificate, CostCertificate or None
        What ``certified`` proved, of quality or of the next bill.

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

    expected_quality_ = FormerName("expected_score_")

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
            check_billed(costs, names)
            codes = None if answers is None else answer_codes(answers, names, n_rows, self.normalise)
            shown = None if evidence is None else numbers("evidence", evidence, names, n_rows)
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
            self._state = learn_policy(
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
                    **NO_POLICY,
                ),
                max_asks,
            )
            self._go_to_budget()
        return self

    def _check_goal(self, budget: Any, confidence: Any) -> None:
        if budget is not None and not (
            isinstance(budget, int | float | np.number) and not isinstance(budget, bool) and budget > 0
        ):
            raise InvalidInputError(f"budget must be positive; got {budget!r}. It is the mean cost of a row.")
        if confidence is not None:
            check_confidence(confidence)

    def _go_to_budget(self) -> None:
        """Choose the points to mix."""
        state, budget = self._state, self.budget
        if budget is None:
            self._set_policy(state.policy.at(len(state.policy) - 1))
        elif self.confidence is None:
            self._set_policy(state.policy.within(budget))
        else:
            n_rows = len(state.log)
            bounds = CostBounds(state.evidence, n_rows, max(int(_N_NEXT * n_rows), 1))
            self._set_policy(bounds.within(state.policy, budget, self.confidence))

    def _set_policy(self, policy: Policy) -> None:
        self._policy = policy
        self.pool_ = list(self._state.pool)
        self.expected_cost_, self.expected_score_ = policy.expected_cost, policy.expected_score
        self.certificate_: Certificate | CostCertificate | None = None

    def _restore(
        self,
        state: RouterState,
        choice: tuple[int, int, float],
        certificate: Certificate | CostCertificate | None,
    ) -> Self:
        """Take the place of the router that a file was written from."""
        self._state = state
        if state.reader is None:
            self.n_features_in_ = state.n_features
        if state.columns is not None:
            self.feature_names_in_ = np.array(state.columns, dtype=object)
        self._set_policy(state.policy.at(*choice))
        self.certificate_ = certificate
        return self

    # -- other settings of the same fit ------------------------------------------------------------

    def at(self, *, budget: float | None = None, confidence: float | None = None) -> Self:
        """Return the same fit at another budget; nothing is learned again."""
        self._fitted()
        self._check_goal(budget, confidence)
        other = copy.copy(self)
        other.budget, other.confidence = budget, confidence
        other._go_to_budget()
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
        costs = costs_of(X, billed, None, {name: new[name]}, len(scores))
        check_billed(costs, [name])
        spent = float(np.nanmean(costs))
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
            other._state = learn_policy(state, int(self.max_asks))
        other._go_to_budget()
        return other

    # -- answers -----------------------------------------------------------------------------------

    def _fitted(self) -> RouterState:
        state: RouterState | None = getattr(self, "_state", None)
        if state is None:  # only then: the check of scikit-learn takes as long as a decision
            check_is_fitted(self, "_state")
        assert state is not None
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

    def _before_asking(self, X: Any) -> tuple[Floats, Floats, Words]:
        """Expected quality and cost of the pool, and the key of each row, fixed by its content."""
        Z, keys = self._read(X)
        return *self._fitted().model.predict(Z), keys

    def _rule_of(self, keys: Words) -> tuple[int, int]:
        """Family and place of the rule that a row follows."""
        return self._mixed_rules()[int(self._policy.follows_upper(keys)[0])][1]

    def _mixed_rules(self) -> list[tuple[float, tuple[int, int]]]:
        """Shares of rows, and family and place of the rule that they follow: the cheaper point first."""
        state, policy = self._fitted(), self._policy
        return [
            (weight, (int(state.point_family[point]), int(state.point_place[point])))
            for weight, point in ((1.0 - policy.share, policy.lower), (policy.share, policy.upper))
        ]

    def predict(self, X: Any) -> Labels:
        """First model to ask about each row; equal rows are treated alike."""
        state = self._fitted()
        prior, expected, keys = self._before_asking(X)
        log = Log(prior, expected, np.full_like(prior, np.nan), np.full_like(prior, np.nan))
        first = np.empty(len(prior), dtype=np.intp)
        for rows, point in self._parts(keys):
            family = state.families[state.point_family[point]]
            first[rows] = family.decide(int(state.point_place[point]), (), log.rows(rows)).ask
        return np.array(state.pool, dtype=object)[first]

    def _parts(self, keys: Words) -> list[tuple[Bools, int]]:
        """Rows that follow each of the points in force."""
        policy, upper = self._policy, self._policy.follows_upper(keys)
        return [
            (rows, point) for rows, point in ((~upper, policy.lower), (upper, policy.upper)) if rows.any()
        ]

    def start(self, x: Any) -> RouterSession:
        """Start a session of one row: a text, or the numbers of a row."""
        return RouterSession(self, x)

    def replay(
        self,
        X: Any,
        quality: Any,
        cost: Any = None,
        answers: Any = None,
        evidence: Any = None,
        propensity: Any = None,
    ) -> Replay:
        """What the policy would have asked, paid and got on a log, row by row; arguments as in ``fit``.

        On a log in which not all models were asked, ``propensity`` gives estimates of the quality of a policy that asks
        one model about each row; costs that were not billed are those expected.
        """
        log, keys = self._log_of(X, quality, cost, answers, evidence)
        found = self._walked(log, keys)
        names = np.array([*self._fitted().pool, ""], dtype=object)
        result = Replay(names[found.asked], names[found.model], found.cost, found.quality)
        return result if propensity is None else self._estimated(result, found.model, log, propensity)

    def _estimated(self, found: Replay, model: Ints, log: Log, propensity: Any) -> Replay:
        """Doubly robust and inverse-propensity qualities in place of those that a log does not have."""
        state, rows = self._fitted(), np.arange(len(log))
        if np.ndim(propensity) == 2:
            pool = [state.names.index(name) for name in state.pool]
            propensity = numbers("propensity", propensity, state.names, len(log))[:, pool]
        chances = check_propensity(propensity, ~np.isnan(log.quality), state.pool)
        if not np.isnan(log.quality).any():
            return found._replace(ips=found.quality)  # nothing is estimated
        if found.asked.shape[1] > 1:
            raise InvalidInputError(
                f"propensity is for a policy that asks one model about each row; this one asks up to "
                f"{found.asked.shape[1]}, and the log lacks answers of the others. Give a log of all models, or fit "
                f"with max_asks=1."
            )
        weight = 1.0 / chances[rows, model]
        for place, name in enumerate(state.pool):
            taken = model == place
            if taken.mean() >= _MIN_TAKEN:
                warn_of_support(name, weight[taken], ~np.isnan(found.quality[taken]), _FEW_ROWS)
        fitted = np.clip(log.prior[rows, model], 0.0, 1.0)
        return found._replace(
            quality=doubly_robust(fitted, found.quality, weight),
            ips=inverse_propensity(found.quality, weight),
        )

    def _walked(self, log: Log, keys: Words) -> Walked:
        """Each row under the point that it follows."""
        parts = [(mask, self._walk(point, log.rows(mask))) for mask, point in self._parts(keys)]
        width = max(part.asked.shape[1] for _, part in parts)
        asked = np.full((len(log), width), -1)
        found = Walked(asked, np.empty(len(log), np.intp), np.empty(len(log)), np.empty(len(log)))
        for mask, part in parts:
            found.asked[mask, : part.asked.shape[1]] = part.asked
            found.model[mask], found.cost[mask], found.quality[mask] = part.model, part.cost, part.quality
        return found

    def _walk(self, point: int, log: Log) -> Walked:
        """All rows under one point of the frontier."""
        state = self._fitted()
        return walk(state.families[state.point_family[point]], int(state.point_place[point]), log)

    def _log_of(self, X: Any, quality: Any, cost: Any, answers: Any, evidence: Any) -> tuple[Log, Words]:
        """A new log of the pool, and the key of each row."""
        state, prices = self._fitted(), check_models(self.models)
        names, n_rows = state.names, len(X)
        prior, expected, keys = self._before_asking(X)
        pool = [names.index(name) for name in state.pool]
        scores = qualities(quality, names, n_rows)[:, pool]
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
                else numbers("evidence", evidence, names, n_rows)
            )
            shown = given[:, pool]
            shown = np.where(np.isfinite(shown), shown, state.evidence_mean)
        return Log(prior, expected, scores, np.where(np.isnan(costs), expected, costs), codes, shown), keys

    # -- what is known of it -------------------------------------------------------------------------

    @property
    def frontier_(self) -> RouterFrontier:
        """Mean cost and quality of the operating points, judged out of fold."""
        state = self._fitted()
        frontier = RouterFrontier.from_evidence([state.evidence])
        return replace(frontier, single_cost=state.single_cost, single_quality=state.single_quality)

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
        duplicates: str = "refuse",
    ) -> Self:
        """Return the router at a setting whose loss, or bill, new rows bound, with its ``certificate_``.

        Parameters
        ----------
        X, quality, cost, answers, evidence
            New rows of a log, as in ``fit``.
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
        duplicates : {"refuse", "drop", "count"}, default="refuse"
            Treatment of rows that hold the same as rows of the fit: they are refused, left out, or counted. Rows that
            equal each other, qualities included, count once unless it is "count"; see ``thrifty.certify``.
        """
        state = self._fitted()
        check_confidence(confidence)
        if (max_loss is None) == (budget is None):
            raise InvalidInputError(f"give one of max_loss and budget; got {max_loss!r} and {budget!r}.")
        name = state.names[state.best_single] if against is None else against
        if name not in state.names:
            raise InvalidInputError(f"against must be one of the models; got {name!r}.")
        log, keys = self._log_of(X, quality, cost, answers, evidence)
        if budget is not None:
            self._check_goal(budget, None)
            n_next = check_count("n_next", len(log) if n_next is None else n_next)
            return self._with_bill(log, keys, budget, n_next, confidence, duplicates)
        reference = qualities(quality, state.names, len(log))[:, state.names.index(name)]
        n_partial = int(np.isnan(np.column_stack([log.quality, reference])).any(axis=1).sum())
        if n_partial:
            raise InvalidInputError(
                f"quality must be known of {name} and of all models of the pool in rows that are to prove something; "
                f"it is missing in {n_partial} of {len(log)} rows. Leave them out."
            )
        check_max_loss(max_loss)
        limit = float(max_loss or 0.0)
        chosen = Frontier.from_evidence([state.evidence], every_point=True)
        certificate = certify(
            chosen.on([self._evidence_on(log, keys, reference)]),
            max_loss=limit,
            confidence=confidence,
            duplicates=duplicates,
            measure="mean",
            largest=1.0,
        )
        if certificate.point is None:
            raise InvalidInputError(
                f"max_loss={limit:g} cannot be proved on these {certificate.n_rows} rows: the best setting loses up to "
                f"{certificate.failed_bound:.4f} against {name}. Give more rows, or allow a larger loss."
            )
        other = copy.copy(self)
        other._set_policy(state.policy.at(int(certificate.point.thresholds[0])))
        other.certificate_ = replace(certificate, against=name)
        return other

    def _evidence_on(self, log: Log, keys: Words, reference: Floats | None = None) -> Evidence:
        """Every row of a log under every point, beside the quality of a model that points are compared with."""
        state = self._fitted()
        walks = [self._walk(point, log) for point in range(len(state.policy))]
        cost, quality = (
            np.column_stack([getattr(one, name) for one in walks]) for name in ("cost", "quality")
        )
        labels = log.quality if reference is None else np.column_stack([log.quality, reference])
        return state.evidence_on(keys, labels, cost, np.nan_to_num(quality), reference)

    def _with_bill(
        self, log: Log, keys: Words, budget: float, n_next: int, confidence: float, duplicates: str
    ) -> Self:
        state = self._fitted()
        new = self._evidence_on(log, keys)
        bounds = CostBounds.on_held_out(new, state.evidence, duplicates, n_next)
        other = copy.copy(self)
        other._set_policy(bounds.within(state.policy, budget, confidence))
        bound = bounds.bound(other._policy, confidence)
        other.certificate_ = CostCertificate(
            float(budget), bound, float(confidence), bounds.n_rows, int(n_next)
        )
        return other

    def bill(self, n_rows: int, confidence: float = 0.95) -> float:
        """Upper prediction bound of the total cost of the next ``n_rows`` rows, from the rows of the fit."""
        check_confidence(confidence)
        n_rows = check_count("n_rows", n_rows)
        bounds = CostBounds(self._fitted().evidence, len(self._state.log), n_rows)
        return n_rows * bounds.bound(self._policy, confidence)

    def explain(
        self, X: Any = None, quality: Any = None, cost: Any = None, answers: Any = None, evidence: Any = None
    ) -> Any:
        """What the router chooses from and what is expected of it; of rows, what is asked about each, and why.

        Parameters
        ----------
        X : rows as in ``fit``, optional
            Rows to explain.
        quality, cost, answers, evidence : array-like of shape (n_rows, n_models), optional
            A log of these rows, as in ``replay``. Without it, only the first model to ask is named.

        Returns
        -------
        str, or list of str
            One text, or one for each row.
        """
        state, policy = self._fitted(), self._policy
        if X is not None:
            given = {"quality": quality, "cost": cost, "answers": answers, "evidence": evidence}
            log = {
                name: matrix(name, one, state.names, len(X)) for name, one in given.items() if one is not None
            }
            rows = list(X) if state.reader is not None and is_text(X) else self._read(X)[0]
            return [
                self._explained(rows[row], {name: one[row] for name, one in log.items()})
                for row in range(len(X))
            ]
        best = state.best_single
        rules, share = [state.rules[point] for point in (policy.lower, policy.upper)], policy.share
        words = rules[0] if share == 0.0 else f"{rules[0]} for {1 - share:.0%} of rows, else {rules[1]}"
        return (
            f"expected quality {self.expected_score_:.3f} for {self.expected_cost_:.3g} a row ({words}); "
            f"{state.names[best]} alone has {state.single_quality[best]:.3f} for {state.single_cost[best]:.3g}"
        )

    def _explained(self, x: Any, log: Mapping[str, Any]) -> str:
        """One row, given what the models returned."""
        session, names = self.start(x), self._fitted().names
        while log and session.next_ask is not None:
            place = names.index(session.next_ask)
            answer, cost, evidence = (
                log[name][place] if name in log else None for name in ("answers", "cost", "evidence")
            )
            session.give(answer, None if cost is None or np.isnan(cost) else float(cost), evidence)
        if "quality" not in log or session.model is None:
            return session.explain()
        return f"{session.explain()}; its quality was {float(log['quality'][names.index(session.model)]):.3g}"
