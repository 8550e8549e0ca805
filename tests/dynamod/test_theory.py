"""What the paper says about its objective: joint convexity, the bound of the composite system, the best gate."""

from itertools import product

import numpy as np
from scipy.special import expit, logit

from thrifty.engine.evidence.thresholds import threshold_curve
from thrifty.learners.dynamod.objective import kl_divergence
from thrifty.learners.dynamod.qstep import q_step_kl

RNG = np.random.default_rng(0)


def objective(q, p1, p_gate, full_loss):
    """The objective of a row, of the share sent, the probability of its label and that of being sent."""
    return (1 - q) * -np.log(p1) + q * full_loss + kl_divergence(logit(q), logit(p_gate))


def bulges(here, there, full_loss):
    """How far the objective between two points lies above the chord: at most 0 where it is convex."""
    middle, ends = objective(*(here + there) / 2, full_loss), (here, there)
    return middle - np.mean([objective(*end, full_loss) for end in ends], axis=0)


def test_the_objective_is_jointly_convex_in_shares_and_either_probability_but_not_in_all_three():
    full_loss = RNG.exponential(size=2000)
    here, there = RNG.uniform(0.01, 0.99, size=(2, 3, 2000))
    for fixed in (1, 2):
        same = there.copy()
        same[fixed] = here[fixed]
        assert bulges(here, same, full_loss).max() <= 1e-9
    # The paper's lemma has all three; q log(q / (p1 p_gate)) is convex in q and the product, not in the factors.
    assert bulges(here, there, full_loss).max() > 0.01


def test_the_objective_bounds_the_loss_of_the_composite_system_and_meets_it_at_the_best_shares():
    p0, p1 = RNG.uniform(0.05, 0.95, size=(2, 300))
    g = RNG.normal(size=300)
    composite = -np.log(expit(g) * p0 + expit(-g) * p1)
    for q in RNG.uniform(0.01, 0.99, size=(5, 300)):
        assert np.all(composite <= objective(q, p1, expit(g), -np.log(p0)) + 1e-12)
    best = expit(q_step_kl(np.log(p0) - np.log(p1), g, limit=1.0).value)
    np.testing.assert_allclose(objective(best, p1, expit(g), -np.log(p0)), composite, atol=1e-9)


def test_no_gate_is_better_than_a_threshold_on_excess_loss_over_cost_reduction():
    excess, saved = RNG.normal(size=9), RNG.uniform(0.5, 2.0, size=9)
    curve = threshold_curve(excess / saved, 0.0, saved, -excess, np.zeros(9))
    gates = np.array(list(product([False, True], repeat=9)))
    cost, loss = gates @ saved / 9, (~gates) @ excess / 9
    for spend, score in zip(curve.cost, curve.score, strict=True):
        # Of all gates that spend no more: sending a row that gains nothing is never better.
        best = loss[cost <= spend + 1e-12].min()
        assert -score <= best + 1e-12 or spend > cost[np.argmin(loss)]
