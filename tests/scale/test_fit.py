"""Fits of tables larger than memory: the sample, the means and the certificate do not depend on the partitions."""

from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

from thrifty import BudgetedClassifier, BudgetedRanker, Prices, StageOptions, load
from thrifty.cli import main
from thrifty.errors import DataUnavailableError, InvalidInputError
from thrifty.scale import folder as folder_module
from thrifty.scale.fit import evaluate, fit, sample_rows
from thrifty.scale.folder import each_of_files, find_files

FEATURES = ["a", "b", "count", "colour"]


def rows_of(n, seed=0):
    """Numbers, whole numbers with gaps, text; a fifth of the rows repeat others, a few with another label."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.normal(size=(n, 2)).round(3), columns=["a", "b"])
    table["count"] = rng.integers(0, 5, n).astype(float)
    table.loc[rng.random(n) < 0.05, "count"] = np.nan
    table["colour"] = rng.choice(["red", "green", "blue"], n)
    signal = table["a"] + (table["colour"] == "red") * table["b"] + 0.3 * rng.normal(size=n)
    table["y"] = np.where(signal > 0, "yes", "no")
    table = pd.concat([table, table.sample(n // 5, random_state=0)], ignore_index=True)
    table.loc[n : n + 20, "y"] = "yes"
    return table


def partitions(table, n_parts, seed=0):
    """``each`` of the rows of a table in some partitions, in another order."""
    places = np.array_split(np.random.default_rng(seed).permutation(len(table)), n_parts)
    return lambda function: [function(table.iloc[rows], number) for number, rows in enumerate(places)]


def small(**more):
    return BudgetedClassifier(
        feature_costs=dict.fromkeys(FEATURES, 1.0),
        stages=StageOptions(max_stages=3, sizes=[(8, 2)]),
        cv=2,
        random_state=0,
        **more,
    )


@pytest.fixture(scope="module")
def table():
    return rows_of(3_000)


@pytest.fixture(scope="module")
def fitted(table):
    rows, _ = sample_rows(partitions(table, 3), FEATURES, "y", 500)
    return small().fit(rows[FEATURES], rows["y"])


def test_a_sample_is_the_same_for_all_partitions_and_takes_equal_rows_together(table):
    (one, n_rows), (other, _) = (
        sample_rows(partitions(table, n, seed=n), FEATURES, "y", 500) for n in (1, 13)
    )
    pd.testing.assert_frame_equal(one, other)
    assert n_rows == len(table)
    assert 480 < len(one) <= 500
    taken = table.merge(one[FEATURES].drop_duplicates(), on=FEATURES)
    assert len(taken) == len(one)


def test_points_are_measured_in_every_resource_on_the_rows_outside_the_sample(table):
    rows, _ = sample_rows(partitions(table, 3), FEATURES, "y", 500)
    both = {name: {"dollars": 1.0 + place, "minutes": 4.0 - place} for place, name in enumerate(FEATURES)}
    fitted = small().set_params(
        feature_costs=None, prices=Prices(both), budget={"dollars": 4.0, "minutes": 6.0}
    )
    fitted = fitted.fit(rows[FEATURES], rows["y"])
    measured = evaluate(fitted, partitions(table, 5), "y")
    in_sample = table[["a", "b", "count", "colour", "y"]].merge(
        rows.drop_duplicates(), how="left", indicator=True
    )
    new = table[in_sample["_merge"].to_numpy() == "left_only"]
    policy = measured._learned.policy
    for point in (0, len(policy) - 1):
        paid = measured._learned.at(policy.at(point)).cost(new[FEATURES]).mean()
        np.testing.assert_allclose(policy.costs[point], [paid["dollars"], paid["minutes"]], rtol=1e-9)
    expected = measured.expected_cost_
    assert expected["dollars"] <= 4.0 + 1e-9
    assert expected["minutes"] <= 6.0 + 1e-9


def test_files_of_every_kind_give_the_sample_of_memory_and_a_late_cell_that_is_no_number_is_named(
    table, tmp_path, monkeypatch
):
    wanted, _ = sample_rows(partitions(table, 2), FEATURES, "y", 500)
    for kind, write in (
        ("parquet", pd.DataFrame.to_parquet),
        ("arrow", lambda part, path: part.reset_index(drop=True).to_feather(path)),
        ("csv", lambda part, path: part.to_csv(path, index=False)),
    ):
        folder = tmp_path / kind
        folder.mkdir()
        for number, rows in enumerate(np.array_split(np.arange(len(table)), 3)):
            write(table.iloc[rows], folder / f"{number}.{kind}")
        each, names = each_of_files(find_files(folder))
        assert names == list(table.columns)
        found, n_rows = sample_rows(each, FEATURES, "y", 500)
        assert n_rows == len(table)
        pd.testing.assert_frame_equal(found, wanted, check_dtype=False)
    monkeypatch.setattr(folder_module, "GUESS_BYTES", 1_000)
    (tmp_path / "csv" / "late.csv").write_text(
        "a,b,count,colour,y\n" + "1,2,3,red,yes\n" * 100 + "1,2,few,red,yes\n"
    )
    each, _ = each_of_files(find_files(tmp_path / "csv"))
    with pytest.raises(DataUnavailableError, match=r"late\.csv: .*'few'"):
        sample_rows(each, FEATURES, "y", 500)


@pytest.mark.parametrize("max_loss", [0.1, {"yes": 0.2, "no": 0.15}])
def test_a_certificate_of_partitions_is_that_of_memory_to_the_last_digit(table, fitted, max_loss):
    memory = fitted.certified(table[FEATURES], table["y"], max_loss=max_loss, duplicates="drop")
    wanted = asdict(memory.certificate_)
    assert wanted["n_repeated"] > 0
    assert wanted["n_seen"] >= 480
    for n_parts in (1, 12):
        found = evaluate(fitted, partitions(table, n_parts, seed=n_parts), "y", max_loss=max_loss)
        assert asdict(found.certificate_) == wanted
        assert (found.chain_.policy.thresholds == memory.chain_.policy.thresholds).all()


def test_costs_and_scores_of_the_points_are_those_of_all_rows_outside_the_sample(table, fitted):
    found = evaluate(fitted, partitions(table, 7), "y")
    known = fitted.frontier_.evidence[0].known_rows[0]
    new = table[~table.set_index(FEATURES).index.isin(_sample_index(table))]
    assert len(new) == len(table) - len(known)
    for place in (0, len(found._learned.policy) - 1):
        budget = float(found._learned.policy.cost[place])
        at = found.at(budget=budget)
        assert at.cost(new[FEATURES]).mean() == pytest.approx(budget, rel=1e-9)
        assert at.expected_score_ == pytest.approx(at.score(new[FEATURES], new["y"]), rel=1e-9)
        best = found.frontier_.cheapest(score=at.expected_score_ - 1e-9)
        assert best.score == pytest.approx(at.expected_score_, rel=1e-9)


def _sample_index(table):
    rows, _ = sample_rows(partitions(table, 3), FEATURES, "y", 500)
    return rows.set_index(FEATURES).index


def test_rankings_and_tables_that_fit_into_the_sample_are_refused_or_fitted_as_in_memory(table, fitted):
    each = partitions(table, 2)
    with pytest.raises(InvalidInputError, match="a query must be scored as a whole"):
        fit(BudgetedRanker(), each, FEATURES, "y")
    with pytest.raises(InvalidInputError, match="Draw a smaller sample"):
        evaluate(fitted, partitions(table.merge(_sample_index(table).to_frame(index=False)), 2), "y")


@pytest.mark.slow
def test_the_commands_fit_on_a_sample_of_a_folder_and_measure_all_its_rows(
    table, tmp_path, small_fits, capsys
):
    (tmp_path / "rows").mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(table)), 4)):
        table.iloc[rows].to_csv(tmp_path / "rows" / f"{number}.csv", index=False)
    system = str(tmp_path / "s.thrifty")
    pattern = str(tmp_path / "rows" / "*.csv")
    command = ["fit", pattern, "--target", "y", "--sample", "600", "--full", "forest", "-o", system]
    assert main([*command, "--max-loss", "0.15", "--jobs", "1"]) == 0
    assert "rows given equal rows of the fit and were left out" in capsys.readouterr().out
    found = load(system)
    assert found.certificate_.n_given == len(table)
    assert main(["frontier", system, pattern, "--json"]) == 0
    assert f'"rows": {len(table)}' in capsys.readouterr().out
    assert main(["report", system, pattern, "--sample", "400", "-o", str(tmp_path / "r.html")]) == 0
    assert "rows" in capsys.readouterr().out
