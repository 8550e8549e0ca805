"""Ten thousand damaged files: each is refused in words or, if its checksums were made right again, still answers."""

import copy
import random

import numpy as np
import pytest

from thrifty import GatedSystem, InvalidInputError, Stage
from thrifty.bundle import from_bytes, to_bytes
from thrifty.full.model import EstimatorFull, PrecomputedFull
from thrifty.learning.pairs.boosted import BoostedScorer
from thrifty.learning.pairs.linear import LinearScorer

N_DAMAGED, N_SEALED, N_SEALED_WITH_MODEL = 6_700, 3_000, 300


@pytest.fixture(scope="module")
def system(fitted, rows):
    """A linear stage, a boosted stage and probabilities, on the columns and labels of a small table."""
    tail = fitted["boosted"].system_
    scorer = LinearScorer(np.array([0, 5]), np.array([[0.1, -2.0], [0.3, 0.4]]), np.array([0.1, 0.2]), -0.5)
    assert isinstance(tail.stages[0].scorer, BoostedScorer)
    full = PrecomputedFull(np.linspace(0.05, 0.95, 20))
    chain = (Stage(scorer, -0.2), Stage(tail.stages[0].scorer, -0.5))
    return GatedSystem(chain, full, tail.price_list, np.array(["no", "yes"]), tuple("abcdefghijkl"))


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


def test_no_damage_goes_unnoticed(system):
    chance, data = random.Random(0), to_bytes(system)
    n_tried = 0
    while n_tried < N_DAMAGED:
        wrong = damaged(data, chance)
        if wrong == data:
            continue
        with pytest.raises(InvalidInputError):
            from_bytes(wrong)
        n_tried += 1


def test_every_single_bit_is_covered(system):
    stage = GatedSystem(system.stages[:1], system.full, system.price_list, system.classes)
    data = to_bytes(stage)
    for place in range(len(data)):
        for bit in range(8):
            wrong = bytearray(data)
            wrong[place] ^= 1 << bit
            with pytest.raises(InvalidInputError):
                from_bytes(bytes(wrong))


ODD = (
    *(None, True, -1, 0, 1, 7, 2**31, 2**63, -(2**63), 10**30, 0.5, 1e308, -1e308, "", "x", [], {}, [[]]),
    *({"$array": 0}, {"$array": 3}, {"$float": "inf"}, {"$float": "nan"}, {"$tuple": []}, {"$objects": []}),
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
    changed_facts(manifest["system"], chance)
    changed_array(manifest, blobs, chance)
    return forge.sealed(manifest, blobs)


def loads_and_answers(data, X):
    """Whether the file loads; if it does, it must answer, or refuse in words."""
    try:
        system = from_bytes(data)
    except InvalidInputError:
        return False
    with np.errstate(all="ignore"):
        try:
            route = system.route(X)
            assert route.shape == (len(X),)
            assert np.all(system.cost(X) >= 0)
            probability = system.predict_proba(X)
            assert np.all((probability >= 0) & (probability <= 1))
        except InvalidInputError:
            pass
    return True


@pytest.mark.parametrize(("with_model", "n_tried"), [(False, N_SEALED), (True, N_SEALED_WITH_MODEL)])
def test_damage_under_a_right_checksum_is_refused_or_does_no_harm(
    with_model, n_tried, system, fitted, rows, forge
):
    chance = random.Random(1)
    if with_model:
        assert isinstance(fitted["linear"].system_.full, EstimatorFull)
        system = fitted["linear"].system_
    data, X = to_bytes(system), rows[0][:20]
    loaded = sum(loads_and_answers(still_sealed(data, chance, forge), X) for _ in range(n_tried))
    # Both happen often, or the test would say little.
    assert 0.05 * n_tried < loaded < 0.95 * n_tried
