"""No file takes more memory than its length accounts for: eight times the file and 64 MiB."""

import copy
import io
import json
import tracemalloc
import zipfile

import numpy as np
import pytest
import skops.io
from sklearn.linear_model import LogisticRegression

from thrifty import Chain, Policy
from thrifty.bundle import from_bytes, to_bytes
from thrifty.bundle.archives import dump_model, load_model
from thrifty.bundle.container import parsed_size
from thrifty.chain.stage import LinearStage
from thrifty.errors import InvalidInputError
from thrifty.full.model import AbsentFull, EstimatorFull
from thrifty.prices.billing import PriceList
from thrifty.tasks.classes import BinaryTask

TASK = BinaryTask(np.arange(2))
ROOM = 64 << 20


def chain_of(full, n_columns=12, held=1):
    stage = LinearStage(np.arange(held), np.ones((held, 2)), np.zeros(2))
    prices = PriceList(np.ones(n_columns), np.arange(n_columns))
    return Chain((stage,), full, prices, TASK, Policy.of(np.zeros(1)))


def listed(item, length):
    return "[" + ",".join([item] * (length // (len(item) + 1))) + "]"


@pytest.fixture(scope="module")
def model(rows):
    return LogisticRegression().fit(*rows)


class Padded:
    """Files that are small and would be large in memory."""

    def __init__(self, model, forge):
        self.forge = forge
        self.data = to_bytes(chain_of(EstimatorFull(model, TASK)))
        with zipfile.ZipFile(io.BytesIO(skops.io.dumps(model))) as archive:
            self.members = {name: archive.read(name) for name in archive.namelist()}

    def with_members(self, **changed):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in {**self.members, **changed}.items():
                archive.writestr(name.replace("__", "."), content)
        found = np.frombuffer(stream.getvalue(), np.uint8)
        return self.forge.with_array(self.data, lambda facts: facts["chain"]["full"]["skops"], found)

    def description(self):
        """Empty lists in the description of the full model."""
        schema = {**json.loads(self.members["schema.json"]), "padding": "@"}
        text = json.dumps(schema).replace('"@"', listed("[]", 9_000_000))
        return self.with_members(**{"schema.json": text})

    def described_often(self):
        """One array that the description names a thousand times."""
        stream = io.BytesIO()
        np.save(stream, np.random.default_rng(0).random(20_000))
        node = {"__class__": "ndarray", "__module__": "numpy", "__loader__": "NdArrayNode", "type": "numpy"}
        many = [{**node, "file": "9.npy", "__id__": number} for number in range(1, 1001)]
        schema = json.loads(self.members["schema.json"])
        kind = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode"}
        schema["content"]["content"]["extra_"] = {**kind, "__id__": 7, "content": many}
        return self.with_members(**{"schema.json": json.dumps(schema), "9.npy": stream.getvalue()})

    def zeros(self):
        """An array of zeros, which is small where it is compressed."""
        stream = io.BytesIO()
        np.save(stream, np.zeros(9_000_000))
        return self.with_members(**{"9.npy": stream.getvalue()})

    def manifest(self):
        """Empty lists in our own manifest."""
        manifest, blobs = self.forge.taken_apart(self.data)
        manifest["padding"] = "@"
        text = json.dumps(manifest).replace('"@"', listed("{}", 4_000_000))
        return self.forge.sealed_text(text.encode(), b"".join(blobs))

    def columns_often(self):
        """One array of columns that every stage refers to."""
        manifest, blobs = self.forge.taken_apart(to_bytes(chain_of(AbsentFull(), 20_000, 20_000)))
        chain = manifest["chain"]
        chain["stages"] = [copy.deepcopy(chain["stages"][0]) for _ in range(900)]
        return self.forge.sealed(manifest, blobs)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["description", "described_often", "zeros", "manifest", "columns_often"])
def test_a_small_file_that_would_be_large_in_memory_is_refused_before_it_is(how, model, forge):
    data = getattr(Padded(model, forge), how)()
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError, match=r"memory|more than|bytes"):
            from_bytes(data)
        peak = len(data) + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 8 * len(data) + ROOM


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


def test_a_model_that_compresses_too_well_is_stored_as_it_is_and_loads(model):
    wide = copy.deepcopy(model)
    wide.coef_ = np.zeros((1, 2_000_000))
    data = dump_model(wide)
    assert len(data) > wide.coef_.nbytes
    np.testing.assert_array_equal(load_model(data.tobytes(), max_bytes=1 << 30).coef_, wide.coef_)
