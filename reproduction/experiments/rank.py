"""Ranking, figure 3 (c): which documents answer a query, for as little processor time as possible.

The paper's data, set 1 of the Yahoo! challenge, may not be passed on; its prices may. So prices of that list are dealt
out to the columns of MQ2008 and of a sample of MSLR-WEB, and the question is the paper's: documents are
relevant or not, f0 is a random forest of 140 trees grown to the end, the measure is average precision of the first
five. Whatever is cross-fitted holds out whole queries: documents of one query are alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from reproduction.datasets import (
    RankingSplit,
    draw_prices,
    load_mq2008,
    load_mslr,
    load_yahoo,
    load_yahoo_prices,
)
from reproduction.experiments.drawing import CURVES, curves_from, draw_figure
from reproduction.experiments.experiment import Outcome, Run
from reproduction.experiments.figures import PAPER_CLAIMS
from reproduction.experiments.fits import Fit, FullScores, fit_all, judge_on_split, kept_in
from reproduction.experiments.methods import Priced, SweepSettings, plan_fits
from reproduction.experiments.rank_choice import (
    Documents,
    RankedChoice,
    RankedTask,
    choose_ranked,
    full_alone,
    full_log_odds,
    on_one_scale,
)
from reproduction.experiments.selection import (
    AnyCandidate,
    Candidate,
    Claim,
    Verdict,
    by_budget,
    judge_claims,
)
from thrifty.arrays import Floats, Ints
from thrifty.engine.tasks.ranking import Queries
from thrifty.errors import InvalidInputError

__all__ = ["RankSettings", "run", "splits_by_query"]

NAME = "rank"

PRUNED_FOR_PROBABILITY = "BudgetPrune, probabilities"
"""BudgetPrune that counts a leaf's share of wrong labels in place of its wrong votes."""

TOP_FIRST = "GreedyMiser + top first"
"""A gate of ours for ranking: the documents with the best cheap scores go to f0, which orders them anew."""

CLAIMS = (
    *PAPER_CLAIMS,
    *(
        Claim(f"left out, {theirs}", "DynaMod-Gbrt, KL", theirs)
        for theirs in (PRUNED_FOR_PROBABILITY, TOP_FIRST)
    ),
)

NOTES = (
    (
        "The paper ranks set 1 of the Yahoo! challenge, which may not be passed on. Here prices of its list are "
        "dealt out to the columns of public data without replacement, by a fixed seed; so neither "
        "precisions nor costs are comparable with the paper's, and its cost regions (40 to 80, 100) do not carry over."
    ),
    (
        "AP@5 is an expectation over the order of documents with equal scores; queries without relevant documents are "
        "left out. Intervals are 95 % bootstrap over test queries; points are chosen on validation queries."
    ),
)


@dataclass(frozen=True, kw_only=True)
class RankSettings(SweepSettings):
    """Settings of the sweep, and those that only ranking has.

    Attributes
    ----------
    data : tuple of str
        Names of collections of documents: ``mq2008``, ``mslr``, or ``yahoo`` for those who hold the original files.
    places : int
        Number of places of a list that count.
    thresholds : int
        Most thresholds of one gate that are looked at.
    price_seed : int
        Seed of the prices dealt out to columns.
    queries : tuple of int
        Most training, validation and test queries; empty for all. Takes the place of ``rows``.
    """

    data: tuple[str, ...]
    places: int
    thresholds: int
    price_seed: int
    queries: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [name for name in self.data if name not in COLLECTIONS]
        if unknown or not self.data:
            raise InvalidInputError(f"data must be among {', '.join(COLLECTIONS)}; got {list(self.data)}.")
        if self.rows:
            raise InvalidInputError("rows would tear queries apart; give `queries` in its place.")
        if self.queries and (len(self.queries) != 3 or min(self.queries) < 5):
            raise InvalidInputError(f"queries must be three numbers of at least 5; got {list(self.queries)}.")
        if self.places < 1 or self.thresholds < 2:
            raise InvalidInputError(
                f"places must be at least 1 and thresholds at least 2; got {self.places} and {self.thresholds}."
            )


@dataclass(frozen=True)
class _Collection:
    """Documents by name; prices come with them, or are dealt out."""

    title: str
    load: Callable[[Any], tuple[RankingSplit, Floats | None]]


COLLECTIONS = {
    "mq2008": _Collection("MQ2008", lambda folder: (load_mq2008(folder), None)),
    "mslr": _Collection("MSLR-WEB, sample", lambda folder: (load_mslr(folder), None)),
    "yahoo": _Collection("Yahoo! set 1", load_yahoo),
}


@dataclass(frozen=True, eq=False)
class _Panel:
    """All that was found on one collection."""

    name: str
    about: str
    full: RankedChoice
    chosen: dict[str, list[RankedChoice]]
    verdicts: list[Verdict]
    seconds: float


def run(how: Run) -> Outcome:
    """Run the experiment, draw the picture and return the numbers."""
    settings = how.settings(RankSettings, NAME)
    panels = [_run_panel(name, settings, how) for name in settings.data]
    lines = [
        name
        for name in (*CURVES, PRUNED_FOR_PROBABILITY, TOP_FIRST)
        if any(name in panel.chosen for panel in panels)
    ]
    outcome = Outcome(
        NAME,
        f"Ranking: AP@{settings.places} on test queries by mean cost per document",
        ["data", "budget", *lines],
        [[panel.name, *row] for panel in panels for row in by_budget(panel.chosen, settings.budgets, lines)],
        {
            "budgets": list(settings.budgets),
            "price_seed": settings.price_seed,
            "places": settings.places,
            **{panel.name: _numbers(panel) for panel in panels},
        },
        [*NOTES, f"Sweep: {settings.thinned}", *(note for panel in panels for note in _notes(panel))],
    )
    outcome.files.append(draw_figure(outcome.numbers, how.out / f"{NAME}.png"))
    outcome.write(how.out)
    return outcome


def _run_panel(collection: str, settings: RankSettings, how: Run) -> _Panel:
    name = COLLECTIONS[collection].title
    everything, prices = COLLECTIONS[collection].load(how.data)
    split = _some_queries(everything, settings.queries, settings.seed)
    binary, queries = split.relevant_or_not(), Queries(split.qid_train)
    if prices is None:
        prices = draw_prices(binary.X_train.shape[1], load_yahoo_prices(how.data), settings.price_seed)
    priced = Priced(binary, prices)
    (model,) = settings.forest().values()
    kept = kept_in(how.out, f"{NAME}_{collection}", binary)
    folds = folds_of_queries(queries, 5)
    scores = judge_on_split(model, binary, folds=folds, kept=kept, progress=how.progress, what=f"f0, {name}")
    fits = plan_fits(priced, settings, scores)
    for fit in fits.get("cascade", ()):
        fit.arguments["estimator"].set_params(cv=splits_by_query(queries, 4))
    fits[PRUNED_FOR_PROBABILITY] = [_for_probability(fit) for fit in fits.get("prune", ())]
    found = fit_all(fits, binary, kept=kept, n_jobs=how.n_jobs, progress=how.progress, what=name)
    seconds = kept.seconds
    task = _task(split, scores, float(prices.sum()), settings)
    chosen = {line: choose_ranked(some, task, settings.budgets) for line, some in _lines_from(found).items()}
    about = _about(split, task, len(prices))
    return _Panel(name, about, full_alone(task), chosen, judge_claims(CLAIMS, chosen), seconds)


def _task(split: RankingSplit, scores: FullScores, full_cost: float, settings: RankSettings) -> RankedTask:
    """Collect documents to choose with and to report on, with the votes of f0 as log-odds."""
    val, test = on_one_scale(
        full_log_odds(scores.val, settings.full_trees),
        full_log_odds(scores.test, settings.full_trees),
        split.relevant_or_not().y_val == 1,
    )
    return RankedTask(
        Documents(split.y_val, Queries(split.qid_val), val),
        Documents(split.y_test, Queries(split.qid_test), test),
        full_cost,
        settings.places,
        settings.thresholds,
    )


def folds_of_queries(queries: Queries, n_folds: int) -> Ints:
    """Fold of each document; queries are kept whole, and folds have nearly the same number of queries."""
    dealt = np.random.default_rng(0).permutation(queries.n_queries) % min(n_folds, queries.n_queries)
    return np.asarray(dealt[queries.number], dtype=np.intp)


def splits_by_query(queries: Queries, n_folds: int) -> list[tuple[Ints, Ints]]:
    """List training and held-out documents of each fold, as scikit-learn's ``cv`` takes them."""
    folds = folds_of_queries(queries, n_folds)
    return [(np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)) for fold in np.unique(folds)]


def _for_probability(fit: Fit) -> Fit:
    """Let a leaf of BudgetPrune lose its share of wrong labels; by votes alone, bare roots answer "irrelevant"."""
    pruner = clone(fit.arguments["estimator"]).set_params(error="probability")
    return replace(
        fit,
        settings={**fit.settings, "error": "probability"},
        arguments={**fit.arguments, "estimator": pruner},
    )


def _some_queries(split: RankingSplit, numbers: Sequence[int], seed: int) -> RankingSplit:
    """Draw at most so many training, validation and test queries with a seed; keep all of them if none are named."""
    if not numbers:
        return split
    parts: dict[str, Any] = {}
    for part, most in zip(("train", "val", "test"), numbers, strict=True):
        qid = getattr(split, f"qid_{part}")
        drawn = np.random.default_rng(seed).permutation(np.unique(qid))[:most]
        kept = np.isin(qid, drawn)
        parts |= {f"{what}_{part}": getattr(split, f"{what}_{part}")[kept] for what in ("X", "y", "qid")}
    return replace(split, **parts)


def _lines_from(found: dict[str, list[AnyCandidate]]) -> dict[str, list[AnyCandidate]]:
    lines = curves_from(found)
    if found.get(PRUNED_FOR_PROBABILITY):
        lines[PRUNED_FOR_PROBABILITY] = found[PRUNED_FOR_PROBABILITY]
    misers = [one for one in found.get("miser", ()) if isinstance(one, Candidate)]
    if misers:
        lines[TOP_FIRST] = [
            replace(one, g_val=one.f1_val, g_test=one.f1_test, threshold=None) for one in misers
        ]
    return lines


# -- the page ----------------------------------------------------------------------------------


def _about(split: RankingSplit, task: RankedTask, n_columns: int) -> str:
    """Say how many queries, documents and columns there are."""
    parts = (split.qid_train, split.qid_val, split.qid_test)
    queries = " / ".join(f"{len(np.unique(part)):,}" for part in parts)
    documents = " / ".join(f"{len(part):,}" for part in parts)
    undefined = task.test.queries.n_queries - len(task.test.average_precision(task.test.full, task.k))
    return (
        f"{queries} queries to learn from, to choose with and to report on, with {documents} documents; {undefined} "
        f"test queries without a relevant document. {n_columns} columns that cost {task.full_cost:g} together."
    )


def _numbers(panel: _Panel) -> dict[str, Any]:
    """Collect everything measured on one collection, for the JSON file."""
    return {
        "about": panel.about,
        "f0": panel.full.as_numbers(),
        "chosen": {line: [point.as_numbers() for point in points] for line, points in panel.chosen.items()},
        "claims": [verdict.as_numbers() for verdict in panel.verdicts],
    }


def _notes(panel: _Panel) -> list[str]:
    """Say what f0 reaches and what became of every claim."""
    full = panel.full
    f0 = (
        f"f0 for every document: AP {full.accuracy:.4f} (95 %: {full.band[0]:.3f} to {full.band[1]:.3f}), NDCG "
        f"{full.ndcg:.4f}, at cost {full.cost:g} per document."
    )
    alone = [point.val_accuracy for points in panel.chosen.values() for point in points if point.share == 0.0]
    choice = f"On validation queries f0 has AP {full.val_accuracy:.4f}" + (
        f", the best order without it {max(alone):.4f}." if alone else "."
    )
    took = f"Fits took {panel.seconds:.0f} s, added up over processes."
    return [f"{panel.name}: {note}" for note in (panel.about, f0, choice, *map(str, panel.verdicts), took)]
