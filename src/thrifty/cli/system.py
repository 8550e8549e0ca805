"""Systems as the commands use them: what they know, moved to another operating point, applied to a table.

A file of ``thrifty fit`` holds an estimator with additional attributes: ``target_name_``, ``row_key_name_`` and
``query_name_``, names of columns that are not features; ``full_name_``, the kind of its full model; ``goal_``; and
``spread_``, deciles of each column. Commands also take estimators and chains saved from Python, which lack these.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from thrifty.arrays import Labels
from thrifty.cascade.estimators import BudgetedCascade, BudgetedClassifier
from thrifty.chain.chain import Chain
from thrifty.chain.readers import TableReader
from thrifty.cli.options import labels_by_name
from thrifty.errors import InvalidInputError
from thrifty.estimators.base import ChainEstimator
from thrifty.estimators.checks import check_goal
from thrifty.evidence.frontier import Frontier
from thrifty.evidence.observe import chain_of
from thrifty.evidence.tests import check_max_loss, empirical_risk_within
from thrifty.reporting.facts import Facts
from thrifty.reporting.measure import expected
from thrifty.tables.reader import Cells
from thrifty.tasks.ranking import RankingTask

__all__ = [
    "answers_of",
    "at_operating_point",
    "column_name",
    "count_mostly_missing",
    "expected_of",
    "frontier_of",
    "is_number",
    "method_of",
    "named_row_key",
    "reader_of_all_cells",
    "refuse_unreadable",
    "text_columns",
]


# -- what a system knows ---------------------------------------------------------------------------


def is_number(system: Any) -> bool:
    """Whether a number is predicted, as in regression and ranking, and not a label."""
    return len(chain_of(system).classes) == 0


def method_of(system: Any) -> str:
    """Name of the method in front of the full model."""
    return "cascade" if isinstance(system, BudgetedCascade) else type(system).__name__


def column_name(system: Any, what: str) -> str:
    """Name of the column of the "target", "row_key" or "query"; empty if the file has none."""
    name = getattr(system, f"{what}_name_", None)
    if what == "query" and not isinstance(chain_of(system).task, RankingTask):
        return ""
    default = "qid" if what == "query" else ""  # chains of rankers have no name for it
    return name if isinstance(name, str) and name else default


def named_row_key(system: Any, row_key: str | None) -> str | None:
    """Column with the keys of the rows: that of the command line, else that of the fit."""
    return row_key or column_name(system, "row_key") or None


def text_columns(system: Any, row_key: str | None = None) -> tuple[str, ...]:
    """Columns to read from a file as text: levels, keys with leading zeros, labels that are text."""
    keys, target = named_row_key(system, row_key), column_name(system, "target")
    is_text = chain_of(system).classes.dtype.kind in "UO"
    return (
        *chain_of(system).schema.text_columns,
        *([keys] if keys else []),
        *([target] if target and is_text else []),
    )


def expected_of(system: Any) -> Facts:
    """Expected results of new rows at the operating point in force; an error where nothing was measured."""
    if isinstance(system, ChainEstimator) and hasattr(system, "frontier_"):
        return expected(system)
    raise InvalidInputError(
        f"the file holds a {method_of(system)} that was saved from Python, about which nothing was measured on "
        f"new rows. `thrifty fit` writes files that can be asked for this."
    )


def frontier_of(system: Any) -> Frontier:
    """Efficient operating points, with their results on the rows that they are judged on."""
    if not hasattr(system, "frontier_"):
        raise InvalidInputError(
            f"the file holds a {method_of(system)} without the rows that its operating points were judged on, so "
            f"there is no frontier to show. Save the estimator that it is part of."
        )
    frontier: Frontier = system.frontier_
    return frontier


def at_operating_point(
    system: Any,
    *,
    budget: float | None = None,
    max_loss: float | Mapping[str, float] | None = None,
    min_recall: Mapping[str, float] | None = None,
) -> Any:
    """The system at another operating point; ``max_loss`` and ``min_recall`` are by class name."""
    if not isinstance(system, ChainEstimator):
        raise InvalidInputError(
            f"the file holds a {method_of(system)} without what it takes to move to another operating point."
        )
    classes = system.chain_.classes
    goal = {"budget": budget, "max_loss": labels_by_name("--max-loss", max_loss, classes)}
    if min_recall:
        if not isinstance(system, BudgetedClassifier):
            raise InvalidInputError(
                f"--min-recall is for a cascade of classes; the file holds a {method_of(system)}. Leave it out."
            )
        floors = labels_by_name("--min-recall", min_recall, classes)
        moved = system.at(**goal, min_recall=floors)
    else:
        check_goal(**goal)
        if max_loss is None:
            moved = system.at(budget=budget)
        elif isinstance(system, BudgetedCascade):
            moved = system.at(max_loss=goal["max_loss"])
        else:  # an estimator with a single gate
            moved = system.at(threshold=_threshold_within(system, goal["max_loss"]))  # type: ignore[call-arg]
    return moved


def _threshold_within(system: ChainEstimator, max_loss: Any) -> float:
    """Cheapest threshold of a gate with at most this empirical risk on the rows of the evidence."""
    check_max_loss(max_loss)
    against = Frontier.from_evidence([system.evidence_], against_full=True)
    allowed = np.flatnonzero(empirical_risk_within(against, max_loss))
    return float(against.threshold[allowed[0]]) if len(allowed) else float("-inf")


# -- rows ------------------------------------------------------------------------------------------


def answers_of(system: Any, cells: Cells) -> dict[str, Any]:
    """Answer, probability (of a label), stage and cost of each row."""
    chain = chain_of(system)
    reader = chain.reader(cells)
    walk = chain.walk(reader)
    outputs = chain.answer(reader, walk)
    answer = chain.task.answers(outputs)
    return {
        "answer": answer,
        **({} if is_number(system) else {"probability": chain.task.confidence(outputs)}),
        "stage": np.where(walk.route == chain.n_stages, "full", walk.route.astype(str)),
        "cost": chain.spent(reader, walk),
    }


def count_mostly_missing(system: Any, cells: Cells, stage: Labels) -> int:
    """Number of rows answered by the full model with more than half of its cells missing."""
    asked = cells.numbers[np.ix_(stage == "full", chain_of(system).price_list.read_by_full)]
    return int((np.isnan(asked).mean(axis=1) > 0.5).sum())


def reader_of_all_cells(system: Any, cells: Cells) -> TableReader:
    """Reader of all cells, also those that a row does not need; unreadable cells are missing."""
    table = chain_of(system).schema.table_of(cells)
    return TableReader(cells.numbers, table, cells.row_numbers, cells.row_keys)


def refuse_unreadable(chain: Chain, cells: Cells) -> None:
    """Refuse a table with an unreadable cell in a column that a stage or the full model reads."""
    reader, rows = chain.reader(cells), np.arange(len(cells))
    reader.block(rows, chain.columns)
    reader.table(rows, chain.price_list.full_columns)
