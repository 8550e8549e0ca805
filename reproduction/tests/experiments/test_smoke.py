"""Every experiment, in seconds, on real data: picture, numbers and page are written and say what they must."""

import json

import numpy as np
import pytest

from reproduction.experiments import experiments
from reproduction.experiments.experiment import Run

pytestmark = pytest.mark.slow

FIGURES = ("miniboone", "forest", "scene15")
# Unpacking and describing the images of CIFAR-10 takes as long as two other experiments: `make paper-smoke` runs it.
# The table of other papers has tests of its own, which need torch.
TESTED = [name for name in experiments() if name not in ("cifar", "acquisition")]


@pytest.fixture(scope="module")
def outcome_of(data_folder, tmp_path_factory):
    """Each experiment is run once."""
    out, done = tmp_path_factory.mktemp("paper"), {}

    def run(name):
        if name == "letters_boosted":  # it is compared with what the other left in the folder
            run("letters_linear")
        if name not in done:
            done[name] = experiments()[name](Run(out, str(data_folder), "smoke", n_jobs=1))
        return done[name]

    return run


def numbers_of(outcome):
    (path,) = (path for path in outcome.files if path.suffix == ".json")
    return json.loads(path.read_text())


@pytest.mark.parametrize("name", TESTED)
def test_an_experiment_writes_what_it_says(name, outcome_of):
    if name == "table1":
        pytest.importorskip("xgboost")
    outcome = outcome_of(name)
    suffixes = {".md", ".json"} if name == "table1" else {".png", ".md", ".json"}
    assert {path.suffix for path in outcome.files} == suffixes
    assert all(path.stem.startswith(name) and path.stat().st_size > 100 for path in outcome.files)
    assert any(note.startswith("Sweep: ") for note in outcome.notes)
    (page,) = (path for path in outcome.files if path.suffix == ".md")
    assert outcome.title in page.read_text()


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_spends_no_more_than_its_budget_on_validation_rows(name, outcome_of):
    outcome = outcome_of(name)
    numbers = numbers_of(outcome)["forest"]
    assert {"DynaMod-Gbrt, KL", "GreedyMiser", "BudgetPrune"} <= numbers["chosen"].keys()
    # A cascade of many purchases takes longer than everything else together; three purchases will do.
    assert ("BudgetedClassifier" in numbers["chosen"]) == (name == "scene15")
    for points in numbers["chosen"].values():
        assert all(point["val_cost"] <= point["budget"] + 1e-9 for point in points)
    # Nothing stands behind these: their rows pay for their features and no more.
    for alone in ("GreedyMiser", "BudgetPrune"):
        assert all(point["share"] == 0.0 for point in numbers["chosen"][alone])


@pytest.mark.parametrize("name", FIGURES)
def test_the_page_of_a_figure_names_f0_the_sizes_and_the_claims(name, outcome_of):
    text = "\n".join(outcome_of(name).notes)
    for words in (
        "rows to learn from",
        "test accuracy",
        "KL better than squared",
        "minus GreedyMiser,",
        "minus BudgetPrune,",
    ):
        assert words in text
    assert ("marginal gain" in text) == (name == "scene15")


def test_descriptors_of_a_scene_are_bought_whole(outcome_of):
    numbers = numbers_of(outcome_of("scene15"))["forest"]
    whole = [20 * a + 59 * b + 40 * c for a in (0, 1) for b in (0, 1) for c in (0, 1)]
    for point in numbers["chosen"]["GreedyMiser"]:
        assert np.min(np.abs(np.array(whole) - point["cost"])) < 1e-9


def test_boosted_letters_are_compared_with_linear_ones_of_the_same_folder(outcome_of, data_folder, tmp_path):
    outcome_of("letters_linear")
    assert any(
        "claim B: DynaMod-Gbrt, KL minus DynaMod-Lin" in note for note in outcome_of("letters_boosted").notes
    )
    assert {"RBF-SVM", "forest"} <= numbers_of(outcome_of("letters_boosted")).keys()


def test_table_one_beats_chance_and_wishes_between_the_two_models(outcome_of):
    pytest.importorskip("xgboost")
    (split,) = numbers_of(outcome_of("table1"))["splits"]["miniboone"]
    low, high = split["accuracy"]["f1"]["val"], split["accuracy"]["f0"]["val"]
    assert low < split["wishes"][1] < split["wishes"][0] < high
    for method in split["methods"].values():
        assert all(0.0 <= share <= 1.0 for share in method["share"])
    # One ensemble with two values a leaf, near the size of XGBoost's ten trees.
    assert split["methods"]["joint"]["bytes"] < 2 * split["methods"]["DM-Lstsq"]["bytes"]
    # A gate that looks at something beats chance by far.
    assert split["methods"]["confidence"]["share"][1] < split["methods"]["uniform"]["share"][1]


def test_the_synthetic_experiment_ends_at_the_optimum(outcome_of):
    numbers = numbers_of(outcome_of("synthetic"))
    assert abs(numbers["dynamod_cost"] - 110 / 70) < 1e-9
    assert abs(numbers["greedy_cost"] - 120 / 70) < 1e-9
    assert numbers["dynamod_accuracy"] == numbers["greedy_accuracy"] == 1.0
    assert numbers["dynamod_features"] == [2]
    assert numbers["fits_with_restarts_at_optimum"] == 1
