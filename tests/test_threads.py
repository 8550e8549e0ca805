"""Threads of every library that is called stay within bounds, and everything is as before afterwards."""

import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import sklearn.ensemble  # noqa: F401  # loads a library with OpenMP
from joblib import cpu_count
from threadpoolctl import threadpool_info, threadpool_limits

from thrifty import BudgetedClassifier, StageOptions, threads
from thrifty.learners.trees.grow import TreeGrower
from thrifty.threads import limited_threads, threads_for, threads_of, usable_threads


def by_library():
    return {info["filepath"]: (info["user_api"], info["num_threads"]) for info in threadpool_info()}


def number_of(api):
    return {number for kind, number in by_library().values() if kind == api}


@pytest.fixture(autouse=True)
def four_threads():
    with threadpool_limits(4):
        yield


def test_limits_hold_inside_and_nothing_is_left_of_them_afterwards():
    before = by_library()
    assert {api for api, _ in before.values()} == {"openmp", "blas"}
    with limited_threads(openmp=2, blas=1):
        assert (number_of("openmp"), number_of("blas")) == ({2}, {1})
    assert by_library() == before
    with pytest.raises(ZeroDivisionError), limited_threads(openmp=2, blas=1):
        _ = 1 // 0
    assert by_library() == before


def test_a_limit_raises_nothing():
    with threadpool_limits(1), limited_threads(openmp=3, blas=3):
        assert (number_of("openmp"), number_of("blas")) == ({1}, {1})
    with limited_threads(openmp=1, blas=1), limited_threads(openmp=3, blas=3):
        assert (number_of("openmp"), number_of("blas")) == ({1}, {1})


def test_a_thread_that_serves_leaves_the_limits_of_others_alone():
    found = []

    def serve():
        with limited_threads(openmp=1, blas=4):
            found.append(number_of("openmp"))

    outside = by_library()
    with limited_threads(openmp=3, blas=3):
        inside = by_library()
        worker = threading.Thread(target=serve)
        worker.start()
        worker.join()
        # OpenMP keeps a number for each thread that calls it, a BLAS may have one for all of them.
        assert by_library() == inside
    assert found == [{1}]
    assert by_library() == outside
    assert inside != outside


def test_libraries_are_looked_for_again_only_after_an_import(monkeypatch):
    looks = []
    look = threads.ThreadpoolController
    monkeypatch.setattr(threads, "ThreadpoolController", lambda: looks.append(1) or look())
    monkeypatch.setattr(threads, "_loaded", (0, None))
    for _ in range(3):
        with limited_threads(openmp=1, blas=1):
            pass
    assert len(looks) == 1
    monkeypatch.setitem(sys.modules, "a module that is new", threads)
    with limited_threads(openmp=1, blas=1):
        pass
    assert len(looks) == 2


def test_no_more_threads_than_cores_that_the_process_may_use(monkeypatch):
    monkeypatch.setattr(threads, "cpu_count", lambda: 2)
    assert [threads_of(n_jobs) for n_jobs in (None, 1, 2, 50)] == [1, 1, 2, 2]
    assert (usable_threads(), threads_for(10), threads_for(100_000)) == (2, 1, 2)
    with limited_threads(openmp=1, blas=1):
        assert (usable_threads(), threads_for(100_000)) == (1, 1)
    assert usable_threads() == 2


@pytest.mark.slow
def test_the_affinity_of_a_process_counts():
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); from thrifty.threads import threads_of"
    if not hasattr(__import__("os"), "sched_setaffinity"):
        pytest.skip("processes have no affinity here")
    run = subprocess.run(
        [sys.executable, "-c", f"{code}; print(threads_of(-1))"], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["1"]
    assert threads_of(-1) == cpu_count()


SPY = """
import os
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_info, threadpool_limits
from thrifty import BudgetedClassifier, DynaModLinClassifier, StageOptions

def tell(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # at once: several threads tell

def record(what):
    for info in threadpool_info():
        tell(what, info["user_api"], info["num_threads"])

class Spy(HistGradientBoostingClassifier):
    def fit(self, X, y, **arguments):
        record("fit")
        return super().fit(X, y, **arguments)

    def predict_proba(self, X):
        record("ask")
        return super().predict_proba(X)

def main(X, y):
    threadpool_limits(4)
    for kind, settings in (
        (BudgetedClassifier, dict(stages=StageOptions(max_stages=2, sizes=[(2, 2)]))),
        (BudgetedClassifier, dict(stages=StageOptions(max_stages=2, sizes=[(2, 2)]), n_jobs=2)),
        (DynaModLinClassifier, dict(max_iter=2)),
    ):
        tell("fitting", kind.__name__, settings.get("n_jobs", 1))
        fit = kind(Spy(max_iter=2), cv=2, random_state=0, **settings).fit(X, y)
        tell("serving", kind.__name__, 1)
        fit.chain_.ask_full(fit._reader(X[:5]), np.arange(5))
        record("afterwards")

if __name__ == "__main__":
    chance = np.random.default_rng(0)
    X = chance.normal(size=(120, 3))
    main(X, (X[:, 0] + 0.3 * chance.normal(size=120) > 0).astype(int))
"""


@pytest.mark.slow
def test_the_full_model_gets_no_more_threads_than_were_asked_for(tmp_path):
    script = tmp_path / "spy.py"
    script.write_text(SPY)
    command = [sys.executable, "-W", "ignore", str(script)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    fitting, seen = False, []
    for what, name, number in map(str.split, run.stdout.splitlines()):
        if what in ("fitting", "serving"):
            fitting, most = what == "fitting", min(int(number), cpu_count())
        elif what == "afterwards":
            assert number == "4"
        elif name == "openmp":
            assert int(number) <= most
        elif fitting:
            assert (name, number) == ("blas", "1")
        seen.append((fitting, what, name))
    assert {(True, "fit", "openmp"), (True, "ask", "openmp"), (False, "ask", "openmp")} <= set(seen)


@pytest.mark.slow
def test_one_row_that_a_stage_answers_does_not_touch_threads(monkeypatch):
    from sklearn.linear_model import LogisticRegression

    from thrifty import DynaModLinClassifier
    from thrifty.engine.full import model

    X = np.random.default_rng(0).normal(size=(60, 3))
    fit = DynaModLinClassifier(LogisticRegression(), random_state=0).fit(X, (X[:, 0] > 0).astype(int))

    def refuse(**_):
        raise AssertionError("threads were limited")

    monkeypatch.setattr(model, "limited_threads", refuse)
    fit.at(threshold=np.inf).predict(X[:1])
    with pytest.raises(AssertionError, match="threads were limited"):
        fit.at(threshold=-np.inf).predict(X[:1])


@pytest.mark.parametrize("after", [None, "finding orders", "comparing orders"])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupt_ends_all_threads_at_their_next_tree_and_leaves_the_former_fit(
    monkeypatch, n_jobs, after
):
    X = np.random.default_rng(0).normal(size=(300, 5))
    y = X[:, 0] + X[:, 1] ** 2 > 1
    few = StageOptions(max_stages=3, sizes=[(10, 2)], structure="line")
    fit = BudgetedClassifier(cv=2, stages=few, n_jobs=n_jobs, random_state=0).fit(X, y)
    before, main = dict(vars(fit)), threading.main_thread().ident
    phases, late, prepare = {None}, [], TreeGrower._prepare

    def interrupted(*how):
        """The first tree after a phase interrupts the fit; later ones give the main thread the time to end it."""
        workspace = prepare(*how)
        if late:
            time.sleep(0.2)
        if after in phases:
            late.append(threading.current_thread())
            if len(late) == 1:
                signal.pthread_kill(main, signal.SIGINT)
        return workspace

    monkeypatch.setattr(TreeGrower, "_prepare", interrupted)
    # A shell starts what it runs in the background with interrupts ignored.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            fit.fit(X[::-1], ~y, progress=lambda what, *_: phases.add(what))
    finally:
        signal.signal(signal.SIGINT, handler)
    n_late = len(late)
    assert n_late <= 3 * n_jobs  # of hundreds
    time.sleep(0.3)
    assert len(late) <= n_late + n_jobs
    assert vars(fit) == before
