"""From a table to a chosen system: prepare, split, fit, choose, tune, promise."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sklearn.base import clone
from threadpoolctl import threadpool_limits

from thrifty.evidence.frontier import Frontier
from thrifty.exceptions import InvalidInputError
from thrifty.full.model import EstimatorFull, FullModel
from thrifty.objective.costs import check_amount
from thrifty.tables.candidates import Candidates, Rows, fit_candidates, look
from thrifty.tables.choice import Choice, choose_for_budget, choose_for_loss
from thrifty.tables.full_models import Competition, best_kind, recipe
from thrifty.tables.parts import split_rows
from thrifty.tables.preparing import Prepared, prepare, refuse_missing
from thrifty.tables.promising import promised, reduced, tuned
from thrifty.tables.system import About, Promise, TableSystem

__all__ = ["Fitted", "Wish", "fit_table"]

Progress = Callable[[str, int, int], None]

_NEAR = 0.01  # a budget that is met up to this share of it needs no words


@dataclass(frozen=True)
class Wish:
    """What a user wants: a mean cost per row, or a loss against f0 that is proved; exactly one of them."""

    budget: float | None = None
    max_loss: float | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if (self.budget is None) == (self.max_loss is None):
            got = "neither" if self.budget is None else "both"
            raise InvalidInputError(
                f"give one of --budget (mean cost per row) and --max-loss (share of answers that may become worse "
                f"than f0's); got {got}."
            )
        if self.budget is not None:
            check_amount("--budget", self.budget)
        for name, value in (("--max-loss", self.max_loss), ("--confidence", self.confidence)):
            if value is not None and not 0 < value < 1:
                raise InvalidInputError(f"{name} must lie strictly between 0 and 1; got {value!r}.")


@dataclass(frozen=True)
class Fitted:
    """A chosen system and what happened on the way to it.

    Attributes
    ----------
    system : TableSystem
        What is kept.
    competition : Competition, optional
        Of kinds of f0, where none was named.
    notes : tuple of str
        What the user should know.
    n_systems : int
        Different systems there were to choose from.
    """

    system: TableSystem
    competition: Competition | None
    notes: tuple[str, ...]
    n_systems: int


def fit_table(
    frame: Any,
    target: str,
    wish: Wish,
    *,
    costs: str | os.PathLike[str] | None = None,
    full: str = "auto",
    full_cost: float = 0.0,
    ignore: Sequence[str] = (),
    seed: int = 0,
    n_jobs: int = 1,
    store: str | os.PathLike[str] | None = None,
    trusted: Iterable[str] = (),
    progress: Progress = lambda what, done, total: None,  # noqa: ARG005
) -> Fitted:
    """Fit many systems behind one f0 and choose the one that a wish asks for.

    Parameters
    ----------
    frame : pandas data frame
        Rows with their label.
    target : str
        Name of the column with the label.
    wish : Wish
        What is asked for.
    costs : path, optional
        File of prices; None is 1 for each column.
    full : str
        ``"auto"``, a kind of ``full_models.KINDS``, or the path of a ``.skops`` file with a fitted classifier.
    full_cost : float
        Price of one call of f0.
    ignore : sequence of str
        Columns that are no features.
    seed, n_jobs
        Seed of everything random; fits side by side.
    store : path of a folder, optional
        Keeps finished fits, for the same call to go on from.
    trusted : names of types
        What a model from a file may be made of, besides the usual.
    progress : callable
        Called as ``progress(what, done, total)``.
    """
    prepared = prepare(
        frame, target, costs=costs, full=full, full_cost=full_cost, ignore=ignore, trusted=trusted
    )
    # Libraries that start a thread per core, whoever else is at work, are slower by far than those that do not.
    with threadpool_limits(n_jobs):
        return _fit(prepared, wish, full, seed, n_jobs, store, progress)


def _fit(
    prepared: Prepared,
    wish: Wish,
    full: str,
    seed: int,
    n_jobs: int,
    store: str | os.PathLike[str] | None,
    progress: Progress,
) -> Fitted:
    parts = split_rows(prepared.rows.X, prepared.rows.y, prove=wish.max_loss is not None, seed=seed)
    learn, choose, prove = (prepared.rows.take(rows) for rows in (parts.learn, parts.choose, parts.prove))
    kind, f0, competition = _full(prepared, full, learn, seed, n_jobs, progress)
    candidates = fit_candidates(
        f0, prepared.prices, learn, choose, seed=seed, n_jobs=n_jobs, store=store, progress=progress
    )
    progress("choosing", 0, 1)
    on_choose = look(candidates.systems, choose, candidates.probability(choose.X))
    frontier = Frontier.from_outcomes(on_choose)
    if wish.budget is not None:
        choice = choose_for_budget(on_choose, frontier, wish.budget)
        choice, spending = tuned(choice, wish.budget, on_choose, candidates, learn, choose, seed)
        promise = promised(on_choose[choice.source], choice, spending)
    else:
        on_prove = look(candidates.systems, prove, candidates.probability(prove.X))
        choice = choose_for_loss(on_choose, on_prove, wish.max_loss or 0.0, wish.confidence)
        promise = promised(on_prove[choice.source], choice)
    progress("choosing", 1, 1)
    serving = _serving(prepared, f0, candidates, choice, progress)
    about = About(kind, seed, len(learn.y), len(choose.y), len(prove.y), wish.budget, wish.max_loss)
    system = reduced(prepared.schema, candidates, on_choose, frontier, choice, promise, about, serving)
    notes = (*prepared.notes, *_unspent(choice, promise, wish.budget, len(choose.y)))
    return Fitted(system, competition, notes, len(candidates.systems))


def _unspent(choice: Choice, promise: Promise, budget: float | None, n_held: int) -> list[str]:
    """Why a budget is not spent, where it is not."""
    if budget is None or abs(promise.cost - budget) <= _NEAR * budget:
        return []
    if not choice.spends_all or promise.cost >= promise.full_cost:
        return [
            f"the budget of {budget:g} is not spent: more than {promise.cost:.4g} bought nothing that showed"
        ]
    told = (
        f"the budget of {budget:g} is met as nearly as {n_held:,} rows of the choice tell, at {promise.cost:.4g}: one "
        f"of them sent to f0 is worth {(promise.full_cost - promise.cheap_cost) / n_held:.3g}"
    )
    return [told]


def _full(
    prepared: Prepared, full: str, learn: Rows, seed: int, n_jobs: int, progress: Progress
) -> tuple[str, Any, Competition | None]:
    """f0's kind, f0 itself, and the competition it won if there was one."""
    if prepared.frozen is not None:
        kind, f0, competition = Path(full).name, prepared.frozen, None
    else:
        competition = None
        if full == "auto":
            competition = best_kind(
                learn.X,
                learn.y,
                seed=seed,
                n_jobs=n_jobs,
                has_missing=prepared.has_missing,
                progress=progress,
            )
        kind = full if competition is None else competition.winner
        f0 = recipe(kind, seed, n_jobs)
    refuse_missing(prepared, f0, kind)
    return kind, f0, competition


def _serving(
    prepared: Prepared, f0: Any, candidates: Candidates, choice: Choice, progress: Progress
) -> FullModel:
    """The f0 that answers.

    Gates know nothing of f0's parameters: routes and costs stay as they are if f0 learns from every row in the end. A
    certificate is about the f0 that it was issued for, so there it stays too.
    """
    judged = candidates.full
    if prepared.frozen is not None or choice.certificate is not None or not isinstance(judged, EstimatorFull):
        return judged
    progress("fitting f0 on all rows", 0, 1)
    fitted = clone(f0).fit(prepared.rows.X, prepared.rows.y)
    progress("fitting f0 on all rows", 1, 1)
    return EstimatorFull(fitted, judged.slope, judged.intercept)
