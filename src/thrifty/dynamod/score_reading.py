"""A boosted gate that reads the scores of its cheap model, which cost nothing once they are known."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit

from thrifty.arrays import Floats
from thrifty.chain.stage import CHEAP, BoostedStage
from thrifty.dynamod.alternating import Q_STEPS, Alternation
from thrifty.dynamod.boosted import BoostedPair, boost_gate, boost_labels
from thrifty.full.crossfit import TrainingRows, held_out_rows
from thrifty.tasks.losses import excess_loss
from thrifty.trees import Binner
from thrifty.trees.boosting import Boosting

__all__ = ["ScoreReadingGate"]


@dataclass(frozen=True)
class ScoreReadingGate:
    """Grows a gate that reads f1's scores besides the bought features.

    f1's scores on its own training rows are too good: a gate that learned from them would trust f1 too much on
    new rows. So f1 is regrown on the bought features once per fold, each row is scored by an f1 that has not seen it,
    and both the shares and the gate are learned from those scores.
    """

    boosting: Boosting
    distance: Literal["kl", "squared"]
    max_bins: int
    limit: float
    extra_cost: Floats | None
    categorical: tuple[int, ...] = ()

    def regrow(
        self, stage: BoostedStage, last: Alternation[BoostedPair], rows: TrainingRows, full_loss: Floats
    ) -> BoostedStage:
        """Return the stage with its gate replaced."""
        block = rows.X[:, stage.columns]
        counts = rows.weight
        held_out = self._held_out_scores(block, self._places(stage), last.log_odds, rows)
        excess = excess_loss(rows.task.loss(rows.y).values(held_out), full_loss)
        g, _ = last.pair.scores(None)
        shares = Q_STEPS[self.distance](
            excess, g, self.limit, extra_cost=self.extra_cost, sample_weight=rows.weight
        ).value
        both = np.column_stack([block, held_out])
        table = Binner(self.max_bins).fit_transform(both, counts, self._places(stage))
        gate, base = boost_gate(self.boosting, self.boosting.grower(table), self.distance, shares, counts)
        return BoostedStage(
            stage.columns, gate, stage.cheap, np.r_[base, stage.base[CHEAP]], gate_reads_score=True
        )

    def _places(self, stage: BoostedStage) -> list[int]:
        """Columns of the block of a stage that hold levels."""
        return [int(place) for place in np.flatnonzero(np.isin(stage.columns, self.categorical))]

    def _held_out_scores(
        self, block: Floats, categorical: list[int], log_odds: Floats, rows: TrainingRows
    ) -> Floats:
        counts, stays = rows.weight, expit(-log_odds)
        table = Binner(self.max_bins).fit_transform(block, counts, categorical)
        scores = np.empty((len(block), rows.task.n_scores))
        for fold in held_out_rows(rows):
            out = np.zeros(len(block), dtype=bool)
            out[fold] = True
            grower = self.boosting.grower(table.take(~out))
            trees, base = boost_labels(
                self.boosting, grower, rows.task.loss(rows.y[~out]), counts[~out], stays[~out]
            )
            scores[out] = base + trees.predict_binned(table.take(out))
        return scores
