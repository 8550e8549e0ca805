"""Router learned from a log of which of two models was right, without labels or answers.

A log of questions sent to a small and a large model often holds only whether each model's answer was good. The gate
learns from the features of a question what calling the stronger model gains,

    g(x) = E[ strong_right - weak_right | x ]      by boosted least squares

and sends on the rows for which that is largest. The router serves as a chain whose answers are the names of the models:
``"weak"`` or ``"strong"``.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Ints, Numbers
from thrifty.chain.chain import Chain
from thrifty.chain.policy import Policy
from thrifty.chain.readers import TableReader
from thrifty.chain.stage import BoostedStage
from thrifty.errors import InvalidInputError
from thrifty.estimators.base import all_or_nothing
from thrifty.estimators.checks import check_count, check_seed, validated
from thrifty.evidence.evidence import Evidence
from thrifty.full.model import EstimatorFull
from thrifty.full.stored import constant_classifier
from thrifty.prices.billing import RowsOfFit, check_amount
from thrifty.prices.prices import Prices, check_price_list, resolve_prices
from thrifty.rows import content_folds, content_keys
from thrifty.tables.frames import kind_of_table
from thrifty.tasks.classes import classification
from thrifty.trees import BinnedTable, EnsembleBuilder, TreeEnsemble, bin_columns
from thrifty.trees.boosting import Boosting

__all__ = ["STRONG", "WEAK", "evidence_of_answers", "learn_from_answers"]

WEAK, STRONG = "weak", "strong"

GATE = Boosting(n_trees=80, max_depth=4, learning_rate=0.08, step="gradient", min_child_samples=20)

SURE = 30.0
"""Log-odds of the model names as answers: practically certain."""


def learn_from_answers(router: Any, X: Any, weak_right: Any, strong_right: Any) -> Any:
    """Fit a router on logged answers, and go to its budget; see ``ConfidenceRouter.from_answers``."""
    budget = None if router.budget is None else check_amount("budget", router.budget)
    n_folds = check_count("cv", router.cv, min_value=2)
    with all_or_nothing(router):
        seed = check_seed(router.random_state)
        numbers = validated(router, X, reset=True)
        weak, strong = _checked(weak_right, strong_right, len(numbers))
        names = getattr(router, "feature_names_in_", None)
        prices = check_price_list(
            resolve_prices(None, router.prices, Prices()),
            numbers.shape[1],
            names,
            RowsOfFit(numbers, table=X if kind_of_table(X) else None),
        )
        gain = np.asarray(strong, dtype=np.float64) - np.asarray(weak, dtype=np.float64)
        table = bin_columns(numbers)
        everyone = np.zeros(len(numbers), dtype=np.intp)
        fold_of = content_folds(numbers, everyone, n_folds, seed)
        held_out = np.empty(len(numbers))
        for fold in np.unique(fold_of):
            held = fold_of == fold
            base, trees = _regress(table, gain, np.flatnonzero(~held))
            held_out[held] = base + trees.predict_binned(table.take(np.flatnonzero(held)))[:, 0]
        base, trees = _regress(table, gain, np.arange(len(numbers)))
        router.classes_ = np.array([STRONG, WEAK])
        columns = np.flatnonzero(trees.features_used)
        columns = columns if len(columns) else np.array([np.argmin(prices.prices[prices.group_of])])
        # With either model, a row pays for the gate's columns, and for no others.
        prices = replace(prices, full_columns=columns)
        router.chain_ = _chain(trees, base, columns, prices, router, names, kind_of_table(X), seed)
        router.features_ = columns
        router.certificate_ = None
        reader = TableReader(numbers, X if kind_of_table(X) else numbers)
        router.evidence_ = _evidence(
            router.chain_, reader, held_out, weak, strong, content_keys(numbers, everyone)
        )
        router._learned = router.chain_
        if budget is not None:
            router._spend(budget)
    return router


def evidence_of_answers(router: Any, X: Any, weak_right: Any, strong_right: Any) -> Evidence:
    """Evidence of a router on new rows of a log, for frontiers and certificates.

    Parameters
    ----------
    router : ConfidenceRouter
        One that ``ConfidenceRouter.from_answers`` made.
    X : table
        Features of the rows.
    weak_right, strong_right : array-like of shape (n_samples,)
        Whether each model's answer was right, or how good it was, in [0, 1].
    """
    chain: Chain = router.chain_
    if chain.classes.tolist() != [STRONG, WEAK]:
        raise InvalidInputError(
            f"evidence_of_answers takes a router that ConfidenceRouter.from_answers made; this one answers with "
            f"{chain.classes[:5].tolist()}. Use evidence_of(router, X, y)."
        )
    reader = router._reader(X)
    weak, strong = _checked(weak_right, strong_right, reader.n_samples)
    everyone = np.arange(reader.n_samples)
    held = reader.block(everyone, np.arange(chain.price_list.n_features))
    keys = content_keys(held, np.zeros(len(everyone), dtype=np.intp))
    seen = _evidence(chain, reader, chain.visit_all(reader).gate[:, 0], weak, strong, keys)
    known = router.evidence_.known_rows
    return replace(seen, seen=np.unique(np.concatenate(known)) if known else None)


def _evidence(
    chain: Chain, reader: TableReader, g: Floats, weak: Numbers, strong: Numbers, keys: Any
) -> Evidence:
    by_row = chain.price_list.by_row is not None
    stop, go = (chain.spent_at(reader, place) for place in (0, 1)) if by_row else chain.cost_by_place.tolist()
    return Evidence.of_gate(
        g,
        stop_cost=stop,
        go_cost=go,
        stop_quality=weak,
        go_quality=strong,
        features=tuple(chain.columns.tolist()),
        rows=keys,
    )


def _regress(table: BinnedTable, gain: Floats, rows: Ints) -> tuple[float, TreeEnsemble]:
    """Boosted least squares of the gain of the stronger model, on some rows."""
    part, wanted = table.take(rows), gain[rows]
    base = float(wanted.mean())
    score, ones = np.full(len(rows), base), np.ones(len(rows))
    grower, builder = GATE.grower(part), EnsembleBuilder(table.n_features)
    for _ in range(GATE.n_trees):
        GATE.add_tree(grower, builder, (score - wanted, ones), ones, score)
    return base, builder.ensemble()


def _chain(
    trees: TreeEnsemble,
    base: float,
    columns: Ints,
    prices: Any,
    router: Any,
    names: Any,
    kind: str | None,
    seed: int,
) -> Chain:
    task = classification(router.classes_)
    strong = constant_classifier(
        router.classes_, (router.classes_ == STRONG).astype(np.float64), prices.n_features
    )
    stage = BoostedStage(
        columns, trees.over_columns(columns), TreeEnsemble.empty(len(columns)), np.array([base, SURE])
    )
    return Chain(
        (stage,),
        EstimatorFull(strong, task, reads_numbers=True),
        prices,
        task,
        Policy.of(np.zeros(1), seed=seed),
        names=None if names is None else tuple(str(name) for name in names),
        kind=kind,
    )


def _checked(weak_right: Any, strong_right: Any, n_rows: int) -> tuple[Numbers, Numbers]:
    both = []
    for name, given in (("weak_right", weak_right), ("strong_right", strong_right)):
        try:
            found = np.asarray(given)
            numbers = found.astype(np.float64)
        except (TypeError, ValueError):
            raise InvalidInputError(f"{name} must hold true or false, or numbers in [0, 1].") from None
        if found.shape != (n_rows,):
            raise InvalidInputError(
                f"{name} must have one entry for each of the {n_rows} rows of X; got shape {found.shape}."
            )
        bad = np.flatnonzero(~((numbers >= 0) & (numbers <= 1)))
        if len(bad):
            raise InvalidInputError(
                f"{name} must hold true or false, or how good each answer was, in [0, 1]; got {found[bad[0]]} in row "
                f"{bad[0]}."
            )
        both.append(numbers)
    if all(np.isin(one, (0.0, 1.0)).all() for one in both):
        return both[0] > 0, both[1] > 0
    return both[0], both[1]
