"""One file, the same rows and keys: the same routes, purchases, costs and scores, whatever kernels a process uses."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from thrifty import (
    BudgetedClassifier,
    BudgetedRegressor,
    DynaModLinClassifier,
    StageOptions,
    hold_budget,
    save,
)

SCRIPT = Path(__file__).parents[1] / ".ci" / "kernels.py"
COSTS = {"radius": 1.0, "texture": 2.0, "area": 2.0, "shape": 3.0, "points": 1.5}

ASK = """
import hashlib, json, sys
from pathlib import Path
import numpy as np, pandas as pd
from thrifty import load
from thrifty.engine.purchases.sources import DictSource

def digest(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in arrays)).hexdigest()

table, said = pd.read_csv(sys.argv[1], index_col="key"), {}
for path in sorted(Path(sys.argv[1]).parent.glob("*.thrifty")):
    one = load(path)
    seen = one.chain_.visit_all(one.chain_.reader(table))
    receipt = one.buy(DictSource({name: table[name].to_numpy() for name in table}), row_key=table.index)
    parts = [one.route(table.iloc[rows]) for rows in np.array_split(np.arange(len(table)), 7)]
    alone = [one.route(table.iloc[[row]])[0] for row in range(40)]
    said[path.stem] = {
        "route": digest(one.route(table)),
        "partitions": digest(np.concatenate(parts)),
        "alone": digest(np.array(alone)),
        "cost": digest(one.cost(table)),
        "purchases": digest(receipt.route, receipt.cost, receipt.bought),
        "scores": digest(seen.gate, seen.scores),
    }
print(json.dumps(said))
"""


def kernels():
    spec = importlib.util.spec_from_file_location("kernels", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernels()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of systems at mixed points, and a table."""
    folder = tmp_path_factory.mktemp("files")
    X, y = load_breast_cancer(return_X_y=True)
    table = pd.DataFrame(np.round(X[:, [0, 1, 3, 6, 7]], 3), columns=list(COSTS)).rename_axis("key")
    train, new = table[:260], table[260:]
    small = {"feature_costs": COSTS, "random_state": 0}
    cascade = BudgetedClassifier(
        LinearDiscriminantAnalysis(), stages=StageOptions(sizes=[(6, 2)]), cv=2, budget=2.5, **small
    ).fit(train, y[:260])
    linear = DynaModLinClassifier(LinearDiscriminantAnalysis(), gamma=0.1, **small).fit(train, y[:260])
    number = BudgetedRegressor(stages=StageOptions(sizes=[(6, 2)]), cv=2, budget=2.3, **small).fit(
        train, X[:260, 23]
    )
    systems = {"cascade": cascade, "linear": hold_budget(linear, new.round(0), 4.0), "number": number}
    for name, one in systems.items():
        assert one.chain_.policy.is_mixed, name
        save(one, folder / f"{name}.thrifty")
    new.to_csv(folder / "new.csv")
    return folder


def asked(folder, variables):
    environment = {**os.environ, **variables}
    command = [sys.executable, "-W", "ignore", "-c", ASK, str(folder / "new.csv")]
    found = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    return json.loads(found.stdout)


@pytest.fixture
def native(folder, monkeypatch, capsys):
    """What this process says, with the kernels of this processor."""
    monkeypatch.setattr(sys, "argv", ["", str(folder / "new.csv")])
    exec(ASK, {})
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_a_file_gives_the_same_routes_purchases_costs_and_scores_under_other_kernels(folder, native):
    blas, *others = (name for name in kernels() if name != "last-bits")
    others = {
        key: value for name in others if name.startswith("num") for key, value in kernels()[name].items()
    }
    assert len(native) == 3
    assert asked(folder, kernels()[blas] | others) == native  # another BLAS, numba and numpy at once
