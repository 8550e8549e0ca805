"""``Plan``: which columns to buy before which model, row by row.

The state of a row is the set of column groups that it holds and the models that it asked. At each set that rows may
hold, a predictor expects the quality of every model from the columns held (``ColumnSets``). A rule asks the model of
the largest expected ``quality - price * cost``, or first buys another group where the gain that a regression expects of
it is larger than its cost. Where answers tell something (``max_asks`` above 1), rows may buy columns or ask further
models after an answer, too. Other rules buy the same set for every row and then ask one model. Where costs are run
times, the time left may be divided between the models of the largest expected quality, one after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.engine.walk.next_model import (
    DIGITS,
    ColumnSets,
    Log,
    Step,
    confidence_columns,
    first_largest,
    others_of,
    sets_of,
    state_columns,
)


class PlanState(NamedTuple):
    """Rows that hold the same columns and asked the same models, and what they may purchase next."""

    held: tuple[int, ...]
    """Groups of columns, numbered from 0."""
    models: tuple[int, ...]
    """Models that were asked."""
    next_models: tuple[int, ...]
    """Further models to choose from."""
    next_groups: tuple[int, ...]
    """Further groups to choose from."""

    def asked(self, n_models: int) -> tuple[int, ...]:
        """Purchases made, as the log numbers them."""
        return (*self.models, *(n_models + group for group in self.held))

    def choices(self, n_models: int) -> Ints:
        """Purchases to choose from, as the log numbers them."""
        return np.array([*self.next_models, *(n_models + group for group in self.next_groups)], dtype=np.intp)


def plan_states(columns: ColumnSets, n_models: int, max_asks: int) -> list[PlanState]:
    """All states of a plan, those behind which there are most first."""
    asked = [()] if max_asks == 1 else sets_of(n_models, max_asks)
    states = []
    for held in columns.places:
        further = [
            group
            for group in range(len(columns.names))
            if group not in held and tuple(sorted((*held, group))) in columns.places
        ]
        for models in asked:
            others = () if len(models) == max_asks else tuple(others_of(models, n_models).tolist())
            states.append(PlanState(held, models, others, tuple(further)))
    return sorted(states, key=lambda state: -len(state.held) - len(state.models))


def plan_features(at: Log, models: Sequence[int]) -> Floats:
    """Features of a state: those of a programme, and before an answer how far the best model is ahead."""
    asked = tuple(models)
    parts = [state_columns(at, asked, reads_row=True, reads_evidence=False)]
    if asked and at.evidence is not None:
        parts += confidence_columns(at, asked)
    if not asked:
        first = np.sort(at.prior, axis=1)[:, ::-1]
        lead = first[:, 0] - first[:, 1]
        parts += [first[:, 0], lead, np.sqrt(np.maximum(lead, 0.0))]
    return np.column_stack(parts)


@dataclass(frozen=True, eq=False)
class Plan:
    """Rules that buy columns before models, and between them.

    Attributes
    ----------
    prices : ndarray of shape (n_rules,)
        Price of a unit of cost of each rule.
    fixed : ndarray of shape (n_rules,)
        Place of the set of columns that every row buys before it asks one model; -1 where each row decides. Rules that
        decide come first.
    max_asks : int
        Models that may be asked about one row.
    stop : tuple of ndarray of shape (n_features, n_asked)
        For each state in which models were asked: quality of each answer at hand.
    gain : tuple of ndarray of shape (n_features, n_choices, n_deciding_rules)
        For each state: gain of each choice, before its cost. Of a group of columns over the best model without it,
        or over stopping once there is an answer; of a first model, what asking further ones adds.
    columns : ColumnSets
        Sets of columns that rows may hold.
    shares : ndarray of shape (n_rules, n_runs)
        Where costs are run times: shares of the time left that the first, second and third model get.
    """

    prices: Floats
    fixed: Ints
    max_asks: int
    stop: tuple[Floats, ...]
    gain: tuple[Floats, ...]
    columns: ColumnSets
    shares: Floats

    reads_row: ClassVar[bool] = True

    @cached_property
    def _states(self) -> dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, PlanState]]:
        states = plan_states(self.columns, self.columns.means.shape[1], self.max_asks)
        return {(state.held, state.models): (number, state) for number, state in enumerate(states)}

    @property
    def n_rules(self) -> int:
        """Number of rules."""
        return len(self.prices)

    def suits(self, log: Log) -> bool:
        """True if there are coefficients for each state and its choices."""
        n_models, n_deciding = log.n_models, int((self.fixed < 0).sum())
        if self.columns.problem(n_models) is not None or log.n_purchases != n_models + len(
            self.columns.names
        ):
            return False
        if not (
            self.fixed.shape == self.prices.shape == (self.n_rules,)
            and (self.fixed[:n_deciding] == -1).all()
            and (self.fixed < len(self.columns.sets)).all()
            and 1 <= self.max_asks <= n_models
            and self.shares.ndim == 2
            and len(self.shares) == self.n_rules
            and bool((self.shares[:, :1] > 0.0).all() and (self.shares >= 0.0).all())
        ):
            return False
        row, states = log.rows(np.arange(1)), [state for _, state in self._states.values()]
        if not len(self.stop) == len(self.gain) == len(states):
            return False
        for state, stop, gain in zip(states, self.stop, self.gain, strict=True):
            n_features = plan_features(row, state.models).shape[1]
            n_choices = len(state.choices(n_models))
            if stop.shape != (n_features, len(state.models)) or gain.shape != (
                n_features,
                n_choices,
                n_deciding,
            ):
                return False
        return True

    def decide(self, place: int, asked: tuple[int, ...], log: Log) -> Step:
        """Decide by the gain over the best answer without a further purchase."""
        n_models, n_rows, price, fixed = (
            log.n_models,
            len(log),
            float(self.prices[place]),
            int(self.fixed[place]),
        )
        models = tuple(one for one in asked if one < n_models)
        none, unknown = np.full(n_rows, -1), np.full(n_rows, np.nan)
        if fixed >= 0:
            wanted = np.flatnonzero(self.columns.sets[fixed])
            early_first = sorted(wanted.tolist(), key=lambda group: group < self.columns.n_delivering)
            left = [n_models + group for group in early_first if n_models + group not in asked]
            if left and not models:
                return Step(np.full(n_rows, left[0]), none, unknown)
        at = log.knowing(asked)
        if models and log.cutoff is not None:
            return self._next_run(place, models, at)
        if models and (self.max_asks == 1 or fixed >= 0):
            return Step(none, np.full(n_rows, models[0]), at.prior[:, models[0]])
        cost = at.expected if log.after is None else at.expected * log.shares_after(asked)
        direct, share = at.prior - price * cost[:, :n_models], self._share(place, 0)
        if fixed >= 0:
            return Step(first_largest(direct), none, unknown, share=share)
        held = tuple(one - n_models for one in asked if one >= n_models)
        number, state = self._states[held, models]
        choices, features = state.choices(n_models), plan_features(at, models)
        gain = features @ self.gain[number][:, :, place]
        if not models:
            n_next = len(state.next_models)
            unit = price + log.second
            further = direct.max(axis=1)[:, None] + gain[:, n_next:] - unit * cost[:, choices[n_next:]]
            value = np.column_stack([direct + gain[:, :n_next], further])
            return Step(choices[first_largest(value)], none, unknown, share=share)
        values = features @ self.stop[number]
        chosen = first_largest(values)
        answer, value = np.array(models)[chosen], values[np.arange(n_rows), chosen]
        if not len(choices):
            return Step(none, answer, value)
        gain = gain - price * cost[:, choices]
        best = first_largest(gain)
        go = np.round(gain[np.arange(n_rows), best], DIGITS) > 0.0
        return Step(np.where(go, choices[best], -1), answer, value)

    def _share(self, place: int, n_runs: int) -> float:
        """Share of the time left that the next model gets after some runs; 0 where there is none."""
        left = self.shares[place, n_runs:]
        return float(left[0] / left.sum()) if len(left) and left[0] > 0.0 else 0.0

    def _next_run(self, place: int, models: tuple[int, ...], at: Log) -> Step:
        """The model of the next largest value, after others that have not solved the rows."""
        cost = at.expected[:, : at.n_models]
        value, rows = at.prior - float(self.prices[place]) * cost, np.arange(len(at))
        last = np.array(models)[first_largest(value[:, models])]
        share = self._share(place, len(models)) if len(models) < at.n_models else 0.0
        value[:, models] = -np.inf
        ask = first_largest(value) if share else np.full(len(at), -1)
        return Step(ask, last, at.prior[rows, last], share=share)

    def takes_next(self, place: int, asked: tuple[int, ...]) -> bool:
        """True if one model is asked and no columns are left to buy."""
        fixed, n_models = int(self.fixed[place]), self.columns.means.shape[1]
        n_held = sum(one >= n_models for one in asked)
        if fixed >= 0:
            return n_held == int(self.columns.sets[fixed].sum())
        return self.max_asks == 1
