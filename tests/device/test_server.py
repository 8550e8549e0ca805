"""The server half: rows that a device cannot answer, through the gateway, are answered as in a batch."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import thrifty
from tests.device.conftest import SMALL
from tests.device.targets import needs, run
from thrifty import BudgetedClassifier, Policy, StageOptions
from thrifty.serve.app import create_app

TestClient = pytest.importorskip("starlette.testclient").TestClient
pytestmark = pytest.mark.slow

# Each row that ends with ASK_SERVER: identity, key, cost so far, and what it holds, in 17 digits.
DEVICE = r"""
#include <stdio.h>
#include <stdlib.h>
#include "thrifty_model.h"
int main(int n_arguments, char **arguments)
{
    const int point = n_arguments > 1 ? atoi(arguments[1]) : 0;
    float row[THRIFTY_N_COLUMNS];
    unsigned key;
    for (key = 0; fread(row, sizeof row, 1, stdin); key++) {
        thrifty_session session;
        int column, held[THRIFTY_N_COLUMNS], n_held = 0, k;
        thrifty_start_at(&session, key, point);
        while ((column = thrifty_next(&session)) >= 0) {
            thrifty_give(&session, row[column]);
            held[n_held++] = column;
        }
        if (column != THRIFTY_ASK_SERVER)
            continue;
        printf("{\"model\": \"%s\", \"key\": %u, \"cost\": %.9g, \"held\": {", THRIFTY_MODEL_ID, key,
               (double)thrifty_cost(&session));
        for (k = 0; k < n_held; k++)
            printf("%s\"x%d\": %.17g", k ? ", " : "", held[k], (double)row[held[k]]);
        printf("}}\n");
    }
    return 0;
}
"""


def asked_rows(exported, folder, X, point=0):
    """Rows that a device sends to the server."""
    needs("gcc")
    (folder / "device.c").write_text(DEVICE)
    sources = [exported.files[1], folder / "device.c"]
    run("gcc", "-std=c99", f"-I{exported.files[1].parent}", *sources, "-o", folder / "device")
    given = X.astype(np.float32).tobytes()
    printed = run(folder / "device", point, input=given, capture_output=True).stdout.decode()
    return [json.loads(line) for line in printed.splitlines()]


def post(client, row, cells):
    body = {"rows": [cells], "id": str(row["key"])}
    return client.post("/predict", json=body, headers={"Thrifty-Model": row["model"]})


@pytest.fixture(scope="module")
def weak(cancer):
    """A cascade that is too small to do without the full model, which is blended with its last stage."""
    full = LogisticRegression(solver="newton-cholesky")
    return BudgetedClassifier(full, budget=12, stages=StageOptions(2, [(3, 2)]), **SMALL).fit(*cancer)


@pytest.fixture(scope="module")
def serving(weak):
    """A client of the gateway."""
    with TestClient(create_app(weak)) as client:
        yield client


@pytest.mark.parametrize("leaves", ["float32", "int16"])
def test_rows_that_a_device_sends_on_are_answered_and_billed_as_in_a_batch(
    weak, cancer, serving, tmp_path, leaves
):
    X = cancer[0][::4].astype(np.float32).astype(np.float64)
    # The device has switched to an operating point that the gateway is not at.
    exported, batch = thrifty.export(weak, tmp_path / "c", leaves=leaves, budgets=[9.0]), weak.at(budget=9.0)
    chain, n_stages = batch.chain_, len(batch.chain_.stages)
    assert chain.policy.is_mixed
    assert chain.blend is not None
    route, outputs, cost = chain.walk(chain.reader(X)).route, batch.predict_proba(X), batch.cost(X)
    asked = asked_rows(exported, tmp_path, X, point=1)
    sent = [row["key"] for row in asked]
    assert 5 < len(sent) < len(X)
    if leaves == "float32":
        assert sent == np.flatnonzero(route == n_stages).tolist()
    for row in asked:
        assert len(row["held"]) == row["cost"] == len(chain.walker.held_at(n_stages - 1))
        # The full model reads more than the row holds: the device measures the rest, too.
        rest = {f"x{column}": value for column, value in enumerate(X[row["key"]])}
        (answer,) = post(serving, row, rest | row["held"]).json()["answers"]
        assert (answer["route"], answer["degraded"]) == (n_stages, False)
        if route[row["key"]] == n_stages:  # rounded leaves may send a few rows more
            expected = outputs[row["key"]]
            assert answer["answer"] == weak.classes_[expected.argmax()]
            assert answer["probability"] == pytest.approx(expected.max(), rel=1e-12)
            assert answer["cost"] == cost[row["key"]]


def test_a_device_of_another_version_is_refused_with_both_identities(weak, cancer, serving, tmp_path):
    older = replace(weak.chain_.at(Policy.of(np.full(2, -np.inf))), base=weak.chain_.base + 1.0)
    other = thrifty.export(older, tmp_path / "c")
    row, *_ = asked_rows(other, tmp_path, cancer[0][:1])
    refused = post(serving, row, row["held"])
    said = refused.json()["error"]
    served = thrifty.export(weak.at(budget=9.0), tmp_path / "d").identity
    assert refused.status_code == 409
    assert row["model"] == other.identity != served
    assert repr(other.identity) in said
    assert f"{served!r} is served" in said
