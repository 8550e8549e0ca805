"""Folders of files are scored part by part exactly as one table in memory, also by processes that are killed."""

import importlib
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import Ridge

from thrifty import BudgetedClassifier, BudgetedRanker, ModelRouter, StageOptions, load, save
from thrifty.cli import main
from thrifty.errors import InvalidInputError
from thrifty.scale import Scorer
from thrifty.scale import folder as folder_module
from thrifty.scale import scorer as scorer_module
from thrifty.scale.folder import MANIFEST, find_files, predict_files
from thrifty.scale.scorer import CachedFull, stage_names

COLOURS = ("red", "green", "blue")


def rows_of(n, seed):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    table["colour"] = rng.choice(COLOURS, n)
    table["count"] = rng.integers(0, 9, n)
    table.loc[rng.random(n) < 0.05, "b"] = np.nan
    return table


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a system at a mixed point, and the rows of one table with answers in memory."""
    place = tmp_path_factory.mktemp("scale")
    X = rows_of(400, 0)
    y = np.where(X["a"] + (X["colour"] == "red") * X["c"] + 0.1 * X["count"] > 0.4, "yes", "no")
    system = BudgetedClassifier(
        feature_costs=dict.fromkeys(X, 1.0), stages=StageOptions(max_stages=3, sizes=[(8, 2)]), random_state=0
    ).fit(X, y)
    frontier = system.frontier_
    save(system, place / "s.thrifty")
    system = load(place / "s.thrifty").at(budget=float(frontier.cost[:2].mean()))
    assert system.chain_.policy.is_mixed
    save(system, place / "mixed.thrifty")
    table = rows_of(3_000, 1).assign(id=[f"k{7 * n % 3_000:04d}" for n in range(3_000)])
    answers = {
        "answer": system.predict(table, row_key="id"),
        "probability": system.predict_proba(table, row_key="id").max(axis=1),
        "stage": np.array(stage_names(system.chain_))[system.route(table, row_key="id")],
        "cost": system.cost(table, row_key="id"),
    }
    return place, table, table[["id"]].assign(**answers)


def written(table, folder, n_files, kind="parquet", seed=0):
    """The rows of a table in files, in any order of partitions."""
    folder.mkdir()
    parts = np.array_split(np.random.default_rng(seed).permutation(len(table)), n_files)
    for number, rows in enumerate(parts):
        part, path = table.iloc[rows], folder / f"rows{number}.{kind}"
        if kind == "parquet":
            part.to_parquet(path, row_group_size=200)
        elif kind == "arrow":
            part.reset_index(drop=True).to_feather(path, compression="uncompressed")
        else:
            part.to_csv(path, index=False)
    return folder


def assert_equal(out, expected):
    found = pd.read_parquet(out).sort_values("id").reset_index(drop=True)
    wanted = expected.sort_values("id").reset_index(drop=True)
    assert found["id"].tolist() == wanted["id"].tolist()  # every key exactly once
    for name in ("answer", "probability", "stage", "cost"):
        assert found[name].tolist() == wanted[name].tolist(), name


@pytest.mark.parametrize(
    ("n_files", "kind"), [(1, "parquet"), (7, "parquet"), (64, "parquet"), (3, "csv"), (2, "arrow")]
)
def test_any_partition_answers_byte_for_byte_as_one_table(place, tmp_path, monkeypatch, n_files, kind):
    monkeypatch.setattr(folder_module, "PART_ROWS", 500)
    folder, table, expected = place
    rows = written(table, tmp_path / "rows", n_files, kind, seed=n_files)
    totals = predict_files(Scorer(folder / "mixed.thrifty", row_key="id"), find_files(rows), tmp_path / "out")
    assert totals["rows"] == len(table)
    assert totals["mean_cost"] == pytest.approx(expected["cost"].mean(), rel=1e-12)
    assert_equal(tmp_path / "out", expected)


def test_rows_with_the_key_of_another_are_counted_over_all_files_also_on_resume(place, tmp_path, capsys):
    folder, table, _ = place
    # One key is twice in a file, and another in two files.
    repeated = pd.concat([table.head(100), table.iloc[[5, 70]]], ignore_index=True)
    (tmp_path / "rows").mkdir()
    repeated.iloc[:60].to_parquet(tmp_path / "rows" / "a.parquet")
    repeated.iloc[60:].to_parquet(tmp_path / "rows" / "b.parquet")
    command = ["predict", str(folder / "mixed.thrifty"), str(tmp_path / "rows"), "--row-key", "id"]
    command += ["-o", str(tmp_path / "out"), "--json"]
    for more in ([], ["--resume"]):
        assert main([*command, *more]) == 0
        said = capsys.readouterr()
        assert "a key of its own for each row; 2 rows have the key of another row" in " ".join(
            said.err.split()
        )
        assert json.loads(said.out)["repeated_keys"] == 2
        next((tmp_path / "out").glob("b-*.parquet")).unlink()


def test_a_scorer_is_small_reads_only_what_routes_need_and_loads_once_per_process(place, monkeypatch):
    folder, table, _ = place
    scorer = Scorer(folder / "mixed.thrifty", row_key="id")
    assert len(pickle.dumps(scorer)) < 1_000
    loads = []
    monkeypatch.setattr(scorer_module, "_systems", {})
    monkeypatch.setattr(
        scorer_module, "from_bytes", lambda *given, **more: (loads.append(1), real(*given, **more))[1]
    )
    batch = pa.RecordBatch.from_pandas(table[[*scorer.columns]].head(50), preserve_index=False)
    whole = scorer(batch)
    for copy in (pickle.loads(pickle.dumps(scorer)) for _ in range(3)):
        assert copy(batch).equals(whole)
        assert copy(batch.slice(0, 0)).schema == whole.schema == copy.schema(batch.schema)
    assert len(loads) == 1


real = scorer_module.from_bytes


def test_categories_and_integers_with_nulls_of_a_partition_are_read_by_value(place):
    folder, table, _ = place
    scorer = Scorer(folder / "mixed.thrifty", row_key="id")
    plain = table.head(60)
    other = pa.Table.from_pandas(plain, preserve_index=False)
    other = other.set_column(
        other.schema.get_field_index("colour"), "colour", other["colour"].dictionary_encode()
    )
    other = other.set_column(other.schema.get_field_index("count"), "count", other["count"].cast(pa.int8()))
    wanted = scorer(pa.RecordBatch.from_pandas(plain, preserve_index=False))
    assert scorer(other.combine_chunks().to_batches()[0]).equals(wanted)
    # Whole numbers with gaps are floats in pandas, and whole numbers in Arrow.
    gaps = plain.assign(count=plain["count"].where(plain["count"] > 1))
    whole = gaps.assign(count=gaps["count"].astype("Int64"))
    batches = [pa.RecordBatch.from_pandas(one, preserve_index=False) for one in (gaps, whole)]
    assert [str(batch.schema.field("count").type) for batch in batches] == ["double", "int64"]
    assert scorer(batches[0]).equals(scorer(batches[1]))


def test_a_changed_file_a_table_without_keys_and_differing_columns_are_refused_before_work(place, tmp_path):
    folder, table, _ = place
    path = tmp_path / "s.thrifty"
    path.write_bytes((folder / "mixed.thrifty").read_bytes())
    scorer = pickle.loads(pickle.dumps(Scorer(path, at={"budget": 2.0})))
    path.write_bytes((folder / "s.thrifty").read_bytes())
    with pytest.raises(InvalidInputError, match="has changed since the scorer was made"):
        scorer(pa.RecordBatch.from_pandas(table))
    rows = written(table, tmp_path / "rows", 2)
    with pytest.raises(InvalidInputError, match="lacks column 'key'"):
        predict_files(Scorer(path, row_key="key"), find_files(rows), tmp_path / "out")
    table.assign(a=table["a"].astype(str)).to_parquet(rows / "other.parquet")
    with pytest.raises(
        InvalidInputError, match=r"'a' differ\. .*other\.parquet: .*a .*string.*rows0\.parquet: .*a double"
    ):
        predict_files(Scorer(path), find_files(rows), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_file_fails_in_words_and_the_others_are_written(place, tmp_path, capsys):
    folder, table, expected = place
    rows = written(table, tmp_path / "rows", 3)
    good = (rows / "rows1.parquet").read_bytes()
    (rows / "rows1.parquet").write_bytes(good[:-40] + b"x" * 40)
    command = [
        "predict",
        str(folder / "mixed.thrifty"),
        f"{rows}/*.parquet",
        "-o",
        str(tmp_path / "out"),
        "--row-key",
        "id",
    ]
    assert main(command) != 0
    assert "1 of 3 files could not be scored" in capsys.readouterr().err
    assert not (tmp_path / "out" / MANIFEST).exists()
    (rows / "rows1.parquet").write_bytes(good)
    assert main([*command, "--resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scored_parts"] == 1
    assert_equal(tmp_path / "out", expected)
    os.utime(rows / "rows0.parquet", ns=(0, 0))
    assert main([*command, "--resume"]) == 2
    assert "answers to a file that has changed since" in capsys.readouterr().err


def test_an_output_folder_of_another_system_is_refused(place, tmp_path):
    folder, table, _ = place
    rows = find_files(written(table, tmp_path / "rows", 2))
    predict_files(Scorer(folder / "mixed.thrifty", row_key="id"), rows, tmp_path / "out")
    with pytest.raises(InvalidInputError, match="is not empty"):
        predict_files(Scorer(folder / "mixed.thrifty", row_key="id"), rows, tmp_path / "out")
    with pytest.raises(InvalidInputError, match="another run: 'system'"):
        predict_files(Scorer(folder / "s.thrifty", row_key="id"), rows, tmp_path / "out", resume=True)
    again = predict_files(Scorer(folder / "mixed.thrifty", row_key="id"), rows, tmp_path / "out", resume=True)
    assert again["scored_parts"] == 0
    assert again["rows"] == len(table)


def test_a_full_disk_leaves_whole_files_and_resume_goes_on_when_there_is_room(
    place, tmp_path, small_disk, capsys
):
    folder, table, expected = place
    rows, disk = written(table, tmp_path / "rows", 6), tmp_path / "disk"
    disk.mkdir()
    with small_disk(disk, "48k"):
        command = [
            "predict",
            str(folder / "mixed.thrifty"),
            str(rows),
            "-o",
            str(disk / "out"),
            "--row-key",
            "id",
        ]
        assert main(command) == 2
        assert "No space left on device" in capsys.readouterr().err
        whole = list((disk / "out").glob("*.parquet"))
        assert 0 < len(whole) < 6
        assert sum(pq.read_table(path).num_rows for path in whole) == 500 * len(whole)
        assert not list((disk / "out").glob(".*.part"))
        subprocess.run(["mount", "-o", "remount,size=2m", str(disk)], check=True)
        assert main([*command, "--resume", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["scored_parts"] == 6 - len(whole)
        assert_equal(disk / "out", expected)


def test_documents_of_a_query_that_is_split_over_files_have_the_scores_of_one_table(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(400, 3)).round(3), columns=list("abc"))
    table["qid"] = np.arange(400) // 10
    grade = np.digitize(table["a"] + table["b"], [0, 1])
    ranker = BudgetedRanker(Ridge(), stages=StageOptions(max_stages=2, sizes=[(4, 2)]), cv=2, random_state=0)
    ranker.fit(table[["a", "b", "c"]], grade, qid=table["qid"])
    save(ranker, tmp_path / "r.thrifty")
    rows = written(table.assign(id=np.arange(400)), tmp_path / "rows", 3)
    predict_files(Scorer(tmp_path / "r.thrifty", row_key="id"), find_files(rows), tmp_path / "out")
    found = pd.read_parquet(tmp_path / "out").sort_values("id")
    assert found["qid"].tolist() == table["qid"].tolist()
    # A BLAS adds in another order in other batches.
    expected = ranker.predict(table[["a", "b", "c"]])
    np.testing.assert_allclose(found["answer"], expected, rtol=1e-12)


def test_a_signal_waits_until_the_answers_of_a_call_are_kept_and_a_line_that_is_cut_is_asked_again(tmp_path):
    asked, kept_at_signal = [], []

    class Paid:
        def outputs(self, table, numbers):
            asked.append(table[:, 0].tolist())
            signal.raise_signal(signal.SIGTERM)
            return numbers[:, :1] / 3

    def note(*_):
        kept_at_signal.append(sum(path.read_text().count("\n") for path in tmp_path.iterdir()))

    rows = np.arange(10.0).reshape(5, 2)
    before = signal.signal(signal.SIGTERM, note)
    try:
        first = CachedFull(Paid(), tmp_path, 2).outputs(rows, rows)
        assert kept_at_signal == [2, 4, 5]
        (path,) = tmp_path.iterdir()
        path.write_bytes(path.read_bytes()[:-3])
        assert (CachedFull(Paid(), tmp_path, 2).outputs(rows, rows) == first).all()
        assert asked == [[0, 2], [4, 6], [8], [8]]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_answer_that_was_changed_in_the_folder_is_paid_for_again_and_no_other(tmp_path):
    asked = []

    class Paid:
        def outputs(self, table, numbers):
            asked.extend(table[:, 0].tolist())
            return numbers[:, :1] / 3

    rows = np.arange(10.0).reshape(5, 2)
    first = CachedFull(Paid(), tmp_path, 5).outputs(rows, rows)
    (path,) = tmp_path.iterdir()
    kept = path.read_bytes()
    second = kept.splitlines(keepends=True)[1]
    for place in range(len(second)):
        changed = bytearray(kept)
        changed[kept.index(second) + place] ^= 1
        path.write_bytes(changed)
        asked.clear()
        with pytest.warns(UserWarning, match="was changed: [12] of its lines"):
            again = CachedFull(Paid(), tmp_path, 5).outputs(rows, rows)
        assert (again == first).all()
        # Without the end of its line the next one is lost with it.
        assert asked == ([2.0, 4.0] if place == len(second) - 1 else [2.0])
        for other in set(tmp_path.iterdir()) - {path}:
            other.unlink()
    # Version 0.3 wrote no checksums.
    path.write_bytes(b"".join(line.rpartition(b" #")[0] + b"\n" for line in kept.splitlines()))
    asked.clear()
    assert (CachedFull(Paid(), tmp_path, 5).outputs(rows, rows) == first).all()
    assert not asked
    # One bit turns the mark of a checksum into a digit.
    path.write_bytes(b"1f 0.5 312345678\n")
    with pytest.warns(UserWarning, match="was changed: 1 of its lines"):
        CachedFull(Paid(), tmp_path, 5).outputs(rows, rows)


_PAID = """
import os
import time

import numpy as np


def paid(table):
    'A full model that writes down every row it is asked about, and takes its time.'
    with open(os.environ["PAID"], "a") as file:
        file.writelines(f"{number!r}\\n" for number in table["a"].tolist())
        file.flush()
        os.fsync(file.fileno())
    time.sleep(0.03)
    return 1 / (1 + np.exp(-table["a"].to_numpy()))
"""
_SCORE = """
import sys
from paid import paid
from thrifty.scale import Scorer
from thrifty.scale import folder
folder.PART_ROWS = 200
if __name__ == "__main__":
    system, rows, out, cache = sys.argv[1:]
    scorer = Scorer(system, row_key="id", full=paid, full_cache=cache, full_batch_size=20)
    folder.predict_files(scorer, folder.find_files(rows), out, n_jobs=2, resume=True)
"""


@pytest.mark.slow
def test_a_killed_run_is_resumed_without_a_lost_row_a_half_file_or_a_second_payment(
    place, tmp_path, monkeypatch
):
    folder, table, _ = place
    log = tmp_path / "paid.txt"
    (tmp_path / "paid.py").write_text(_PAID)
    (tmp_path / "score.py").write_text(_SCORE)
    monkeypatch.setenv("PAID", str(log))
    monkeypatch.setattr(folder_module, "PART_ROWS", 200)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        paid = importlib.import_module("paid").paid
    system, cache = tmp_path / "s.thrifty", tmp_path / "cache"
    save(load(folder / "s.thrifty").with_full(paid).at(budget=5.0), system, full="outside")
    log.write_text("")  # a file asks about a few rows when it is saved, before there is a cache
    rows, out = written(table, tmp_path / "rows", 3), tmp_path / "out"
    command = [sys.executable, tmp_path / "score.py", system, rows, out, cache]
    before = set()
    for is_worker in (True, False):
        run = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        while len(list(out.glob("*.parquet"))) <= len(before):
            assert run.poll() is None
            time.sleep(0.01)
        os.kill(_worker_of(run.pid) if is_worker else run.pid, signal.SIGKILL)
        _, words = run.communicate(timeout=60)
        assert run.returncode != 0
        assert not is_worker or "a process was killed" in words
        visible = {(path.name, path.stat().st_mtime_ns) for path in out.glob("*.parquet")}
        assert before <= visible  # finished parts are left alone
        for name, _ in visible:
            pq.read_table(out / name)
        before = visible
    scorer = Scorer(system, row_key="id", full=paid, full_cache=cache, full_batch_size=20)
    totals = predict_files(scorer, find_files(rows), out, resume=True)
    assert totals["scored_parts"] == 15 - len(before)
    found = pd.read_parquet(out)
    assert sorted(found["id"]) == sorted(table["id"])
    asked = log.read_text().split()
    kept = [line for path in cache.glob("*.answers") for line in path.read_text().splitlines()]
    assert len(set(kept)) == len(kept) == len(set(asked)) >= (found["stage"] == "full").sum() > 0
    assert len(asked) - len(kept) <= 20  # the call that the killed worker was waiting for


def _worker_of(pid):
    """One of the processes of a pool, which were started by the driver."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(int(one) for one in children if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes())


@pytest.mark.parametrize("reads_texts", [False, True])
def test_files_of_rows_for_a_router_are_answered_as_one_table(tmp_path, monkeypatch, reads_texts):
    monkeypatch.setattr("thrifty.learners.routing.quality.N_TREES", 5)
    rng = np.random.default_rng(0)
    hard = rng.random(120)
    table = pd.DataFrame({"hard": hard, "other": rng.random(120), "id": np.arange(120)})
    table["text"] = [f"question {row}: {'prove' if x > 0.5 else 'name'} it" for row, x in enumerate(hard)]
    X = table["text"].tolist() if reads_texts else table[["hard", "other"]]
    quality = np.column_stack([rng.random(120) > hard, rng.random(120) > 0.1])
    router = ModelRouter({"small": 1.0, "large": 10.0}, budget=5.0, max_asks=1).fit(X, quality)
    save(router, tmp_path / "r.thrifty")
    written(table, tmp_path / "rows", 3)
    command = ["predict", str(tmp_path / "r.thrifty"), str(tmp_path / "rows"), "-o", str(tmp_path / "out")]
    assert main([*command, "--row-key", "id", "--budget", "4"]) == 0
    answers = pd.read_parquet(tmp_path / "out").sort_values("id")
    at = router.at(budget=4.0)
    assert answers["answer"].tolist() == at.predict(X).tolist()
    np.testing.assert_allclose(answers["cost"], at.cost(X))
    totals = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert totals["share_full"] == pytest.approx(np.mean(at.predict(X) == "large"))
    assert main([*command, "--max-loss", "0.1"]) == 2
