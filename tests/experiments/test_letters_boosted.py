import json

from sklearn.ensemble import RandomForestClassifier

from thrifty.experiments import letters_boosted


def test_a_thinned_run_on_real_letters_gives_picture_table_and_numbers(data_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(letters_boosted, "TREES", 10)
    monkeypatch.setattr(letters_boosted, "ROUNDS", 1)
    monkeypatch.setattr(letters_boosted, "RATES", (0.3,))
    monkeypatch.setattr(letters_boosted, "CAPS", (0.3,))
    monkeypatch.setattr(letters_boosted, "GAMMAS", letters_boosted.GAMMAS[[3, 6]])
    small = RandomForestClassifier(10, random_state=0)
    monkeypatch.setattr(letters_boosted, "full_models", lambda: {"RBF-SVM": small, "forest": small})
    outcome = letters_boosted.run(tmp_path, data=str(data_folder), n_jobs=1)
    numbers = json.loads((tmp_path / "letters_boosted.json").read_text())
    chosen = numbers["forest"]["chosen"]
    assert {"DynaMod-Gbrt", "GreedyMiser", "LightGBM-CEGB + confidence"} <= chosen.keys()
    # Nothing stands behind GreedyMiser: its rows pay for its features and no more.
    assert all(point["share"] == 0.0 for point in chosen["GreedyMiser"])
    assert any("letters --family linear" in note for note in outcome.notes)
    assert {path.suffix for path in outcome.files} == {".png", ".md", ".json"}
