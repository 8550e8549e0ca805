import os
import signal

import joblib
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from thrifty import sweep

pytestmark = pytest.mark.slow

distributed = pytest.importorskip("distributed")

TREES = {"gamma": [1.0, 10.0], "p_full": [0.2, 0.6]}


def assert_same(one, other):
    assert [cell.settings for cell in one.cells] == [cell.settings for cell in other.cells]
    for a, b in zip(one.cells, other.cells, strict=True):
        assert a.fitted == b.fitted, a.settings
        np.testing.assert_array_equal(a.evidence.gate, b.evidence.gate)
    np.testing.assert_array_equal(one.frontier.cost, other.frontier.cost)
    np.testing.assert_array_equal(one.frontier.score, other.frontier.score)


def test_two_processes_find_bit_by_bit_what_one_finds(trees, linear, cascade, fitting):
    for estimator, grid in (
        (trees, TREES),
        (linear, {"gamma": [0.01, 0.1], "p_full": [0.2, 0.6]}),
        (cascade, {"stages": [2, 3]}),
    ):
        # A process of its own has one BLAS thread; here there are two.
        with threadpool_limits(2, user_api="blas"):
            alone = sweep(estimator, grid, *fitting, n_jobs=1)
        assert_same(sweep(estimator, grid, *fitting, n_jobs=2), alone)


def test_threads_find_bit_by_bit_what_one_process_finds(trees, fitting):
    alone = sweep(trees, TREES, *fitting)
    with joblib.parallel_config("threading", n_jobs=2):
        assert_same(sweep(trees, TREES, *fitting), alone)


@pytest.fixture
def cluster():
    # Any free port: the usual one may belong to a cluster of somebody else.
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address="127.0.0.1:0",
        worker_dashboard_address=None,
    ) as found:
        yield found


def test_a_cluster_that_loses_a_worker_in_the_middle_finds_the_same(trees, wide_fitting, tmp_path, cluster):
    killed = []
    with distributed.Client(cluster) as client:

        def kill_one(what, done, total):
            if what == "fitting" and done == 2:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        with joblib.parallel_config("dask"):
            found = sweep(trees, TREES, *wide_fitting, store=tmp_path / "s.db", progress=kill_one)
    assert len(killed) == 1
    assert_same(found, sweep(trees, TREES, *wide_fitting))
