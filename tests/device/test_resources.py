"""Exports of systems whose purchases cost several resources."""

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from tests.device.targets import WARNINGS, needs, run
from thrifty import BudgetedClassifier, Prices, StageOptions, export
from thrifty.errors import InvalidInputError

PROGRAM = """
#include <stdio.h>
#include "thrifty_model.h"
int main(void)
{
    float row[THRIFTY_N_COLUMNS];
    uint64_t key = 0;
    while (fread(row, sizeof row, 1, stdin) == 1) {
        thrifty_session session;
        double costs[2];
        thrifty_walk(&session, key++, row);
        costs[0] = (double)thrifty_cost_in(&session, THRIFTY_RESOURCE_DOLLARS);
        costs[1] = (double)thrifty_cost_in(&session, THRIFTY_RESOURCE_MICRO_SECONDS);
        fwrite(costs, sizeof costs, 1, stdout);
    }
    return 0;
}
"""


def fitted(table, structure, delays=()):
    X, y = table
    prices = [{"dollars": 1 + column % 3, "micro-seconds": 1 + column % 4} for column in range(6)]
    stages = StageOptions(4, [(8, 3)], structure=structure)
    clf = BudgetedClassifier(
        GaussianNB(), prices=Prices(prices, delays=delays), stages=stages, cv=2, random_state=0
    )
    return clf.fit(X[:, :6].astype(np.float32), y)


@pytest.mark.parametrize("structure", ["line", "tree"])
def test_a_device_and_a_graph_bill_rows_in_each_resource(cancer, structure, tmp_path):
    clf, X = fitted(cancer, structure), cancer[0][:80, :6].astype(np.float32)
    quick = clf.at(budget={"dollars": 0.5 * clf.expected_cost_["dollars"]}, cap={"dollars": 9.0})
    expected = quick.cost(X, row_key=np.arange(len(X))).to_numpy()
    assert expected[:, 0].max() <= 9.0
    assert len(np.unique(expected, axis=0)) > 1
    needs("gcc")
    source = tmp_path / "c"
    export(quick, source)
    (tmp_path / "main.c").write_text(PROGRAM)
    run(
        "gcc",
        *WARNINGS,
        f"-I{source}",
        source / "thrifty_model.c",
        tmp_path / "main.c",
        "-o",
        tmp_path / "run",
    )
    found = run(tmp_path / "run", input=X.tobytes(), capture_output=True).stdout
    np.testing.assert_allclose(np.frombuffer(found).reshape(-1, 2), expected, rtol=1e-6)
    runtime = pytest.importorskip("onnxruntime")
    export(quick, tmp_path / "onnx", to="onnx")
    session = runtime.InferenceSession(str(tmp_path / "onnx" / "thrifty_model.onnx"))
    given = {"x": X.astype(np.float64), "key": np.arange(len(X)), "point": np.array(0)}
    np.testing.assert_allclose(session.run(["costs"], given)[0], expected)


def test_what_a_device_cannot_do_with_several_resources_is_refused(cancer, tmp_path):
    clf = fitted(cancer, "line")
    budget = {name: 0.5 * amount for name, amount in clf.expected_cost_.items()}
    both = clf.at(budget=budget)
    if both.chain_.policy.more is not None:
        with pytest.raises(InvalidInputError, match="mixes at most two operating points"):
            export(both, tmp_path / "c")
    export(clf.at(budget=budget, mix=False), tmp_path / "plain")
    with pytest.raises(InvalidInputError, match="delays .* cannot be exported"):
        export(fitted(cancer, "line", delays=["dollars"]), tmp_path / "late")
