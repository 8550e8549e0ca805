"""No file takes more memory than its length accounts for: eight times the file and 64 MiB."""

import copy
import json
import tracemalloc

import numpy as np
import pytest

from thrifty.bundle import from_bytes, to_bytes
from thrifty.bundle.container import Contents, pack, parsed_size
from thrifty.errors import InvalidInputError

ROOM = 64 << 20


def listed(item, length):
    return "[" + ",".join([item] * (length // (len(item) + 1))) + "]"


def padded_manifest(data, forge):
    """Empty objects in the manifest."""
    manifest, blobs = forge.taken_apart(data)
    manifest["padding"] = "@"
    text = json.dumps(manifest).replace('"@"', listed("{}", 4_000_000))
    return forge.sealed_text(text.encode(), b"".join(blobs))


def unused_zeros(data, forge):
    """Arrays that nothing refers to, each of them within its bound."""
    manifest, blobs = forge.taken_apart(data)
    encoded, (blob,) = forge.taken_apart(
        pack(Contents({}, [np.random.default_rng(0).integers(0, 9, 300_000)]))
    )
    manifest["entries"] += [dict(encoded["entries"][0]) for _ in range(300)]
    return forge.sealed(manifest, [*blobs, *[blob] * 300])


def one_array_often(data, forge):
    """One array that every stage refers to."""
    manifest, blobs = forge.taken_apart(data)
    stages = forge.objects(manifest, "LinearStage")
    place = manifest["objects"].index(stages[0])
    manifest["objects"][place:place] = [copy.deepcopy(stages[0]) for _ in range(900)]
    return forge.sealed(manifest, blobs)


@pytest.mark.slow
@pytest.mark.parametrize("made", [padded_manifest, unused_zeros, one_array_often])
def test_a_small_file_that_would_be_large_in_memory_is_refused_before_it_is(made, fitted, forge):
    data = made(to_bytes(fitted["linear"]), forge)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError, match=r"memory|cannot have|from several places"):
            from_bytes(data)
        peak = len(data) + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 8 * len(data) + ROOM


def test_arrays_that_nothing_refers_to_are_never_made(fitted, forge):
    manifest, blobs = forge.taken_apart(to_bytes(fitted["linear"]))
    manifest["entries"].append({"dtype": "|b1", "shape": [4]})  # whose bytes are no truth values
    from_bytes(forge.sealed(manifest, [*blobs, b"\x07\x07\x07\x07"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [listed(item, 60_000) for item in ("[]", "{}", "10000", '"ab"', "0.125", '{"$tuple":[]}', "[[[]]]")]
    + [
        "{" + ",".join(f'"{number}":1' for number in range(9000)) + "}",
        '"' + "a" * 60_000 + '\\ud83d\\ude00"',
    ],
    ids=lambda text: text[:12],
)
def test_what_json_takes_in_memory_is_known_before_it_is_parsed(text):
    raw = text.encode()
    tracemalloc.start()
    facts = json.loads(raw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert facts
    assert peak <= parsed_size(raw)
