"""Engines answer partitions as one table in memory; engines that are not installed are skipped."""

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.naive_bayes import GaussianNB

from thrifty import BudgetedClassifier, DynaModGbrtClassifier, StageOptions, save, sweep
from thrifty.learners.dynamod import BoostedOptions
from thrifty.scale import Scorer
from thrifty.scale.scorer import stage_names

# Warnings of the engines about pandas are not ours.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Path of a system at a mixed point, rows in a folder, and their answers in memory."""
    place, rng = tmp_path_factory.mktemp("engines"), np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(2_400, 3)), columns=list("abc")).assign(
        level=rng.choice(["low", "high"], 2_400), id=np.arange(2_400)[::-1]
    )
    y = np.where(X["a"] + (X["level"] == "low") * X["b"] > 0, "yes", "no")
    system = BudgetedClassifier(
        feature_costs={"a": 1.0, "b": 1.0, "c": 1.0, "level": 1.0},
        stages=StageOptions(max_stages=3, sizes=[(6, 2)]),
        random_state=0,
    ).fit(X.drop(columns="id")[:400], y[:400])
    system = system.at(budget=float(system.frontier_.cost[:2].mean()))
    assert system.chain_.policy.is_mixed
    save(system, place / "s.thrifty")
    (place / "rows").mkdir()
    for number, part in enumerate(np.array_split(rng.permutation(len(X)), 7)):
        X.iloc[part].to_parquet(place / "rows" / f"{number}.parquet", index=False)
    answers = {
        "answer": system.predict(X, row_key="id"),
        "stage": np.array(stage_names(system.chain_))[system.route(X, row_key="id")],
        "cost": system.cost(X, row_key="id"),
    }
    return place, X[["id"]].assign(**answers).sort_values("id")


def assert_equal(found, expected):
    found = found.sort_values("id")
    for name in expected:
        assert found[name].tolist() == expected[name].tolist(), name


@pytest.mark.parametrize("n_partitions", [1, 7, 64])
def test_dask_answers_as_memory_with_the_schema_known_in_advance(place, n_partitions):
    dd = pytest.importorskip("dask.dataframe")
    from thrifty.scale.dask import predict

    folder, expected = place
    frame = dd.read_parquet(folder / "rows").repartition(npartitions=n_partitions)
    answers = predict(frame, folder / "s.thrifty", row_key="id")
    found = answers.compute(scheduler="synchronous")
    assert list(answers.columns) == list(found.columns) == ["id", "answer", "probability", "stage", "cost"]
    assert answers.dtypes.astype(str).tolist() == found.dtypes.astype(str).tolist()
    assert_equal(found, expected)


def test_a_fit_on_a_dask_frame_learns_from_a_sample_and_is_proved_by_all_other_rows(place):
    dd = pytest.importorskip("dask.dataframe")
    from thrifty.scale.dask import fit

    folder, expected = place
    frame = dd.read_parquet(folder / "rows").drop(columns="id")
    frame["y"] = frame["a"].mask(frame["level"] == "high", 0.3) > 0.2
    few = BudgetedClassifier(stages=StageOptions(max_stages=3, sizes=[(6, 2)]), cv=2, random_state=0)
    found = fit(few, frame, "y", sample=400, max_loss=0.2)
    rows = frame.compute()
    wanted = found.certified(rows.drop(columns="y"), rows["y"], max_loss=0.2, duplicates="drop").certificate_
    assert found.certificate_ == wanted
    assert wanted.n_given == len(expected)


@pytest.mark.slow
def test_a_dask_cluster_of_another_process_ships_no_model_in_its_tasks_and_runs_sweeps(place):
    distributed = pytest.importorskip("distributed")
    dd = pytest.importorskip("dask.dataframe")
    from cloudpickle import dumps

    from thrifty.scale.dask import predict

    folder, expected = place
    answers = predict(dd.read_parquet(folder / "rows"), Scorer(folder / "s.thrifty", row_key="id"))
    graph = answers.optimize().__dask_graph__()
    assert max(len(dumps(task)) for task in graph.values()) < 100_000
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        assert_equal(answers.compute(), expected)
        with joblib.parallel_config(backend="dask"):
            there = small_sweep(n_jobs=2)
    here = small_sweep(n_jobs=1)
    assert there.to_frame().drop(columns="seconds").equals(here.to_frame().drop(columns="seconds"))
    assert (there.frontier.thresholds == here.frontier.thresholds).all()


def small_sweep(n_jobs):
    """A sweep of the paper's settings, whose cells joblib sends to workers."""
    X = np.random.default_rng(0).normal(size=(300, 3)).round(3)
    y = X[:, 0] + X[:, 1] * X[:, 2] > 0
    gated = DynaModGbrtClassifier(GaussianNB(), options=BoostedOptions(n_trees=3), random_state=0)
    return sweep(gated, {"p_full": [0.2, 0.6]}, X[:200], y[:200], X[200:], y[200:], n_jobs=n_jobs)


@pytest.mark.slow
def test_ray_answers_as_memory(place):
    ray = pytest.importorskip("ray")
    from thrifty.scale.ray import predict

    folder, expected = place
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        rows = ray.data.read_parquet(str(folder / "rows"))
        for n_partitions in (1, 7, 64):
            answers = predict(
                rows.repartition(n_partitions), folder / "s.thrifty", row_key="id", batch_size=None
            )
            assert_equal(answers.to_pandas(), expected)
    finally:
        ray.shutdown()


@pytest.mark.slow
def test_spark_answers_as_memory(place):
    sql = pytest.importorskip("pyspark.sql")
    from thrifty.scale.spark import predict

    folder, expected = place
    spark = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        rows = spark.read.parquet(str(folder / "rows"))
        for n_partitions in (1, 7, 64):
            answers = predict(rows.repartition(n_partitions), folder / "s.thrifty", row_key="id")
            assert_equal(answers.toPandas(), expected)
    finally:
        spark.stop()
