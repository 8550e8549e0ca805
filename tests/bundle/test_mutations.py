"""Thousands of damaged files: each is refused in words or, if its checksums were made right again, still answers."""

import contextlib
import copy
import random
from dataclasses import replace

import numpy as np
import pytest

from thrifty import BudgetedClassifier, Chain, Policy
from thrifty.bundle import from_bytes, to_bytes
from thrifty.engine.full.model import EstimatorFull, PrecomputedFull
from thrifty.engine.tasks.classes import BinaryTask
from thrifty.engine.walk.stage import BoostedStage, LinearStage
from thrifty.errors import InvalidInputError

N_DAMAGED, N_SEALED, N_SEALED_WITH_MODEL = 1_000, 500, 40


@pytest.fixture(scope="module")
def chain(fitted):
    """A linear stage, a boosted stage and probabilities, on the columns and labels of a small table."""
    tail = fitted["boosted"].chain_
    stage = LinearStage(np.array([0, 5]), np.array([[0.1, -2.0], [0.3, 0.4]]), np.array([0.1, 0.2]), -0.5)
    assert isinstance(tail.stages[0], BoostedStage)
    positive = np.linspace(0.05, 0.95, 20)
    policy = Policy.of(np.array([-0.2, -0.5]), np.array([-0.2, -np.inf]), share=0.5, seed=3)
    return Chain(
        (stage, tail.stages[0]),
        PrecomputedFull(np.column_stack([1 - positive, positive])),
        tail.price_list,
        BinaryTask(np.array(["no", "yes"])),
        policy,
        names=tuple("abcdefghijkl"),
    )


def damaged(data, chance):
    """Bits flipped, bytes cut off, inserted, repeated, zeroed or swapped."""
    data = bytearray(data)
    begin, length = chance.randrange(len(data)), chance.choice([1, 1, 2, 8, 64, 1024])
    kind = chance.randrange(7)
    if kind == 0:
        data[begin] ^= 1 << chance.randrange(8)
    elif kind == 1:
        del data[begin:]
    elif kind == 2:
        data[begin:begin] = chance.randbytes(length)
    elif kind == 3:
        data[begin:begin] = data[begin : begin + length]
    elif kind == 4:
        data[begin : begin + length] = bytes(len(data[begin : begin + length]))
    elif kind == 5:
        del data[begin : begin + length]
    else:
        data[begin : begin + length] = chance.randbytes(len(data[begin : begin + length]))
    return bytes(data)


def test_no_damage_goes_unnoticed(chain):
    data = to_bytes(chain)
    chance, n_tried = random.Random(0), 0
    while n_tried < N_DAMAGED:
        wrong = damaged(data, chance)
        if wrong == data:
            continue
        with pytest.raises(InvalidInputError):
            from_bytes(wrong)
        n_tried += 1


@pytest.mark.slow
def test_every_single_bit_is_covered(chain):
    data = to_bytes(replace(chain, stages=chain.stages[:1], policy=Policy.of(np.zeros(1)), names=None))
    for place in range(len(data)):
        for bit in range(8):
            wrong = bytearray(data)
            wrong[place] ^= 1 << bit
            with pytest.raises(InvalidInputError):
                from_bytes(bytes(wrong))


ODD = (
    *(None, True, -1, 0, 1, 7, 2**31, 2**63, -(2**63), 10**30, 0.5, 1e308, -1e308, "", "x", [], {}, [[]]),
    *(
        {"$array": 0},
        {"$array": 3},
        {"$object": 1},
        {"$float": "inf"},
        {"$float": "nan"},
        {"$tuple": []},
        {"$objects": []},
    ),
)


def places(node, found):
    """Every (container, key) of a manifest."""
    for key in list(node) if isinstance(node, dict) else range(len(node)):
        found.append((node, key))
        if isinstance(node[key], dict | list):
            places(node[key], found)
    return found


def changed_facts(manifest, chance):
    """One value replaced, removed, repeated or taken from elsewhere."""
    spots = places(manifest, [])
    node, key = chance.choice(spots)
    kind = chance.randrange(4)
    if kind == 0:
        node[key] = copy.deepcopy(chance.choice(ODD))
    elif kind == 1:
        del node[key]
    elif kind == 2:
        other, name = chance.choice(spots)
        node[key] = copy.deepcopy(other[name])
    elif isinstance(node[key], int | float):
        node[key] = node[key] + chance.choice([-1, 1, 100])
    else:
        node[key] = [copy.deepcopy(node[key])] * 2


def changed_array(manifest, blobs, chance):
    """The content of one array, or its shape."""
    number = chance.randrange(len(blobs))
    entry, blob = manifest["entries"][number], bytearray(blobs[number])
    if chance.random() < 0.2 or not blob:
        size = int(np.prod(entry["shape"], dtype=np.int64))
        entry["shape"] = chance.choice([[size], [size, 1], [1, size], [size + 1], []])
        return
    width = np.dtype(entry["dtype"]).itemsize
    for _ in range(chance.choice([1, 1, 3])):
        begin = width * chance.randrange(len(blob) // width)
        if chance.random() < 0.5:
            blob[begin + chance.randrange(width)] ^= 1 << chance.randrange(8)
        else:
            blob[begin : begin + width] = chance.choice(
                [bytes(width), b"\xff" * width, chance.randbytes(width)]
            )
    if chance.random() < 0.1:
        blob = blob[: width * chance.randrange(len(blob) // width)]
        entry["shape"] = [len(blob) // width, *entry["shape"][1:]]
    blobs[number] = bytes(blob)


def still_sealed(data, chance, forge):
    manifest, blobs = forge.taken_apart(data)
    kind = chance.randrange(3)
    if kind == 0:
        changed_facts(manifest, chance)
        return forge.sealed(manifest, blobs, honest=False)
    if kind == 1:
        changed_array(manifest, blobs, chance)
        return forge.sealed(manifest, blobs)
    changed_facts(manifest["objects"], chance)
    changed_array(manifest, blobs, chance)
    return forge.sealed(manifest, blobs)


def ask_everything(system, X):
    """Ask whatever there is to be asked; a refusal in words is an answer too, any other error is not."""
    probability = system.predict_proba(X)
    assert np.all((probability >= 0) & (probability <= 1))
    assert system.route(X).shape == (len(X),)
    assert np.all(system.cost(X) >= 0)
    system.predict(X)


def ask_estimator(estimator, X):
    """Ask an estimator about its operating points, each question by itself."""
    questions = [
        lambda: estimator.explain(X[:3]),
        lambda: estimator.frontier_,
        lambda: (estimator.expected_cost_, estimator.expected_score_),
        lambda: str(estimator.certificate_),
        lambda: estimator.at(budget=2.5).route(X),
        lambda: to_bytes(estimator, full="absent"),
    ]
    if isinstance(estimator, BudgetedClassifier):
        questions.append(lambda: estimator.at(max_loss=0.1).route(X))
    for question in questions:
        with contextlib.suppress(InvalidInputError):
            question()


def loads_and_answers(data, X):
    """Whether the file loads; if it does, it must answer, or refuse in words."""
    try:
        system = from_bytes(data)
    except InvalidInputError:
        return False
    with np.errstate(all="ignore"):
        with contextlib.suppress(InvalidInputError):
            ask_everything(system, X)
        if hasattr(system, "chain_"):
            ask_estimator(system, X)
    return True


def both_happen(data, n_tried, X, forge):
    """Damage a file under right checksums so many times; both to load and to be refused must happen often."""
    chance = random.Random(1)
    loaded = sum(loads_and_answers(still_sealed(data, chance, forge), X) for _ in range(n_tried))
    # Otherwise the test would say little.
    assert 0.02 * n_tried < loaded < 0.95 * n_tried


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:X does not have valid feature names"
)  # a damaged file may have made them up
def test_damage_under_a_right_checksum_is_refused_or_does_no_harm(chain, rows, forge):
    both_happen(to_bytes(chain), N_SEALED, rows[0][:20], forge)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # a damaged file may promise a loss that saves nothing
@pytest.mark.parametrize("name", ["linear", "cascade", "proved", "nested", "lstsq", "confidence"])
def test_damaged_estimators_are_refused_or_do_no_harm(name, fitted, rows, forge):
    if name == "linear":
        assert isinstance(fitted[name].chain_.full, EstimatorFull)
    full = "inside" if name == "linear" else "absent"
    both_happen(to_bytes(fitted[name], full=full), N_SEALED_WITH_MODEL, rows[0][:20], forge)
