import json

from thrifty.experiments import synthetic


def test_the_experiment_ends_at_the_optimum_and_draws_both_panels(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "N_STARTS", 4)
    monkeypatch.setattr(synthetic, "N_REPEATS", 1)
    monkeypatch.setattr(synthetic, "N_INIT", 20)
    seen = []
    outcome = synthetic.run(tmp_path, progress=lambda *args: seen.append(args))
    numbers = json.loads((tmp_path / "synthetic.json").read_text())
    assert abs(numbers["dynamod_cost"] - 110 / 70) < 1e-9
    assert abs(numbers["greedy_cost"] - 120 / 70) < 1e-9
    assert numbers["dynamod_accuracy"] == numbers["greedy_accuracy"] == 1.0
    assert numbers["dynamod_features"] == [2]
    assert numbers["fits_with_restarts_at_optimum"] == 1
    assert (tmp_path / "synthetic.png").stat().st_size > 10_000
    assert ("restarts", 1, 1) in seen
    assert len(outcome.rows) == 3
