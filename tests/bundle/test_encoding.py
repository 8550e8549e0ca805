"""Large arrays take few bytes, come back bit by bit, and whatever lies about its bytes is refused."""

import zlib

import numpy as np
import pytest

from thrifty.bundle.container import MIN_BYTES, Contents, pack, unpack
from thrifty.errors import InvalidInputError

RNG = np.random.default_rng(0)
STRANGE = np.array([0.0, -0.0, np.inf, -np.inf, 1e300, 5e-324, 0.1])
NAN = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
ARRAYS = {
    "bool": (RNG.random(20_001) < 0.9, 8),
    "small integers in 64 bits": (RNG.integers(-3, 3, (5000, 3)), 8),
    "large integers": (RNG.integers(0, 2**60, 3000), 1),
    "numbers of single precision": (RNG.normal(size=4000).astype(np.float32).astype(np.float64), 2),
    "few distinct numbers": (RNG.choice(RNG.normal(size=300), (4000, 2)), 4),
    "zeros of both signs, NaN and the like": (RNG.choice(np.r_[STRANGE, NAN], 4000), 8),
    "any numbers": (RNG.normal(size=4000), 1),
    "column by column": (np.asfortranarray(RNG.integers(0, 9, (900, 5))), 8),
    "text": (RNG.choice(["a", "bcd"], 3000), 1),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_a_large_array_comes_back_bit_by_bit_from_few_bytes(kind):
    array, times = ARRAYS[kind]
    data = pack(Contents({}, [array]))
    (found,) = unpack(data).arrays
    assert found.dtype == array.dtype
    assert found.flags.f_contiguous == array.flags.f_contiguous
    assert found.flags.writeable
    assert found.tobytes("A") == array.tobytes("A")
    assert len(data) <= array.nbytes / times + 600


def test_what_compresses_so_well_that_a_reader_would_take_it_for_a_trap_is_stored_as_it_is():
    data = pack(Contents({}, [np.zeros(1_000_000)]))
    assert len(data) > 8_000_000
    assert unpack(data).arrays[0].shape == (1_000_000,)


def change(form=None, blob=None, **entry):
    def forge(manifest, blobs):
        manifest["entries"][0].update(entry)
        manifest["entries"][0]["form"].update(form or {})
        blobs[0] = blobs[0] if blob is None else blob(blobs[0])

    return forge


LIES = {
    "another type": (change({"type": "<u2"}), "must decompress to"),
    "a type that is none": (change({"type": "O"}), "not known"),
    "a part too many": (change({"more": 1}), "not known"),
    "distinct values that are not there": (change({"distinct": 3}), "must decompress to"),
    "too many of them": (change({"distinct": 2**40}), "not known"),
    "bytes cut off": (change(blob=lambda blob: blob[:-9]), "must decompress to"),
    "bytes behind": (change(blob=lambda blob: blob + b"x"), "must decompress to"),
    "no compressed bytes": (change(blob=lambda blob: b"x" * len(blob)), "cannot be decompressed"),
    "a bomb": (change(blob=lambda blob: zlib.compress(bytes(10**7))), "must decompress to"),
    "a larger shape": (change(shape=[10**12]), "cannot have"),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_encoded_array_that_lies_about_its_bytes_is_refused(lie, forge):
    data = pack(Contents({}, [RNG.integers(0, 9, MIN_BYTES)]))
    manifest, blobs = forge.taken_apart(data)
    assert manifest["entries"][0]["form"] == {"type": "|u1", "distinct": 0}
    how, words = LIES[lie]
    how(manifest, blobs)
    with pytest.raises(InvalidInputError, match=words):
        unpack(forge.sealed(manifest, blobs)).arrays[0]


def test_a_number_of_a_distinct_value_that_is_not_there_is_refused(forge):
    manifest, blobs = forge.taken_apart(pack(Contents({}, [RNG.choice(RNG.normal(size=9), 5000)])))
    assert manifest["entries"][0]["form"] == {"type": "|u1", "distinct": 9}
    blobs[0] = zlib.compress(zlib.decompress(blobs[0])[:-1] + b"\x09")
    with pytest.raises(InvalidInputError, match="distinct values that are not there"):
        unpack(forge.sealed(manifest, blobs)).arrays[0]


def test_arrays_that_together_would_take_more_memory_than_the_file_accounts_for_are_refused_unmade(forge):
    manifest, blobs = forge.taken_apart(pack(Contents({}, [RNG.integers(0, 9, 300_000)])))
    assert "form" in manifest["entries"][0]
    manifest["entries"] *= 8
    # Each of them alone is within the bound.
    with pytest.raises(InvalidInputError, match="more than 6 times the memory of the file"):
        unpack(
            forge.sealed([dict(manifest, entries=[dict(one) for one in manifest["entries"]])][0], blobs * 8)
        )
