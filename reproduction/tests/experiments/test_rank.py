import json
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest

from reproduction.datasets import load_mq2008
from reproduction.experiments import rank
from reproduction.experiments.experiment import Run, read_settings
from thrifty.engine.tasks.ranking import Queries
from thrifty.errors import InvalidInputError


def shipped():
    return (files("reproduction.experiments") / "configs" / "rank.toml").read_text()


@pytest.mark.slow
def test_a_small_run_ranks_real_documents_and_resumes_from_its_cells(data_folder, tmp_path):
    pytest.importorskip("matplotlib")
    config = tmp_path / "few.toml"
    config.write_text(shipped().replace("[smoke]", '[smoke]\nmethods = ["kl", "miser"]'))
    how = Run(tmp_path, str(data_folder), "smoke", config, n_jobs=1)
    outcome = rank.run(how)
    assert {path.suffix for path in outcome.files} == {".md", ".json", ".png"}
    numbers = json.loads((tmp_path / "rank.json").read_text())
    panel = numbers["MQ2008"]
    assert panel["f0"]["cost"] == 1378.0  # what 46 prices of the list, dealt out with seed 0, cost together
    assert {"DynaMod-Gbrt, KL", "GreedyMiser", rank.TOP_FIRST} <= panel["chosen"].keys()
    for points in panel["chosen"].values():
        for point in points:
            low, high = point["band"]
            assert 0.0 <= low <= point["average_precision"] <= high <= 1.0
            assert point["val_cost"] <= point["budget"] * (1 + 1e-9)
    assert (tmp_path / "rank.png").stat().st_size > 20_000
    assert outcome.header[:2] == ["data", "budget"]
    first = (tmp_path / "rank.json").read_text()

    seen = []
    rank.run(replace(how, progress=lambda *step: seen.append(step)))
    assert (tmp_path / "rank.json").read_text() == first
    assert all(done == total for _, done, total in seen)  # nothing was fitted again


def test_a_thinned_split_keeps_whole_queries(data_folder):
    split = load_mq2008(data_folder)
    some = rank._some_queries(split, (7, 6, 5), seed=0)
    assert [len(np.unique(part)) for part in (some.qid_train, some.qid_val, some.qid_test)] == [7, 6, 5]
    for query in np.unique(some.qid_train):
        assert (some.qid_train == query).sum() == (split.qid_train == query).sum()
    assert rank._some_queries(split, (), seed=0) is split


def test_folds_for_the_cascade_hold_whole_queries_out():
    queries = Queries(np.repeat(np.arange(9), 4))
    folds = rank.splits_by_query(queries, 4)
    assert sorted(np.concatenate([held_out for _, held_out in folds]).tolist()) == list(range(36))
    for train, held_out in folds:
        assert not set(queries.number[train]) & set(queries.number[held_out])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('data = ["bing"]', "data must be among mq2008, mslr, yahoo"),
        ("rows = [5, 5, 5]", "rows would tear queries apart"),
        ("queries = [5, 5]", "queries must be three numbers of at least 5"),
        ("places = 0", "places must be at least 1"),
        ("thresholds = 1", "thresholds at least 2"),
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path, line, said):
    name = line.split(" =")[0]
    kept = [old for old in shipped().partition("[quick]")[0].splitlines() if not old.startswith(f"{name} =")]
    path = tmp_path / "rank.toml"
    path.write_text("\n".join([*kept, line]) + "\n")
    with pytest.raises(InvalidInputError, match=said):
        read_settings(rank.RankSettings, "rank", config=path)
