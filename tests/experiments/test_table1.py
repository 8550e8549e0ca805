import json
from dataclasses import replace

import numpy as np
import pytest

from thrifty.experiments import patches, table1
from thrifty.experiments.patches import WORDS, learn_patch_words


def test_a_thinned_run_on_real_miniboone_gives_table_and_numbers(data_folder, tmp_path, monkeypatch):
    pytest.importorskip("xgboost")
    small = replace(table1.TASKS["miniboone"], rates=(0.2,))
    monkeypatch.setattr(table1, "TASKS", {"miniboone": small})
    monkeypatch.setattr(table1, "SMALL_RATES", (0.5,))
    monkeypatch.setattr(table1, "GROWN_RATES", (0.6,))
    seen = []
    outcome = table1.run(
        tmp_path, data=str(data_folder), n_jobs=1, thin=10, progress=lambda *args: seen.append(args)
    )
    assert {path.suffix for path in outcome.files} == {".md", ".json"}
    assert len(outcome.rows) == 3 + len(table1.METHODS)
    assert len(outcome.header) == 3
    assert seen[-1][1:] == (1, 1)
    for split in json.loads((tmp_path / "table1.json").read_text())["splits"]["miniboone"]:
        low, high = split["accuracy"]["f1"]["val"], split["accuracy"]["f0"]["val"]
        assert low < split["wishes"][1] < split["wishes"][0] < high
        for method in table1.METHODS:
            assert all(0.0 <= share <= 1.0 for share in split["methods"][method]["share"])
        # One ensemble with two values a leaf, near the size of XGBoost's ten trees.
        assert split["methods"]["joint"]["bytes"] < 2 * split["methods"]["DM-Lstsq"]["bytes"]
        # A gate that looks at something beats chance by far, on every split.
        assert split["methods"]["confidence"]["share"][1] < split["methods"]["uniform"]["share"][1]


def test_patch_words_describe_an_image_by_its_quarters(monkeypatch):
    monkeypatch.setattr(patches, "LEARN_FROM", 5_000)
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(40, 32, 32, 3), dtype=np.uint8)
    words = learn_patch_words(images, seed=0)
    features = words.describe(images[:3])
    assert features.shape == (3, 4 * WORDS)
    assert np.all(features >= 0)
    # The first quarter's numbers depend on no pixel of the last quarter.
    changed = images[:1].copy()
    changed[:, 20:, 20:] = 0
    again = words.describe(changed)
    np.testing.assert_array_equal(again[0, :WORDS], features[0, :WORDS])
    assert not np.array_equal(again[0, 3 * WORDS :], features[0, 3 * WORDS :])
