"""Ranking, figure 3 (c): which documents answer a query, for as little processor time as possible.

The paper's data, set 1 of the Yahoo! challenge, may not be passed on; its prices may. So prices of that list are dealt
out to the columns of MQ2008 and of a sample of MSLR-WEB, and the question is the paper's: documents are
relevant or not, f0 is a random forest of 140 trees grown to the end, the measure is average precision of the first
five. Whatever is judged out of fold is judged on whole queries: documents of one query are alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from thrifty.arrays import Floats
from thrifty.datasets import (
    RankingSplit,
    draw_prices,
    load_mq2008,
    load_mslr,
    load_yahoo,
    load_yahoo_prices,
)
from thrifty.exceptions import InvalidInputError
from thrifty.experiments.candidates import AnyCandidate, Candidate
from thrifty.experiments.claims import Claim, judge_claims
from thrifty.experiments.curves import CURVES, curves_from
from thrifty.experiments.figure import PAPER_CLAIMS
from thrifty.experiments.fitting import Fit, fit_all, kept_in
from thrifty.experiments.methods import plan_fits
from thrifty.experiments.outcome import Outcome, Run
from thrifty.experiments.priced import Priced, SweepSettings
from thrifty.experiments.ranked import (
    Documents,
    RankedChoice,
    RankedTask,
    choose_ranked,
    full_log_odds,
    on_one_scale,
)
from thrifty.experiments.ranked_full import judge_by_query, splits_by_query
from thrifty.experiments.ranked_page import (
    PRUNED_FOR_PROBABILITY,
    TOP_FIRST,
    RankedPanel,
    about_of,
    draw_panels,
    notes_of,
    numbers_of,
    table_of,
)
from thrifty.experiments.settings import read_settings
from thrifty.ranking.curve import band_over_queries
from thrifty.ranking.queries import Queries, ndcg_at

__all__ = ["NAME", "RankSettings", "run"]

NAME = "rank"

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
    """What is swept, and what only ranking has.

    Attributes
    ----------
    data : tuple of str
        Collections of documents: ``mq2008``, ``mslr``, or ``yahoo`` for those who hold the original files.
    places : int
        Places of a list that count.
    thresholds : int
        Most thresholds of one gate that are looked at.
    price_seed : int
        Of the prices dealt out to columns.
    queries : tuple of int
        At most so many training, validation and test queries; empty for all. Takes the place of ``rows``.
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


def run(how: Run) -> Outcome:
    """Run the experiment, draw the picture and return the numbers."""
    settings = read_settings(RankSettings, NAME, profile=how.profile, config=how.config)
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
        [row for panel in panels for row in table_of(panel, settings.budgets, lines)],
        {
            "budgets": list(settings.budgets),
            "price_seed": settings.price_seed,
            **{panel.name: numbers_of(panel) for panel in panels},
        },
        [*NOTES, f"Sweep: {settings.thinned}", *(note for panel in panels for note in notes_of(panel))],
    )
    outcome.files.append(draw_panels(panels, how.out / f"{NAME}.png", settings.places))
    outcome.write(how.out)
    return outcome


def _run_panel(collection: str, settings: RankSettings, how: Run) -> RankedPanel:
    name = COLLECTIONS[collection].title
    everything, prices = COLLECTIONS[collection].load(how.data)
    split = _some_queries(everything, settings.queries, settings.seed)
    binary = split.relevant_or_not()
    if prices is None:
        prices = draw_prices(binary.X_train.shape[1], load_yahoo_prices(how.data), settings.price_seed)
    priced = Priced(binary, prices)
    ((_, model),) = settings.forest().items()
    with kept_in(how.out, f"{NAME}_{collection}", binary) as kept:
        scores = judge_by_query(
            model, binary, Queries(split.qid_train), kept=kept, progress=how.progress, what=name
        )
        fits = plan_fits(priced, settings, scores)
        for fit in fits.get("cascade", ()):
            fit.arguments["estimator"].set_params(cv=splits_by_query(Queries(split.qid_train), 4))
        fits[PRUNED_FOR_PROBABILITY] = [_for_probability(fit) for fit in fits.get("prune", ())]
        found = fit_all(fits, binary, kept=kept, n_jobs=how.n_jobs, progress=how.progress, what=name)
        seconds = kept.seconds
    full_val, full_test = on_one_scale(
        full_log_odds(scores.val, settings.full_trees),
        full_log_odds(scores.test, settings.full_trees),
        binary.y_val == 1,
    )
    task = RankedTask(
        Documents(split.y_val, Queries(split.qid_val), full_val),
        Documents(split.y_test, Queries(split.qid_test), full_test),
        float(prices.sum()),
        settings.places,
        settings.thresholds,
    )
    chosen = {line: choose_ranked(some, task, settings.budgets) for line, some in _lines_from(found).items()}
    return RankedPanel(
        name, about_of(split, task, prices), _full_alone(task), chosen, judge_claims(CLAIMS, chosen), seconds
    )


def _for_probability(fit: Fit) -> Fit:
    """BudgetPrune where a leaf loses its share of wrong labels; by votes alone, bare roots answer "irrelevant"."""
    pruner = clone(fit.arguments["estimator"]).set_params(error="probability")
    return replace(
        fit,
        settings={**fit.settings, "error": "probability"},
        arguments={**fit.arguments, "estimator": pruner},
    )


def _some_queries(split: RankingSplit, numbers: Sequence[int], seed: int) -> RankingSplit:
    """At most so many training, validation and test queries, drawn with a seed; all of them if nothing is said."""
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


def _full_alone(task: RankedTask) -> RankedChoice:
    """F0 for every document."""
    test = task.test
    found = test.average_precision(test.full, task.k)
    per_query: Any = found.value[found.is_defined]
    return RankedChoice(
        budget=task.full_cost,
        settings={},
        threshold=-np.inf,
        val_accuracy=task.val.average_precision(task.val.full, task.k).mean,
        val_cost=task.full_cost,
        accuracy=found.mean,
        cost=task.full_cost,
        share=1.0,
        right=per_query,
        ndcg=ndcg_at(test.grades, test.full, test.queries, task.k).mean,
        band=band_over_queries(found.value),
        cost_band=(task.full_cost, task.full_cost),
        query_cost=float(test.queries.total(task.full_cost).mean()),
    )
