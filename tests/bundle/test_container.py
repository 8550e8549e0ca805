import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from thrifty.bundle import to_bytes
from thrifty.bundle.codec import NotPlainError, ObjectReader, ObjectWriter, register
from thrifty.bundle.container import FORMAT, Contents, pack, unpack
from thrifty.errors import InvalidInputError

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)), max_size=5)
DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?", sizes=(32, 64)),
    hnp.unicode_string_dtypes(endianness="?", min_len=1, max_len=5),
)
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(st.integers(), TEXT), inner, max_size=3),
    ),
    max_leaves=8,
)


def same(one, other):
    """Equal in type and value, bit by bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack("<d", one) == struct.pack("<d", other) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    return one == other


@pytest.mark.slow
@given(
    st.lists(ARRAYS, max_size=4), st.dictionaries(TEXT.filter(lambda name: name != "entries"), st.integers())
)
def test_arrays_and_facts_come_back_bit_by_bit(arrays, facts):
    found = unpack(pack(Contents(facts, arrays)))
    assert found.facts == facts
    for was, now in zip(arrays, found.arrays, strict=True):
        assert now.shape == was.shape
        assert now.dtype == was.dtype.newbyteorder("=")
        assert now.tobytes() == was.astype(now.dtype).tobytes()
        assert now.flags.writeable


@register
@dataclass
class Holder:
    value: Any


def through_a_file(value):
    writer = ObjectWriter()
    writer.object(Holder(value))
    contents = unpack(pack(Contents({"objects": writer.objects}, writer.arrays)))
    return ObjectReader(contents.facts["objects"], contents.arrays).root().value


@pytest.mark.slow
@given(VALUES)
def test_plain_values_come_back_with_their_types(value):
    assert same(through_a_file(value), value)


@pytest.mark.slow
@given(hnp.arrays(DTYPES, ()))
def test_numbers_of_numpy_come_back_as_such(array):
    found = through_a_file(array.astype(array.dtype.newbyteorder("="))[()])
    assert type(found) is type(array[()])
    assert found.tobytes() == array.astype(array.dtype.newbyteorder("="))[()].tobytes()


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        np.array([1j]),
        np.array(["2020"], dtype="datetime64[Y]"),
        np.array([[None]]),
        np.array([object()]),
        np.zeros((1,) * 5),
        np.array(["a"], dtype=np.dtypes.StringDType()),
        np.zeros(1, dtype=[("a", "f8")]),
    ],
)
def test_what_is_not_plain_data_is_refused(value):
    with pytest.raises(NotPlainError):
        ObjectWriter().value(value)


def test_lists_nested_without_end_are_refused():
    endless = []
    endless.append(endless)
    with pytest.raises(NotPlainError, match="deep"):
        ObjectWriter().value(endless)


def refused(data, match, **options):
    with pytest.raises(InvalidInputError, match=match):
        unpack(data, **options)


@pytest.mark.parametrize(("step", "way_out"), [(1, "Upgrade thrifty"), (-1, "Fit again")])
def test_another_format_is_refused_by_number(step, way_out, fitted):
    data = bytearray(to_bytes(fitted["confidence"]))
    data[8:12] = struct.pack("<I", FORMAT + step)
    refused(
        bytes(data),
        f"has format {FORMAT + step}, and this version of thrifty reads format {FORMAT}. {way_out}",
    )


@pytest.mark.slow
def test_a_file_that_is_cut_off_anywhere_is_refused(fitted):
    data = to_bytes(fitted["linear"], full="absent")
    for length in range(len(data)):
        refused(data[:length], "cut off|not a file of thrifty|damaged")


def test_bytes_added_anywhere_are_noticed(fitted, forge):
    data = to_bytes(fitted["linear"], full="absent")
    refused(data + b"\x00", "damaged")
    refused(b"\x00" + data, "are not a file of thrifty")
    refused(forge.sealed_text(b'{"entries":[]}', b"extra"), "5 bytes that belong to no array")


def test_a_file_larger_than_allowed_is_refused_before_it_is_looked_at(fitted):
    data = to_bytes(fitted["linear"], full="absent")
    refused(data, f"may have 100 bytes; this one has {len(data)}", max_bytes=100)


def test_what_is_no_bytes_is_refused():
    refused("system.thrifty", "read from bytes; got str. For a path use load")


def test_a_manifest_longer_than_the_file_is_never_allocated():
    refused(
        struct.pack("<8sIQ", b"thrifty\x00", FORMAT, 2**63) + bytes(100),
        "manifest has 9223372036854775808 bytes",
    )


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"entries": NaN}',
        b"[" * 100_000,
        b'{"entries": 7}',
        b'{"a":' + b"9" * 9999 + b"}",
    ],
)
def test_a_manifest_that_is_not_one_is_refused(text, forge):
    refused(forge.sealed_text(text), "manifest|list its arrays")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"length": -8}, "does not follow"),
        ({"offset": -1}, "does not follow"),
        ({"offset": 8}, "does not follow"),
        ({"length": 2**62, "shape": [2**59]}, "only .* are left"),
        ({"shape": [-1]}, "which is none"),
        ({"shape": [1.0]}, "which is none"),
        ({"shape": [True]}, "which is none"),
        ({"shape": 3}, "which is none"),
        ({"shape": [1] * 9}, "which is none"),
        ({"shape": [0, 2**60], "length": 0}, "larger than the file"),
        ({"shape": [2**40, 2**40]}, "cannot have"),
        ({"dtype": "|O"}, "its type is '|O'"),
        ({"dtype": "<M8[s]"}, "its type is"),
        ({"dtype": "<U0"}, "its type is"),
        ({"dtype": "<U99999999999"}, "its type is"),
        ({"dtype": "f8,O"}, "its type is"),
        ({"dtype": ["f8"]}, "its type is"),
        ({"dtype": None}, "its type is"),
        ({"order": "K"}, "neither C nor F"),
    ],
)
def test_an_entry_that_claims_what_is_not_there_is_refused(change, match, fitted, forge):
    data = to_bytes(fitted["linear"], full="absent")
    wrong = forge.with_fact(data, lambda manifest: manifest["entries"][0].update(change))
    with pytest.raises(InvalidInputError, match=match):
        list(unpack(wrong).arrays)
    refused(forge.with_fact(data, lambda manifest: manifest["entries"].insert(0, 7)), "not described")


def test_truth_values_and_text_are_what_they_claim(forge):
    for array, raw in ((np.array([True]), b"\x02"), (np.array(["a"]), b"\xff\xff\xff\xff")):
        manifest, _ = forge.taken_apart(pack(Contents({}, [array])))
        with pytest.raises(InvalidInputError, match="neither 0 nor 1|no text"):
            list(unpack(forge.sealed(manifest, [raw])).arrays)
