"""Files that version 0.3 wrote: the numbers here are those that it gave when it wrote them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from thrifty import load
from thrifty.bundle.objects import from_bytes, to_bytes
from thrifty.engine.evidence.budgets import CostCertificate
from thrifty.engine.evidence.certificate import Certificate
from thrifty.errors import InvalidInputError

FILES = Path(__file__).parent / "version_0_3"


def test_a_cascade_of_version_0_3_has_the_points_that_it_was_saved_with():
    clf = load(FILES / "cascade.thrifty")
    assert clf.frontier_.cost.tolist() == [1.0, 1.5777777777777777]
    assert (clf.expected_cost_, clf.expected_score_) == (1.5777777777777777, 0.8222222222222222)
    assert clf.at(budget=1.2).expected_cost_ == pytest.approx(1.2)


def test_rows_of_version_0_3_part_into_branches_as_they_did():
    chain = load(FILES / "branches.thrifty")
    rows = np.arange(8)
    X = np.column_stack([rows, rows + 1, 5 * rows + 2, 7 * rows + 3, 11 * rows, rows // 2]) % 6.0
    X[3, 0] = np.nan
    reader = chain.reader(X)
    outputs = chain.walker.visit_all(reader)
    assert outputs.node[:, 1].tolist() == [0, 1, 2, 0, 4, 5, 0, 1]
    assert [float(score).hex() for score in outputs.scores[1:3, 1, 0]] == [
        "-0x1.25b2db070c0cdp+3",
        "0x1.3716d2250a21ap+3",
    ]
    assert [float(score).hex() for score in outputs.scores[3:5, -1, 0]] == [
        "0x1.54d85794b1784p+3",
        "-0x1.163b3d922259cp+3",
    ]
    assert chain.walk(reader).route.tolist() == [1] * 8
    assert chain.cost(X).tolist() == [2.0] * 8
    again = from_bytes(to_bytes(chain, full="absent", evidence=False))
    assert np.array_equal(again.walker.visit_all(reader).scores, outputs.scores)
    turn = chain.stages[0].turn
    for name, value, rule in (
        ("ends", turn.ends[::-1], "ascending"),
        ("place", 7, "place of a turn"),
        ("to", turn.to[:-1], "one for each bin"),
        ("to", turn.to + 90, "must lead to nodes of the next stage"),
    ):
        wrong = replace(chain.stages[0], turn=replace(turn, **{name: value}))
        with pytest.raises(InvalidInputError, match=rule):
            from_bytes(
                to_bytes(replace(chain, stages=(wrong, *chain.stages[1:])), full="absent", evidence=False)
            )


def test_a_ranking_of_version_0_3_counts_its_queries_and_is_saved_again_as_it_was():
    ranker = load(FILES / "ranker.thrifty")
    for one in (ranker, from_bytes(to_bytes(ranker))):
        assert (one.evidence_.n_rows, one.evidence_.n_units) == (90, 18)
        np.testing.assert_allclose(one.frontier_.cost, [1.0, 1.8444444444444446, 2.888888888888889])
        np.testing.assert_allclose(
            one.frontier_.score, [0.8957632342231595, 0.9427033420356489, 0.9490086473881697]
        )
        np.testing.assert_allclose(
            (one.expected_cost_, one.expected_score_), (2.888888888888889, 0.9490086473881697)
        )


def test_a_router_of_version_0_3_has_its_points_and_what_was_proved():
    proved, billed = load(FILES / "router_proved.thrifty"), load(FILES / "router_bill.thrifty")
    for router in (proved, billed, from_bytes(to_bytes(proved))):
        assert router.frontier_.cost.tolist() == [1.0, 2.0, 6.0]
        np.testing.assert_allclose(router.frontier_.score, [0.475, 0.6833333333333333, 0.8333333333333334])
        at = router.at(budget=2.5)
        assert (at.expected_cost_, at.expected_score_) == pytest.approx((2.5, 0.7020833333333333))
    quality, bill = proved.certificate_, billed.certificate_
    assert isinstance(quality, Certificate)
    assert isinstance(bill, CostCertificate)
    assert (quality.against, quality.max_loss, quality.n_rows) == ("large", 0.3, 400)
    assert "mean quality at most 0.3 below that of large" in str(quality)
    assert "(bound 0.226)" in str(quality)
    assert str(bill) == "the next 400 rows cost at most 3 a row, with confidence 0.95, from 400 rows"
    with pytest.warns(FutureWarning, match="expected_quality_ of ModelRouter is expected_score_ now"):
        assert proved.expected_quality_ == proved.expected_score_
