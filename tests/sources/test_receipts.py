"""Receipts: what systems bought, as tables, from which a later fit learns."""

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

from thrifty import BudgetedClassifier, ModelRouter, Prices, Receipts, StageOptions, fit_table
from thrifty.engine.table.files import table_bytes
from thrifty.errors import DoubtfulRowsWarning, InvalidInputError, InvalidParameterError
from thrifty.learners.estimators.incomplete import Bought
from thrifty.learners.table_fit import _of_receipts

PRICES = {"a": 0.0, "b": 1.0, "cost": 1.0, "d": 1.0}


@pytest.fixture(scope="module", autouse=True)
def small_fits_of_module(while_fits_are_small):
    """What these tests show does not depend on how much is searched for."""
    with while_fits_are_small():
        yield


def table(seed, n_rows):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n_rows)
    values = (rng.normal(size=(n_rows, 4)) + y[:, None] * [0.3, 0.8, 0.8, 0.8]).round(3)
    return pd.DataFrame(values, columns=list(PRICES)), y


def classifier():
    options = StageOptions(sizes=[(20, 3)], structure="line")
    full = DecisionTreeClassifier(max_depth=4, random_state=0)
    return BudgetedClassifier(full, feature_costs=PRICES, stages=options, cv=2, random_state=0)


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(*table(0, 800))


@pytest.fixture(scope="module")
def served(fitted):
    """Receipts of two systems and months, and the outcomes of their rows."""
    receipts, outcomes = [], []
    for month, budget in ((1, 1.5), (2, 2.0)):
        new, y = table(month, 1_200)
        keys = [f"{month}-{row}" for row in range(len(new))]
        system = fitted.at(budget=budget, explore=0.2)
        receipts.append(system.buy(new.to_dict("series"), n_rows=len(new), row_key=keys))
        outcomes.append(y)
    return receipts, np.concatenate(outcomes)


def test_a_receipt_has_what_was_delivered_in_the_order_of_purchase(fitted, served):
    receipt, (new, _) = served[0][0], table(1, 1_200)
    assert np.array_equal(receipt.order > 0, receipt.bought)
    values = receipt.X.to_numpy(dtype=float)
    np.testing.assert_array_equal(np.isnan(values), ~receipt.bought)
    np.testing.assert_array_equal(values[receipt.bought], new.to_numpy()[receipt.bought])
    for row, told in zip(
        range(20),
        fitted.at(budget=1.5, explore=0.2).explain(new[:20], [f"1-{row}" for row in range(20)]),
        strict=True,
    ):
        in_order = [
            name for name, _ in sorted(zip(PRICES, receipt.order[row], strict=True), key=lambda each: each[1])
        ]
        bought = [name for name in in_order if receipt.bought[row, list(PRICES).index(name)]]
        assert bought[: len(told.bought)] == list(told.bought)


def test_rows_that_bought_some_columns_stand_for_all_if_weighted_by_their_propensities(served):
    receipts = Receipts.of(*served[0])
    order = receipts.bought.to_numpy().astype(float)
    bought = Bought(order > 0, receipts.propensity.to_numpy(), order)
    for columns in ([1], [2], [3], [1, 2], [1, 3], [1, 2, 3]):
        has = bought.cells[:, columns].all(axis=1)
        weight = np.where(has, 1.0 / bought.chance_of(np.array(columns), np.arange(4)), 0.0)
        assert weight.mean() == pytest.approx(1.0, abs=4 * weight.std() / np.sqrt(len(weight)) + 1e-9)
    assert receipts.propensity.to_numpy().min() < 0.3


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_receipts_of_several_months_are_read_from_files_as_they_were(served, tmp_path, kind):
    ours, paths = Receipts.of(*served[0]), []
    for number, receipt in enumerate(served[0]):
        paths.append(tmp_path / f"{number}.{kind}")
        paths[-1].write_bytes(table_bytes(Receipts.of(receipt).to_pandas("id"), paths[-1]))
    theirs = Receipts.read(*paths, row_key="id")
    assert theirs.key.tolist() == ours.key.tolist()
    for part in ("X", "bought"):
        pd.testing.assert_frame_equal(getattr(theirs, part), getattr(ours, part))
    np.testing.assert_allclose(theirs.propensity, ours.propensity, rtol=1e-8)
    np.testing.assert_array_equal(theirs.answer, ours.answer)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
def test_a_fit_learns_from_receipts_alone(served):
    receipts, outcomes = Receipts.of(*served[0]), served[1]
    again = classifier().fit(receipts.X, outcomes, bought=receipts.bought, propensity=receipts.propensity)
    complete = classifier().fit(pd.concat([table(1, 1_200)[0], table(2, 1_200)[0]]), outcomes)
    new, y = table(9, 8_000)
    for budget in (1.0, 2.0):
        ours, theirs = again.at(budget=budget), complete.at(budget=budget)
        assert ours.score(new, y) > theirs.score(new, y) - 0.03
        assert abs(ours.expected_score_ - ours.score(new, y)) < 0.04


def some_outcomes(served):
    """Receipts, their true outcomes, and a table with those of some rows, which depend on the answer."""
    receipts, truth = Receipts.of(*served[0]), served[1]
    chance = np.where(receipts.answer == 1, 0.9, 0.3)
    has_label = np.random.default_rng(4).random(len(truth)) < chance
    table = pd.DataFrame({"id": receipts.key, "ill": truth})
    return receipts, truth, table[has_label], chance


def labelled(receipts, outcomes, missing):
    return _of_receipts(receipts, outcomes, "", "id", missing)


def test_rows_without_a_label_are_refused_or_left_out_as_was_asked(served):
    receipts, truth, outcomes, _ = some_outcomes(served)
    with pytest.raises(InvalidInputError, match='rows have no label, .* missing_labels="drop".*"weight"'):
        labelled(receipts, outcomes, "refuse")
    with pytest.warns(DoubtfulRowsWarning, match="were left out"):
        kept, own, target, weight = labelled(receipts, outcomes, "drop")
    assert target == "ill"
    assert weight is None
    assert len(kept) == len(outcomes)
    assert dict(zip(own["id"], own["ill"], strict=True)) == dict(
        zip(outcomes["id"], outcomes["ill"], strict=True)
    )
    assert own["ill"].mean() > truth.mean() + 0.1  # those with a label are ill more often
    with pytest.raises(InvalidParameterError, match="missing_labels must be one of"):
        labelled(receipts, outcomes, "guess")


@pytest.mark.parametrize("is_given", [True, False])
def test_rows_with_a_label_stand_for_all_by_the_probability_of_having_one(served, is_given):
    receipts, truth, outcomes, chance = some_outcomes(served)
    if is_given:
        outcomes = outcomes.assign(propensity=chance[outcomes.index])
    with pytest.warns(DoubtfulRowsWarning, match="given" if is_given else "estimated"):
        _, own, _, weight = labelled(receipts, outcomes, "weight")
    assert np.average(own["ill"], weights=weight) == pytest.approx(truth.mean(), abs=0.03)


def test_labels_of_treated_rows_alone_stand_for_no_others(served):
    receipts, _, outcomes, _ = some_outcomes(served)
    treated = outcomes[receipts.answer[outcomes.index] == 1]
    with pytest.raises(InvalidInputError, match="hardly ever gets one, .* random share"):
        labelled(receipts, treated, "weight")
    wrong = outcomes.assign(propensity=0.0)
    with pytest.raises(InvalidParameterError, match="probability with which a row gets a label"):
        labelled(receipts, wrong, "weight")


def test_what_is_no_table_of_receipts_is_refused(served, tmp_path):
    plain, router = tmp_path / "plain.csv", ModelRouter({"cheap": 1.0, "dear": 2.0})
    plain.write_text("id,a\n1,2\n")
    with pytest.raises(InvalidInputError, match="must hold receipts"):
        Receipts.read(plain, row_key="id")
    wrong = Receipts.of(served[0][0]).to_pandas("id")
    wrong.loc[3, "bought"] = "a, z"
    with pytest.raises(InvalidInputError, match="line 4"):
        Receipts.from_pandas(wrong, "id")
    rng = np.random.default_rng(0)
    router.fit(rng.normal(size=(60, 2)), rng.random((60, 2)) < [0.5, 0.9])
    asked = router.buy({name: lambda rows: rows for name in router.pool_}, rng.normal(size=(3, 2)))
    with pytest.raises(InvalidInputError, match="buys columns"):
        Receipts.of(asked)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
def test_a_part_of_receipts_proves_what_a_fit_of_the_others_loses(served):
    receipts = Receipts.of(*served[0])
    outcomes = pd.DataFrame({"id": receipts.key, "ill": served[1]})
    given = {"labels": outcomes, "row_key": "id", "prices": Prices(PRICES)}
    options = {"full": DecisionTreeClassifier(max_depth=4), "stages": StageOptions(sizes=[(20, 3)])}
    fitted = fit_table(receipts, max_loss=0.3, confidence=0.9, **given, **options)
    issued = fitted.certificate_
    assert issued.n_complete < issued.n_rows < len(receipts) / 3
    assert (issued.max_loss, issued.approximate) == (0.3, False)
    with pytest.warns(DoubtfulRowsWarning, match="the others stand for them"):
        weighted = fit_table(
            receipts, **{**given, "labels": some_outcomes(served)[2]}, missing_labels="weight", **options
        )
    assert weighted.score(*table(9, 2_000)) > 0.7
    with pytest.raises(InvalidParameterError, match="can prove max_loss, but no budget"):
        fit_table(receipts, budget=1.5, confidence=0.9, **given, **options)
