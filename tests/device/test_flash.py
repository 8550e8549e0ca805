"""Exports within a limit of flash: the limit is kept, and what is left is a system of its own."""

import numpy as np
import pytest

import thrifty
from tests.device.targets import BOARDS, WARNINGS, needs, run
from tests.device.test_export import assert_same_ways
from thrifty import BudgetedClassifier, Frontier, Policy, StageOptions, evidence_of
from thrifty.errors import InvalidInputError


def measured(source):
    """Bytes of code and constants on a Cortex-M4F."""
    needs("arm-none-eabi-gcc", "arm-none-eabi-size")
    program = source.with_suffix(".o")
    flags = [*WARNINGS, *BOARDS["Cortex-M4F"][1], "-mthumb", "-Os", "-c"]
    run("arm-none-eabi-gcc", *flags, source, "-o", program)
    lines = run("arm-none-eabi-size", program, capture_output=True, text=True).stdout.splitlines()
    return int(lines[1].split()[0])


@pytest.mark.parametrize("limit", [None, "16k", "8k"])
def test_the_announced_size_is_that_of_the_compiled_source_and_never_above_the_limit(
    mixed, wine, tmp_path, limit
):
    for place, system in enumerate((mixed, wine[0])):
        exported = thrifty.export(system, tmp_path / str(place), max_flash=limit)
        there = measured(exported.files[1])
        assert there <= exported.flash_bytes <= 1.02 * there
        assert limit is None or exported.flash_bytes <= 1024 * int(limit[:-1])


def test_leaves_are_narrowed_before_trees_are_taken_and_trees_before_stages(mixed, tmp_path):
    whole = mixed.chain_
    taken = {}
    for limit in ("14k", "12k", "4k"):
        cut = thrifty.export(mixed, tmp_path / limit, max_flash=limit).system
        taken[limit] = [
            len(cut.stages),
            cut.stages[0].trees.n_trees,
            np.array_equal(cut.stages[0].trees.values, whole.stages[0].trees.values),
        ]
    n_stages, n_trees = len(whole.stages), whole.stages[0].trees.n_trees
    assert taken["14k"] == [n_stages, n_trees, False]
    assert taken["12k"][0] == n_stages
    assert taken["12k"][1] < n_trees
    assert taken["4k"][0] < n_stages


def test_the_source_walks_rows_as_the_system_that_is_returned(mixed, mixed_rows, tmp_path):
    cut = thrifty.export(mixed, tmp_path / "cut", max_flash="6k")
    assert cut.identity != thrifty.export(mixed, tmp_path / "whole").identity
    assert np.isnan(cut.system.policy.cost).all(), "nothing is known of its costs"
    assert_same_ways(cut.system, tmp_path, mixed_rows, leaves="int16")
    assert (tmp_path / "c" / "thrifty_model.c").read_text() == cut.files[1].read_text()


def test_labelled_rows_measure_the_operating_points_anew(mixed, cancer, tmp_path):
    cut = thrifty.export(mixed, tmp_path / "c", max_flash="6k", X=cancer[0], y=cancer[1])
    policy = cut.system.policy
    spent = cut.system.cost(cancer[0]).mean()
    assert policy.expected_cost == pytest.approx(mixed.chain_.policy.expected_cost, rel=0.02)
    assert spent == pytest.approx(policy.expected_cost, rel=0.05)
    assert cut.n_moved > 0


def test_a_system_that_is_cut_is_certified_anew_and_what_is_proved_is_what_is_written(
    mixed, cancer, tmp_path
):
    X, y = cancer
    third = np.arange(len(y)) % 3
    chosen_on, proved_on = (X[third == 0], y[third == 0]), (X[third == 1], y[third == 1])
    cut = thrifty.export(mixed, tmp_path / "cut", max_flash="6k", X=chosen_on[0], y=chosen_on[1])
    frontier = Frontier.from_evidence([evidence_of(cut.system, *chosen_on)], against_full=True)
    proof = frontier.on([evidence_of(cut.system, *proved_on)])
    certificate = thrifty.certify(proof, max_loss=0.1, duplicates="count")
    assert not certificate.is_fallback
    proved = cut.system.at(Policy.of(np.array(certificate.point.thresholds)))
    written = thrifty.export(proved, tmp_path / "proved", leaves="int16")
    assert_same_ways(proved, tmp_path, X, leaves="int16")
    assert written.identity == cut.identity != thrifty.export(mixed, tmp_path / "whole").identity
    full = mixed.chain_.full.outputs(*2 * [proved_on[0]]).argmax(axis=1) == proved_on[1]
    lost = full & (written.system.predict(proved_on[0]) != proved_on[1])
    assert certificate.n_rows == len(full)
    assert certificate.n_losses == np.count_nonzero(lost)


def test_a_system_that_was_learned_under_a_limit_keeps_all_its_trees(cancer, tmp_path):
    options = StageOptions(4, [(40, 4)], max_bytes=8 * 1024)
    is_right = np.random.default_rng(0).random(len(cancer[1])) < 0.95
    full = np.where(cancer[1] == is_right, 0.9, 0.1)
    whole = BudgetedClassifier(full, budget=3, stages=options, cv=2, random_state=0).fit(*cancer).chain_
    cut = thrifty.export(whole, tmp_path / "c", max_flash="8k")
    assert cut.flash_bytes <= 8 * 1024
    assert [one.trees.n_trees for one in cut.system.stages] == [one.trees.n_trees for one in whole.stages]


def test_a_limit_of_ram_takes_stages_until_a_session_fits(mixed, tmp_path):
    whole = thrifty.export(mixed, tmp_path / "whole", leaves="int16")
    cut = thrifty.export(mixed, tmp_path / "c", max_ram=whole.state_bytes - 4)
    assert cut.state_bytes < whole.state_bytes
    assert 0 < len(cut.system.stages) < len(mixed.chain_.stages)
    with pytest.raises(InvalidInputError, match="max_ram must be at least"):
        thrifty.export(mixed, tmp_path / "d", max_ram=8)


def test_a_limit_that_nothing_meets_is_refused_with_the_smallest_that_is_met(mixed, tmp_path):
    with pytest.raises(InvalidInputError, match=r"at least ([\d,]+) bytes") as refused:
        thrifty.export(mixed, tmp_path / "c", max_flash=1000)
    smallest = int(str(refused.value).split("at least ")[1].split(" ")[0].replace(",", ""))
    assert thrifty.export(mixed, tmp_path / "c", max_flash=smallest).flash_bytes <= smallest
    for text in ("0", "many", "-8k"):
        with pytest.raises(InvalidInputError, match="number of bytes"):
            thrifty.export(mixed, tmp_path / "d", max_flash=text)
