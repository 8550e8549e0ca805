"""Networks of torch as models of cascades and routers."""

import importlib.util
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.naive_bayes import GaussianNB

from thrifty import CascadeClassifier, ModelRouter
from thrifty.engine.full.torch_model import TorchClassifier, TorchExits, TorchRegressor
from thrifty.errors import InvalidInputError

HALVES = Path(__file__).resolve().parents[2] / "examples" / "networks"
HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed; make test-torch has it")


@pytest.mark.skipif(HAS_TORCH, reason="torch is installed")
def test_without_torch_the_error_names_the_extra():
    with pytest.raises(InvalidInputError, match=r"pip install 'thrifty\[torch\]'"):
        TorchClassifier(lambda x: x).predict([[1.0, 2.0]])


@pytest.fixture(scope="module")
def digits():
    """Rows for training, for planning, and new ones, between 0 and 1."""
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    return (X[:700], y[:700]), (X[700:1250], y[700:1250]), (X[1250:], y[1250:])


@pytest.fixture(scope="module")
def network(digits):
    """Parts and heads of a convolutional network with two exits, trained on the first rows."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    first = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU())
    second = nn.Sequential(nn.Conv2d(4, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU())
    heads = [nn.Sequential(nn.Flatten(), nn.Linear(width, 10)) for width in (64, 512)]
    modules = nn.ModuleList([first, second, *heads])
    X, y = (torch.tensor(one) for one in digits[0])
    images = X.float().reshape(-1, 1, 8, 8)
    optimizer = torch.optim.Adam(modules.parameters(), lr=0.01)
    for _ in range(60):
        shared = first(images)
        loss = sum(
            nn.functional.cross_entropy(logits, y) for logits in (heads[0](shared), heads[1](second(shared)))
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    modules.eval()  # TorchClassifier does so for modules, not for functions that call them
    return first, second, *heads


@pytest.fixture(scope="module")
def exits(network):
    first, second, *heads = network
    return TorchExits(
        {"early": (first, heads[0]), "late": (second, heads[1])}, 10, shape=(1, 8, 8), batch_size=100
    )


@needs_torch
def test_probabilities_are_the_softmax_of_the_logits_whatever_the_batches(network, digits):
    import torch

    X, _ = digits[2]
    first, _, head, _ = network
    module = torch.nn.Sequential(first, head).train()
    with torch.inference_mode():
        logits = module(torch.tensor(X).float().reshape(-1, 1, 8, 8)).double().numpy()
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for batch_size in (1000, 7):
        model = TorchClassifier(module, 10, shape=(1, 8, 8), batch_size=batch_size)
        assert model.predict_proba(X) == pytest.approx(expected, abs=1e-5)
    assert model.predict_proba(X[:0]).shape == (0, 10)
    assert not module.training


@needs_torch
def test_a_cascade_asks_a_network_about_the_rows_that_reach_it(network, digits):
    train, plan, new = digits
    first, second, _, head = network
    asked = []

    def counted(images):
        asked.append(len(images))
        return head(second(first(images)))

    large = TorchClassifier(counted, 10, device="cpu", shape=(1, 8, 8), batch_size=64)
    estimators = [("bayes", GaussianNB(var_smoothing=0.05).fit(*train)), ("network", large)]
    cascade = CascadeClassifier(
        estimators, model_prices={"bayes": 1.0, "network": 20.0}, budget=10.0, cv="prefit", random_state=0
    ).fit(*plan)
    asked.clear()
    paid = cascade.cost(new[0])
    assert 0 < sum(asked) == (paid >= 20.0).sum() < len(new[0])
    assert max(asked) <= 64
    assert estimators[0][1].score(*new) < cascade.score(*new)
    assert np.array_equal(FrozenEstimator(large).fit(*train).predict(new[0]), large.predict(new[0]))


@needs_torch
def test_exits_of_one_network_compute_each_part_once(network, digits):
    first, second, *heads = network
    seen = {"early": 0, "late": 0}

    def counted(name, part):
        def call(x):
            seen[name] += len(x)
            return part(x)

        return call

    X, _ = digits[2]
    parts = {"early": (counted("early", first), heads[0]), "late": (counted("late", second), heads[1])}
    ask = TorchExits(parts, 10, device="cpu", shape=(1, 8, 8), batch_size=50).asker(X)
    whole = TorchClassifier(
        lambda x: heads[1](second(first(x))), 10, device="cpu", shape=(1, 8, 8)
    ).predict_proba(X)
    some, others = np.arange(0, len(X), 3), np.arange(1, len(X), 3)
    ask("early", some)
    mixed = np.r_[some, others][::-1]
    assert ask("late", mixed) == pytest.approx(whole[mixed], abs=1e-5)
    assert seen == {"early": len(mixed), "late": len(mixed)}
    again = ask("early", some)
    assert again == pytest.approx(ask("early", some), abs=1e-5)


@needs_torch
def test_a_router_plans_and_runs_exits_with_prices_after_each_other(exits, digits):
    (X, y), (new, labels) = digits[1], digits[2]

    def log(rows):
        ask = exits.asker(rows)
        return np.stack([ask(name, np.arange(len(rows))) for name in exits.exits], axis=1)

    prices = {"early": 1.0, "late": 4.0}
    assert exits.after(prices) == {"late": {"early": 3.0}}
    evidence = log(X)
    router = ModelRouter(prices, after=exits.after(prices), budget=2.0)
    router.fit(None, evidence.argmax(axis=2) == y[:, None], evidence=evidence)
    answers = log(new)
    replay = router.replay(None, answers.argmax(axis=2) == labels[:, None], evidence=answers)
    assert set(np.unique(replay.cost)) == {1.0, 4.0}  # never 5: the first part is paid once
    run = router.run(exits.asker(new), np.arange(len(new)))
    assert run.cost.mean() == pytest.approx(replay.cost.mean(), abs=0.15)
    assert replay.quality.mean() > (answers[:, 0].argmax(axis=1) == labels).mean()


@needs_torch
def test_seconds_of_a_row_fall_with_the_size_of_the_batch(exits, network, digits):
    X, _ = digits[2]
    first, _, head, _ = network
    seconds = TorchClassifier(lambda x: head(first(x)), 10, device="cpu", shape=(1, 8, 8)).seconds_at(X)
    assert list(seconds) == [1, 32, 256]
    assert seconds[1] > 2 * seconds[256] > 0.0
    at_32 = exits.seconds_at(X, [32])[32]
    assert list(at_32) == ["early", "late"]
    assert min(at_32.values()) > 0.0


@needs_torch
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X: TorchClassifier(lambda x: x, 10).fit(X), "trained already"),
        (
            lambda X: TorchClassifier(lambda x: x, 10, device="cpu").predict(X),
            r"logits of 10 classes.*got \(30, 64\)",
        ),
        (lambda X: TorchRegressor(lambda x: x, device="cpu").predict(X), "one number for each row"),
        (
            lambda X: TorchClassifier(lambda x: x, 64, batch_size=0).predict(X),
            "batch_size must be at least 1",
        ),
    ],
)
def test_what_a_network_cannot_do_is_named(digits, call, message):
    with pytest.raises(InvalidInputError, match=message):
        call(digits[2][0][:30])


@needs_torch
def test_a_regressor_returns_the_numbers_of_its_network(digits):
    X, _ = digits[2]
    assert TorchRegressor(lambda x: x[:, 3:4], device="cpu").predict(X) == pytest.approx(X[:, 3], abs=1e-5)


# -- examples/networks -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plan():
    spec = importlib.util.spec_from_file_location("plan", HALVES / "plan.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_thresholds_of_the_example_are_the_best_of_all_and_do_what_they_say(plan):
    rng = np.random.default_rng(0)
    sure, right = rng.random((150, 3)), rng.random((150, 3)) < [0.4, 0.6, 0.9]
    costs = 1.0, 3.0, 8.0
    rivals = plan.Thresholds((0, 1, 2), sure, right, costs)
    quality, (first, second) = rivals.best(4.0)
    assert rivals.accuracy((first, second), sure, right) == pytest.approx(quality)

    def cost(first, second):
        on = sure[:, 0] < first
        return costs[0] + costs[1] * on.mean() + costs[2] * (on & (sure[:, 1] < second)).mean()

    assert cost(first, second) <= 4.0
    every = itertools.product(*rivals.edges)
    best = max(rivals.accuracy(pair, sure, right) for pair in every if cost(*pair) <= 4.0)
    assert quality == pytest.approx(best)


def test_an_exit_costs_what_lies_between_it_and_an_earlier_one(plan):
    seconds = {"tiny": 1.0, "wide/0": 2.0, "wide/1": 5.0, "deep/0": 4.0}
    assert plan.prices_after(seconds) == {"wide/1": {"wide/0": 3.0}}


@needs_torch
def test_what_one_half_of_the_example_trains_the_other_plans(plan, tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=160)
    X = np.clip(rng.integers(0, 60, (160, 32, 32, 3)) + 20 * y[:, None, None, None], 0, 255).astype(np.uint8)
    np.savez(tmp_path / "images.npz", X=X, y=y)
    command = [
        sys.executable,
        HALVES / "train.py",
        "--data",
        "images.npz",
        "--out",
        "out.npz",
        "--device",
        "cpu",
    ]
    command += ["--epochs", "1", "--networks", "tiny", "exits"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    with np.load(tmp_path / "out.npz") as file:
        assert file["logp"].shape == (160, 4, 10)
        assert np.exp(file["logp"].astype(float)).sum(axis=2) == pytest.approx(1.0, abs=0.01)
        assert (file["seconds"] > 0.0).all()
        assert file["names"].tolist() == ["tiny", "exits/0", "exits/1", "exits/2"]
        assert np.bincount(file["fold"] + 1).tolist() == [40, 40, 40, 40]
    monkeypatch.setattr("sys.argv", ["plan.py", str(tmp_path / "out.npz")])
    plan.main()
    assert "| router |" in capsys.readouterr().out
