"""One batch of rows through a chain: the local walk, then the full model for the rows sent on, or what is left without.

A row or a few are answered where the request is read: the walk takes less time than handing it to a thread. Larger
batches, and the full model in the file, are left to one thread, so that other requests are read meanwhile.
"""

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from thrifty.arrays import Bools, Floats, Ints, Labels
from thrifty.chain.chain import Chain, Walk
from thrifty.chain.sources import Reader, TableReader
from thrifty.evidence.observe import chain_of
from thrifty.exceptions import FULL_MODEL, FullModelDownError, InvalidAnswerError, InvalidInputError
from thrifty.serve.drift import Drift
from thrifty.serve.request_rows import RequestRows
from thrifty.serve.together import Together
from thrifty.tables.reader import Cells
from thrifty.tables.system import TableSystem

__all__ = ["Answered", "Controller", "Model", "Remote"]

FEW_ROWS = 32
"""Rows that are answered sooner than a thread would begin with them."""

NOT_TRIED = ("breaker_open", "too_many_in_flight", "not_started")
"""Failures of rows for which nothing was bought, because nobody was asked."""

MOST_EXPLORING = 8
"""Comparisons under way at once; rows that would be more are not compared."""


class Remote(Protocol):
    """A full model elsewhere."""

    async def start(self) -> None:
        """Be ready to be asked."""

    async def close(self) -> None:
        """Be asked no more."""

    async def ask(self, rows: Floats) -> Floats:
        """Outputs of some rows; an error has a ``reason``."""


class Controller(Protocol):
    """What holds the mean spend of a stream of rows."""

    target: float

    def walk(self, reader: Reader) -> Walk:
        """Send rows as far as the budget allows, and take note of what their routes cost."""


@dataclass(frozen=True)
class Answered:
    """What became of the rows of a request.

    Attributes
    ----------
    answer : ndarray or list of length n_rows
        Labels or numbers; None where a row has no answer.
    probability : ndarray of shape (n_rows,), optional
        Probability of the answer; None where numbers are predicted.
    outputs : ndarray of shape (n_rows, n_outputs)
        Probabilities of all classes, or the number.
    route : ndarray of shape (n_rows,)
        Place that answered; the number of stages is the full model, and -1 nobody.
    cost : ndarray of shape (n_rows,)
        What each row paid.
    degraded : ndarray of shape (n_rows,)
        Whether the full model should have answered and did not.
    reason : str, optional
        Why it did not.
    n_sent : int
        Rows that were sent on to the full model.
    """

    answer: Any
    probability: Any
    outputs: Floats
    route: Ints
    cost: Floats
    degraded: Bools
    reason: str | None = None
    n_sent: int = 0


class Model:
    """A system made ready to serve.

    Parameters
    ----------
    system : TableSystem
        What answers.
    version : str
        What tells it from others of the same name.
    on_failure : {"local", "error", "abstain"}
        What becomes of rows that the full model does not answer.
    worker : Executor
        The thread for larger batches and for the full model in the file.
    unseen_is_missing : bool
        Whether text that the fit has not seen counts as missing.
    most_rows : int
        Requests of more rows are refused.
    """

    def __init__(
        self,
        system: TableSystem,
        *,
        version: str,
        on_failure: str,
        worker: Executor,
        unseen_is_missing: bool = False,
        most_rows: int = 10_000,
    ) -> None:
        self.system = system
        self.version = version
        self.rows = RequestRows(system.schema, unseen_is_missing=unseen_is_missing, most_rows=most_rows)
        self.chain = chain_of(system.relabelled)
        if self.chain.price_list.by_row is not None:
            raise InvalidInputError(
                "prices of this system differ by row, and the gateway bills rows by where they stop. Fit it with one "
                "price for each purchase, or answer with `thrifty predict` or `thrifty buy`."
            )
        self.is_number = system.schema.is_number
        self.remote: Remote | None = None
        self.controller: Controller | None = None
        self.drift: Drift | None = None
        self.exploring = 0
        self._on_failure = on_failure
        self._worker = worker
        self._together = Together(is_worth_it=self.chain.behind is None)
        self._is_picky = system.refuses_missing
        if not self.chain.n_stages and on_failure == "local":
            self._on_failure = "error"  # nobody else can answer

    @property
    def output_names(self) -> tuple[str, ...]:
        """Outputs of the model."""
        with_probability = ("answer", "probability", "probabilities", "route", "cost", "degraded")
        return ("answer", "route", "cost", "degraded") if self.is_number else with_probability

    @property
    def full_names(self) -> tuple[str, ...]:
        """Columns that the full model reads."""
        return tuple(self.rows.names[column] for column in self.chain.price_list.read_by_full)

    @property
    def n_outputs(self) -> int:
        """Numbers with which the full model answers a row."""
        return int(self.chain.task.outputs(np.zeros((1, self.chain.task.n_scores))).shape[1])

    @property
    def cost_of_full(self) -> float:
        """What a row would pay that is sent straight to the full model."""
        return self.chain.price_list.cost_of_full

    def warm_up(self) -> None:
        """Answer rows that nobody sees, so that the first request waits for no compiler."""
        for n_rows in (1, 2):
            numbers = np.zeros((n_rows, len(self.rows.names)))
            walk = self.chain.walk(TableReader(numbers, numbers))
            _local_outputs(self.chain, walk)

    async def answer(self, cells: Cells) -> Answered:
        """Answer the rows of a request."""
        chain, walk = self.chain, await self._walk(cells)
        sent = np.flatnonzero(walk.route == chain.n_stages)
        if sent.size == 0:
            outputs, reason = _local_outputs(chain, walk), None
            cost = chain.cost_by_place[chain.places(walk)]
        else:
            outputs, cost, reason = await self._with_full(chain, cells, walk, sent)
        return self._answered(chain, walk, outputs, cost, reason, sent)

    async def _walk(self, cells: Cells) -> Walk:
        """Send rows as far as the operating point, or the budget, says."""
        send = self.chain.walk if self.controller is None else self.controller.walk
        if len(cells) > FEW_ROWS:
            walk: Walk = await self.in_thread(lambda: send(self._reader(cells)))
            return walk
        if self._needs_care(cells):
            return send(self._reader(cells))
        return await self._together.walk(send, cells.numbers)

    def _answered(
        self, chain: Chain, walk: Walk, outputs: Floats, cost: Floats, reason: str | None, sent: Ints
    ) -> Answered:
        _refuse_infinite(outputs)
        answer: Any = chain.task.answers(outputs)
        probability: Any = None if self.is_number else chain.task.confidence(outputs)
        route, degraded = walk.route, np.zeros(len(walk.route), dtype=bool)
        if reason is not None:
            degraded[sent] = True
            abstains = self._on_failure == "abstain"
            route = route.copy()
            route[sent] = -1 if abstains else chain.n_stages - 1
            if abstains:
                answer = [None if lost else one for one, lost in zip(answer.tolist(), degraded, strict=True)]
                if probability is not None:
                    probability[sent] = np.nan  # written as null
        if isinstance(answer, np.ndarray) and answer.dtype.kind not in "biuf":
            answer = answer.tolist()
        return Answered(answer, probability, outputs, route, cost, degraded, reason, len(sent))

    # -- the full model ----------------------------------------------------------------------------

    async def _with_full(
        self, chain: Chain, cells: Cells, walk: Walk, sent: Ints
    ) -> tuple[Floats, Floats, str | None]:
        """Outputs and costs where the full model is asked about some rows, and why it did not answer, if so."""
        full, reason = await self._ask_full(chain, cells, sent)
        if reason is None:
            cost = chain.cost_by_place[chain.places(walk)]
            if chain.buys_by_row and self.remote is None:
                cost = await self.in_thread(lambda: chain.spent(self._full_reader(cells), walk))
            return _local_outputs(chain, walk, full), cost, None
        if self._on_failure == "error":
            raise FullModelDownError(reason)
        # Whoever was sent on stands behind the last stage, at the place before the full model's.
        cost = chain.cost_by_place[np.minimum(chain.places(walk), len(chain.cost_by_place) - 2)]
        if reason not in NOT_TRIED:
            # What the full model reads was bought before the call failed; the call itself is not paid for.
            bought = chain.bought_by_place[[-1]]
            cost[sent] = chain.price_list.cost_of_rows(bought, np.zeros(1, dtype=bool))[0]
        return _local_outputs(chain, walk), cost, reason

    async def _ask_full(self, chain: Chain, cells: Cells, rows: Ints) -> tuple[Floats | None, str | None]:
        """Outputs of the full model for some rows, or why there are none."""
        try:
            if self.remote is None:
                return await self.in_thread(lambda: self._ask_file(chain, cells, rows)), None
            reader = self._reader(cells)
            said = await self.remote.ask(reader.block(rows, chain.price_list.read_by_full))
            return chain.task.read_outputs(said, len(rows), FULL_MODEL), None
        except InvalidAnswerError:
            return None, "bad_answer"
        except InvalidInputError:
            raise
        except Exception as error:
            # Whatever happens to the full model, rows have other answers.
            return None, str(getattr(error, "reason", "failed"))

    def _ask_file(self, chain: Chain, cells: Cells, rows: Ints) -> Floats:
        innermost = chain
        while innermost.behind is not None:
            innermost = innermost.behind
        return innermost.ask_full(self._full_reader(cells), rows)

    async def explore(self, cells: Cells, answered: Answered, share: float) -> tuple[int, int] | None:
        """Ask the full model about some rows that a stage answered: how many, and how often both agree."""
        chance = random.random if len(cells) == 1 else np.random.default_rng().random
        drawn = np.array([chance() < share for _ in range(len(cells))])
        easy = np.flatnonzero(drawn & (answered.route >= 0) & (answered.route < self.chain.n_stages))
        easy = easy[~answered.degraded[easy]]
        if not easy.size or self.exploring >= MOST_EXPLORING:
            return None
        self.exploring += 1
        try:
            full, reason = await self._ask_full(self.chain, cells, easy)
        except InvalidInputError:
            return None  # columns that the full model reads did not come with the request
        finally:
            self.exploring -= 1
        if reason is not None or full is None:
            return None
        given = self.chain.task.answers(answered.outputs[easy])
        return len(easy), int(_agree(given, self.chain.task.answers(full), self.is_number).sum())

    # -- readers -----------------------------------------------------------------------------------

    def _needs_care(self, cells: Cells) -> bool:
        """Whether a cell could be refused once somebody reads it."""
        return bool(cells.unreadable) or (self._is_picky and bool(np.isnan(cells.numbers).any()))

    def _reader(self, cells: Cells) -> TableReader:
        """Reads for the stages."""
        if self._needs_care(cells):
            return self.system.reader(cells)
        return TableReader(cells.numbers, cells.numbers)

    def _full_reader(self, cells: Cells) -> TableReader:
        """Reads for the full model in the file too, which may want a data frame, or text."""
        if getattr(self.chain, "levels", None) is not None:
            # The system says how its full model reads text; what a request lacks is still refused.
            cells = replace(self.system.read(self.rows.as_frame(cells)), unreadable=cells.unreadable)
            return self.system.reader(cells)
        if cells.unreadable or self._is_picky:
            return self.system.reader(cells)
        return TableReader(cells.numbers, cells.table(named=self.system.is_named))

    async def in_thread(self, call: Callable[[], Any]) -> Any:
        """What a call returns, while other requests are read."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, call)


def _local_outputs(chain: Chain, walk: Walk, full: Floats | None = None) -> Floats:
    """Outputs of a walk, with those of the full model for the rows that reached it; without them, the last stage's."""
    outputs = chain.task.outputs(walk.scores)
    sent = np.flatnonzero(walk.route >= chain.n_own_stages)
    if sent.size and walk.behind is not None and chain.behind is not None:
        behind = _local_outputs(chain.behind, walk.behind, full)
        outputs[sent] = chain.blended(walk.scores[sent], behind)
    elif sent.size and full is not None:
        outputs[sent] = chain.blended(walk.scores[sent], full)
    return outputs


def _refuse_infinite(outputs: Floats) -> None:
    if not np.isfinite(outputs.sum()):
        raise InvalidInputError(
            "a row has no answer: its numbers are so large that sums of them are no numbers. Correct them."
        )


def _agree(one: Labels, other: Labels, is_number: bool) -> Bools:
    """Whether answers are the same; numbers, to one part in a hundred."""
    same: Bools = np.isclose(one, other, rtol=0.01) if is_number else one == other
    return same
