import numpy as np
import pytest

from reproduction.experiments.selection import (
    Candidate,
    Claim,
    FullAnswers,
    Verdict,
    choose,
    gap,
    judge_claims,
)


def everything(n=200, seed=0):
    rng = np.random.default_rng(seed)
    y_val, y_test = rng.integers(0, 2, (2, n))
    full = FullAnswers(y_val, rng.random(n) < 0.95, y_test, rng.random(n) < 0.95, 10.0)

    def scores(y, skill):
        return skill * (2.0 * y - 1) + rng.normal(size=n)

    def candidate(name, cost, skill):
        f1_val, f1_test = scores(y_val, skill), scores(y_test, skill)
        return Candidate({"name": name}, cost, -np.abs(f1_val), f1_val, -np.abs(f1_test), f1_test)

    return full, [candidate("weak", 1.0, 0.5), candidate("strong", 3.0, 2.0)]


def test_the_choice_is_made_on_validation_rows_alone():
    full, candidates = everything()
    blind = FullAnswers(full.y_val, full.right_val, 1 - full.y_test, ~full.right_test, 10.0)
    seen = choose(candidates, full, [2.0, 5.0, 10.0])
    unseen = choose(candidates, blind, [2.0, 5.0, 10.0])
    assert [(c.settings, c.threshold) for c in seen] == [(c.settings, c.threshold) for c in unseen]
    assert [c.accuracy for c in seen] != [c.accuracy for c in unseen]


def test_a_budget_is_met_on_validation_rows_and_one_nobody_affords_is_left_out():
    full, candidates = everything()
    chosen = choose(candidates, full, [0.5, 1.0, 4.0])
    assert [c.budget for c in chosen] == [1.0, 4.0]
    assert all(c.val_cost <= c.budget + 1e-9 for c in chosen)


def test_a_fixed_threshold_is_the_only_point_of_its_candidate():
    full, candidates = everything()
    fixed = Candidate(**{**candidates[0].__dict__, "threshold": -0.5})
    (point,) = choose([fixed], full, [10.0])
    assert point.threshold == -0.5
    assert point.share == pytest.approx(np.mean(fixed.g_test > -0.5))
    assert fixed.at_any_threshold().threshold is None


def test_the_gap_to_oneself_is_zero_and_to_a_worse_one_positive():
    full, (weak, strong) = everything()
    budgets = [4.0, 6.0]
    ours, theirs = choose([strong], full, budgets), choose([weak], full, budgets)
    assert gap(ours, ours) == (0.0, 0.0)
    mean, error = gap(ours, theirs)
    assert mean == pytest.approx(
        np.mean([a.accuracy - b.accuracy for a, b in zip(ours, theirs, strict=True)])
    )
    assert mean > error > 0


@pytest.mark.parametrize(
    ("kind", "mean", "word"),
    [
        ("better", 0.05, "holds"),
        ("better", -0.05, "does not hold"),
        ("better", 0.01, "undecided"),
        ("asked", 0.05, "ahead"),
        ("asked", -0.05, "behind"),
        ("marginal", 0.05, "does not hold"),
    ],
)
def test_a_difference_counts_beyond_two_standard_errors(kind, mean, word):
    verdict = Verdict(Claim("claim", "ours", "theirs", kind), mean, 0.01)
    assert verdict.word == word
    assert f"ours minus theirs, mean over budgets: {mean:+.4f} (standard error 0.0100)" in str(verdict)


def test_a_claim_is_judged_only_if_both_methods_can_spend_a_budget():
    full, (weak, strong) = everything()
    chosen = {"weak": choose([weak], full, [1.0]), "strong": choose([strong], full, [4.0])}
    assert judge_claims([Claim("a", "strong", "weak"), Claim("b", "strong", "absent")], chosen) == []
    chosen["weak"] = choose([weak], full, [1.0, 4.0])
    (verdict,) = judge_claims([Claim("a", "strong", "weak")], chosen)
    assert verdict.mean == pytest.approx(chosen["strong"][0].accuracy - chosen["weak"][1].accuracy)
