"""The last steps of a fit: the threshold that spends the budget, what to expect of it, and what is kept."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from thrifty.evidence.frontier import Frontier
from thrifty.evidence.outcomes import PointOutcomes, RowOutcomes
from thrifty.full.model import FullModel
from thrifty.tables.candidates import Candidate, Candidates, Rows
from thrifty.tables.choice import Choice, chance_sent
from thrifty.tables.schema import Schema
from thrifty.tables.spending import Spending, regrow_copies, spend
from thrifty.tables.system import About, Promise, TableSystem

__all__ = ["promised", "reduced", "tuned"]


def tuned(
    choice: Choice,
    budget: float,
    outcomes: Sequence[RowOutcomes],
    candidates: Candidates,
    learn: Rows,
    held: Rows,
    seed: int,
) -> tuple[Choice, Spending | None]:
    """The choice, cut where new rows will spend the budget; as it is, if it is not there to spend everything."""
    if not choice.spends_all:
        return choice, None
    one = outcomes[choice.source]
    stop, go = float(np.mean(one.stop_cost)), float(np.mean(one.go_cost))
    share = min((budget - stop) / (go - stop), 1.0) if go > stop else 0.0
    copies = None
    if one.features and 0.0 < share < 1.0:
        estimator = candidates.systems[choice.source].estimator
        copies = regrow_copies(estimator, one.features, learn, held, candidates.full_on_learn, seed)
    spending = spend(one.g, share, copies, seed=seed)
    return replace(choice, threshold=spending.threshold, tie=spending.tie), spending


def promised(outcomes: RowOutcomes, choice: Choice, spending: Spending | None = None) -> Promise:
    """What to expect, from rows that nothing was fitted on; ``spending`` where the share is known better."""
    sent = chance_sent(outcomes.g, choice.threshold, choice.tie)
    # A tied row is right with the probability that the answer it gets is: nothing is drawn here.
    right = sent * outcomes.go_right + (1.0 - sent) * outcomes.stop_right
    point = PointOutcomes(cost=0.0, right=right, sent=sent > 0.0)
    band = Frontier.from_outcomes([point]).band(0.95)
    own_share = float(sent.mean())
    share = own_share if spending is None else spending.share
    own_error = float(np.sqrt(own_share * (1.0 - own_share) / outcomes.n_rows))
    stop, go = float(np.mean(outcomes.stop_cost)), float(np.mean(outcomes.go_cost))
    return Promise(
        accuracy=float(right.mean()),
        low=float(band.score_low[0]),
        high=float(band.score_high[0]),
        cost=stop + share * (go - stop),
        share=share,
        share_error=own_error if spending is None else spending.error,
        cheap_cost=stop,
        full_cost=go,
        full_accuracy=float(np.mean(outcomes.go_right)),
    )


def reduced(
    schema: Schema,
    candidates: Candidates,
    outcomes: Sequence[RowOutcomes],
    frontier: Frontier,
    choice: Choice,
    promise: Promise,
    about: About,
    full: FullModel,
) -> TableSystem:
    """What is kept: the systems with a point on the frontier, and the chosen one."""
    kept = sorted({*frontier.source.tolist(), choice.source})
    systems = [candidates.systems[place] for place in kept]
    certificate = choice.certificate
    if certificate is not None and certificate.point is not None:
        point = replace(certificate.point, source=kept.index(choice.source))
        certificate = replace(certificate, point=point)
    return TableSystem(
        schema=schema,
        systems=tuple(Candidate(one.estimator.with_full(full), one.settings) for one in systems),
        outcomes=tuple(outcomes[place] for place in kept),
        chosen=kept.index(choice.source),
        threshold=choice.threshold,
        tie=choice.tie,
        promise=promise,
        about=about,
        certificate=certificate,
    )
