"""A fitted estimator that reads tables by the names of their columns, and what to expect of it."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import get_tags

from thrifty.arrays import Labels, Words
from thrifty.cascade.estimators import BudgetedCascade, BudgetedClassifier
from thrifty.chain.chain import Chain
from thrifty.chain.explain import Explanation, explain_rows
from thrifty.chain.purchases import Receipt
from thrifty.chain.session import Session
from thrifty.chain.sources import TableReader
from thrifty.errors import InvalidInputError
from thrifty.estimators.base import ChainEstimator
from thrifty.estimators.checks import check_goal
from thrifty.evidence.budgets import hold_budget
from thrifty.evidence.certificate import Certificate
from thrifty.evidence.evidence import Evidence
from thrifty.evidence.frontier import Frontier
from thrifty.evidence.observe import chain_of, evidence_of
from thrifty.evidence.tests import check_max_loss, empirical_risk_within
from thrifty.full.model import EstimatorFull
from thrifty.tables.buyer import TableBuyer
from thrifty.tables.by_class import encode_class_keys
from thrifty.tables.promise import Promise, promise_of
from thrifty.tables.reader import CellReader, Cells
from thrifty.tables.schema import Schema
from thrifty.tables.spread import Spread
from thrifty.tasks.classes import classification
from thrifty.tasks.ranking import RankingTask

__all__ = ["About", "TableSystem", "as_table_system"]


@dataclass(frozen=True)
class About:
    """Where a system comes from.

    Attributes
    ----------
    full : str
        The kind of the full model, or the name of its file.
    method : str
        What was fitted in front of it.
    seed : int
        Seed of all random choices.
    n_rows : int
        Rows of the training table.
    budget, max_loss : float, optional
        What was asked for.
    """

    full: str
    method: str
    seed: int
    n_rows: int
    budget: float | None = None
    max_loss: float | Mapping[str, float] | None = None


@dataclass(frozen=True, eq=False)
class TableSystem:
    """Everything that answers, explanations and reports need.

    Attributes
    ----------
    schema : Schema
        How tables are read.
    estimator : fitted estimator
        What answers, at its operating point in force; it may know the labels by other names than the schema.
    about : About
        Where the system comes from.
    promise : Promise, optional
        What to expect at the operating point in force; None for an estimator that was saved by itself, about which
        nothing was measured on rows that it has not seen.
    spread : Spread, optional
        How the values of each column were spread in the training table; None where the file does not tell.
    """

    schema: Schema
    estimator: Any
    about: About
    promise: Promise | None
    spread: Spread | None = None

    @property
    def promised(self) -> Promise:
        """The promise, or a refusal where there is none."""
        if self.promise is None:
            raise InvalidInputError(
                f"the file holds a {self.about.method} that was saved by itself, about which nothing was measured on "
                f"new rows. `thrifty fit` writes files that can be asked for this."
            )
        return self.promise

    @property
    def chain(self) -> Chain:
        """What serves."""
        return chain_of(self.estimator)

    @property
    def certificate(self) -> Certificate | None:
        """What was proved about the operating point in force."""
        certificate: Certificate | None = getattr(self.estimator, "certificate_", None)
        if certificate is None or self.schema.is_number:
            return certificate
        known, names = self.chain.task.classes.tolist(), self.schema.classes.tolist()
        return certificate.with_labels(dict(zip(known, names, strict=True)))

    @property
    def bought(self) -> list[str]:
        """Names of the columns that the stages buy, in order."""
        return [self.schema.names[column] for column in self.chain.columns]

    @property
    def frontier(self) -> Frontier:
        """The efficient operating points on the rows that they are judged on."""
        if not hasattr(self.estimator, "frontier_"):
            raise InvalidInputError(
                f"the file holds a {self.about.method} without the rows that its operating points were judged on, so "
                f"there is no frontier to show. Save the estimator that it is part of."
            )
        frontier: Frontier = self.estimator.frontier_
        return frontier

    # -- operating points ------------------------------------------------------------------------

    def at(
        self,
        *,
        budget: float | None = None,
        max_loss: float | Mapping[str, float] | None = None,
        min_recall: Mapping[str, float] | None = None,
    ) -> "TableSystem":
        """The system at another operating point: a mean cost per row, or a loss against the full model.

        Both are estimates, on the rows of the fit. Losses and recalls by class have the names of the classes in the
        table.
        """
        if not isinstance(self.estimator, ChainEstimator):
            raise InvalidInputError(
                f"the file holds a {self.about.method} without what it takes to move to another operating point."
            )
        names, known = self.schema.classes, self.chain.task.classes
        max_loss = encode_class_keys("--max-loss", max_loss, names, known)
        if min_recall:
            floors = encode_class_keys("--min-recall", min_recall, names, known)
            return self._with_floors(floors, budget, max_loss)
        check_goal(budget=budget, max_loss=max_loss)
        if max_loss is None:
            moved = self.estimator.at(budget=budget)
        elif isinstance(self.estimator, BudgetedCascade):
            moved = self.estimator.at(max_loss=max_loss)
        else:
            # An estimator with a single gate.
            moved = self.estimator.at(threshold=_losing(self.estimator, max_loss))  # type: ignore[call-arg]
        promise = None if self.promise is None else promise_of(moved, self.promise)
        return replace(self, estimator=moved, promise=promise)

    def _with_floors(self, floors: Any, budget: Any, max_loss: Any) -> "TableSystem":
        if not isinstance(self.estimator, BudgetedClassifier):
            raise InvalidInputError(
                f"--min-recall is for a cascade of classes; the file holds a {self.about.method}. Leave it out."
            )
        moved = self.estimator.at(budget=budget, max_loss=max_loss, min_recall=floors)
        promise = None if self.promise is None else promise_of(moved, self.promise)
        return replace(self, estimator=moved, promise=promise)

    def held(self, cells: Cells, budget: float) -> "TableSystem":
        """The system, cut so that just these rows spend a budget: at most, and as nearly as can be."""
        return replace(self, estimator=hold_budget(self.estimator, self._at_hand(cells), budget))

    def with_row_key(self, column: str | None) -> "TableSystem":
        """The system, with the keys of rows in a column of the tables to come; as it is where None is named."""
        return self if column is None else replace(self, schema=replace(self.schema, row_key=column))

    @property
    def relabelled(self) -> Any:
        """The estimator, or the chain, with the labels of the table; where it predicts numbers, as it is."""
        if self.schema.is_number:
            return self.estimator
        if isinstance(self.estimator, Chain):
            return self._with_labels(self.estimator)
        other = copy.copy(self.estimator)
        other._change_chain(self._with_labels)
        return other

    def _with_labels(self, chain: Chain) -> Chain:
        mistakes = getattr(chain.task, "mistakes", None)
        return replace(chain, task=classification(self.schema.classes, mistakes))

    # -- rows ------------------------------------------------------------------------------------

    def read(self, frame: Any, *, unseen_is_missing: bool = False, row_keys: Words | None = None) -> Cells:
        """The columns of a table, as the schema reads them."""
        cells = self.schema.cells(frame, unseen_is_missing=unseen_is_missing, row_keys=row_keys)
        if not self._reads_raw:
            return cells
        return replace(cells, raw=self.schema.raw(frame))

    def answers(self, cells: Cells) -> dict[str, Any]:
        """Answer, its probability if it is a label, the stage that gave it and what it cost, for each row."""
        chain, reader = self.chain, self.reader(cells)
        walk = chain.walk(reader)
        outputs = chain.answer(reader, walk)
        answer = chain.task.answers(outputs)
        if self.schema.is_number:
            said = {"answer": answer}
        else:
            said = {"answer": self._labels(answer), "probability": chain.task.confidence(outputs)}
        return {
            **said,
            "stage": np.where(walk.route == chain.n_stages, "full", walk.route.astype(str)),
            "cost": chain.spent(reader, walk),
        }

    def buy(
        self,
        source: Any,
        *,
        on_failure: str = "answer",
        n_rows: int | None = None,
        batch_size: int | None = None,
        full_timeout: float | None = None,
        unseen_is_missing: bool = False,
        row_key: Any = None,
    ) -> Receipt:
        """Answer every row of a source of cells as the table has them, and say what was bought, paid and failed.

        Parameters are those of the estimators' ``buy``, but for prices; ``unseen_is_missing`` has text that was not in
        the training table count as missing, where it is otherwise a purchase that failed.
        """
        return self._buyer(unseen_is_missing=unseen_is_missing).buy(
            source,
            on_failure=on_failure,
            n_rows=n_rows,
            batch_size=batch_size,
            full_timeout=full_timeout,
            row_key=row_key,
        )

    def start(self, key: Any = None, *, unseen_is_missing: bool = False) -> Session:
        """Start with a row of which nothing is known yet, and be told what to buy for it, one step after another."""
        return self._buyer(unseen_is_missing=unseen_is_missing).start(key)

    def _buyer(self, *, unseen_is_missing: bool) -> TableBuyer:
        return TableBuyer.of(chain_of(self.relabelled), self.schema, unseen_is_missing=unseen_is_missing)

    def explain(self, cells: Cells) -> list[Explanation]:
        """The way of each row, with the names of the columns and the labels as the table has them."""
        return explain_rows(chain_of(self.relabelled), self.reader(cells), self.schema.names)

    def starved(self, cells: Cells, stage: Labels) -> int:
        """How many rows the full model answered although more than half of the cells it reads were missing."""
        asked = cells.numbers[np.ix_(stage == "full", self.chain.price_list.read_by_full)]
        return int((np.isnan(asked).mean(axis=1) > 0.5).sum())

    def on(self, cells: Cells, labels: Labels) -> Evidence:
        """Every operating point on labelled rows; the full model is asked about all of them once."""
        rows, chain, reader = np.arange(len(cells)), self.chain, self.reader(cells)
        reader.block(rows, chain.columns)
        reader.table(rows, chain.price_list.full_columns)
        estimator = self.relabelled
        settings = self.estimator.evidence_.settings
        return evidence_of(estimator, self._at_hand(cells), labels, settings=settings)

    @property
    def _reads_raw(self) -> bool:
        """Whether the full model reads text or dates as they come, and says by itself what it cannot read."""
        return self.chain.levels is not None or bool(self.chain.holding("time", "day"))

    def _at_hand(self, cells: Cells) -> TableReader:
        """Reads all cells, whether or not a row needs them."""
        return TableReader(cells.numbers, cells.table(self.chain.frame), cells.row_numbers, cells.row_keys)

    def reader(self, cells: Cells) -> CellReader:
        """Reads cells for the chain, and refuses those that a row needs and that cannot be read."""
        if not getattr(self.estimator, "_accepts_missing", True):
            columns = self.chain.stages[0].columns
            cells.refuse_unreadable(columns=columns)
            cells.refuse_missing(np.arange(len(cells)), columns, f"the {self.about.method} stage")
        reads_all = self._reads_raw or self._full_reads_missing
        needs = None if reads_all else f"the full model ({self.about.full})"
        return CellReader(cells, self.chain.frame, needs)

    @property
    def refuses_missing(self) -> bool:
        """Whether a stage or the full model cannot do with missing values."""
        return not (getattr(self.estimator, "_accepts_missing", True) and self._full_reads_missing)

    @property
    def _full_reads_missing(self) -> bool:
        model = self.chain.innermost
        return not isinstance(model, EstimatorFull) or bool(get_tags(model.estimator).input_tags.allow_nan)

    def _labels(self, answers: Labels) -> Labels:
        task = self.chain.task
        labels: Labels = self.schema.classes[task.strata(task.encode("answers", answers, len(answers)))]
        return labels


def as_table_system(thing: Any) -> TableSystem:
    """A fitted estimator or chain that was saved by itself, as what reads tables by the names of its columns.

    Columns of a fit that knew no names are called x0, x1 and so on.
    """
    kind = type(thing).__name__
    chain = chain_of(thing)
    # A fit on an array knows no names, and the commands know columns by nothing else.
    names = chain.names or tuple(f"x{column}" for column in range(chain.price_list.n_features))
    full = getattr(chain.innermost, "estimator", chain.innermost)
    levels = {} if chain.levels is None else chain.levels.of_column
    categories = {names[column]: texts for column, texts in levels.items()}
    query = ""
    if isinstance(chain.task, RankingTask):
        # Chains, and files that were written before rankers knew it, do not tell.
        name = getattr(thing, "query_name_", None)
        query = name if isinstance(name, str) and name else "qid"
    return TableSystem(
        Schema(
            names,
            categories,
            "",
            chain.classes,
            query,
            dates=tuple(names[column] for column in chain.holding("time", "day")),
            truths=tuple(names[column] for column in chain.holding("truth")),
        ),
        thing,
        About(type(full).__name__, kind, 0, 0),
        None,
    )


def _losing(estimator: ChainEstimator, max_loss: Any) -> float:
    """Threshold of the cheapest cut of a gate that loses at most so much on the rows of the evidence."""
    check_max_loss(max_loss)
    against = Frontier.from_evidence([estimator.evidence_], against_full=True)
    allowed = np.flatnonzero(empirical_risk_within(against, max_loss))
    return float(against.threshold[allowed[0]]) if len(allowed) else float("-inf")
