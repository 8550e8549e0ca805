import json

from thrifty.experiments import letters


def test_a_thinned_run_on_real_letters_gives_picture_table_and_numbers(data_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(letters, "CAPS", letters.CAPS[[2, 6]])
    monkeypatch.setattr(letters, "STRENGTHS", letters.STRENGTHS[[4, 8]])
    monkeypatch.setattr(letters, "SEND_WEIGHTS", letters.SEND_WEIGHTS[[9]])
    monkeypatch.setattr(letters, "GAMMAS", letters.GAMMAS[[10, 13]])
    models = letters.full_models()
    models["forest"].set_params(n_estimators=10)
    # Both f0 are fitted for real; the forest is a small one, and stands in for the slower SVM too.
    monkeypatch.setattr(
        letters, "full_models", lambda: {"RBF-SVM": models["forest"], "forest": models["forest"]}
    )
    seen = []
    outcome = letters.run(tmp_path, data=str(data_folder), n_jobs=1, progress=lambda *args: seen.append(args))
    assert {path.suffix for path in outcome.files} == {".png", ".md", ".json"}
    numbers = json.loads((tmp_path / "letters_linear.json").read_text())
    assert 0.85 < numbers["forest"]["f0_accuracy"] < 0.98
    for points in numbers["forest"]["chosen"].values():
        assert all(point["val_cost"] <= point["budget"] + 1e-9 for point in points)
    assert len(outcome.rows) == 2 * len(letters.BUDGETS)
    assert seen[-1][1] == seen[-1][2]
