"""Routers of run times: ``ModelRouter(solvers, outcome="runtime", cutoff=...)``."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

import thrifty
from thrifty import ModelRouter, Prices
from thrifty.bundle import from_bytes, to_bytes
from thrifty.cli import main
from thrifty.errors import InvalidInputError, InvalidParameterError

CUTOFF, SOLVERS, STEPS = 100.0, ["a", "b", "c"], ["cheap", "dear"]
PRICES = Prices(
    {"size": 0.0, "kind": 1.0, "more": 60.0}, groups={"kind": "cheap", "more": "dear", "size": "free"}
)


def scenario(n_rows=200, seed=0):
    """Seconds of three solvers: ``a`` solves one kind in 10 seconds, ``b`` the other; ``c`` takes 90. And steps."""
    rng = np.random.default_rng(seed)
    kind = rng.random(n_rows) < 0.5
    X = pd.DataFrame(
        {"size": rng.random(n_rows).round(3), "kind": kind * 1.0, "more": rng.random(n_rows).round(3)}
    )
    a, b = np.where(kind, 10.0, np.inf), np.where(kind, np.inf, 10.0)
    seconds = pd.DataFrame({"a": a, "b": b, "c": 90.0})
    steps = pd.DataFrame({"cheap": np.full(n_rows, 1.0), "dear": np.full(n_rows, 60.0)})
    return X, seconds, steps


@pytest.fixture(scope="module")
def router():
    return ModelRouter(SOLVERS, outcome="runtime", cutoff=CUTOFF, prices=PRICES).fit(*scenario())


def par10(replay):
    return 10 * CUTOFF * (1.0 - replay.quality)


def test_the_score_of_a_row_is_its_time_in_all_and_ten_cutoffs_where_that_is_too_long(router):
    X, seconds, steps = scenario(100, seed=1)
    replay = router.replay(X, seconds, steps)
    assert par10(replay) == pytest.approx(np.full(100, 11.0))
    assert replay.cost == pytest.approx(np.full(100, 11.0))
    slow = router.replay(X, seconds, steps.assign(cheap=95.0))  # with which no solver ends in time
    assert par10(slow) == pytest.approx(np.full(100, 10 * CUTOFF))
    assert slow.cost == pytest.approx(np.full(100, CUTOFF))
    seconds = scenario()[1]
    assert router.state_.single_quality == pytest.approx(1 - seconds.clip(upper=1000).mean() / 1000)


def test_columns_are_bought_where_their_seconds_pay(router):
    assert not (router.replay(*scenario(50, seed=2)).asked == "dear").any()
    X, seconds, steps = scenario()
    slow = PRICES.costs | {"kind": 85.0}
    how = {"outcome": "runtime", "cutoff": CUTOFF, "max_asks": 1}
    dear = ModelRouter(SOLVERS, **how, prices=Prices(slow, groups=PRICES.groups))
    replay = dear.fit(X, seconds, steps.assign(cheap=85.0)).replay(X, seconds, steps.assign(cheap=85.0))
    assert set(replay.asked.ravel()) == {"c"}  # 90 seconds without a column, 95 with one


def test_a_step_that_solves_a_row_ends_it(router):
    X, seconds, steps = scenario(40, seed=3)
    replay = router.replay(
        X, seconds.assign(cheap=np.where(np.arange(40) < 10, 0.0, np.inf), dear=np.inf), steps
    )
    assert par10(replay)[:10] == pytest.approx(np.full(10, 1.0))
    assert set(replay.model[:10]) == {"cheap"}
    assert par10(replay)[10:] == pytest.approx(np.full(30, 11.0))


def test_it_goes_through_the_doors_of_routers(router, tmp_path):
    X, seconds, steps = scenario(60, seed=4)
    X = X + 1e-9
    replay = router.replay(X, seconds, steps)
    assert np.array_equal(from_bytes(to_bytes(router)).replay(X, seconds, steps).quality, replay.quality)
    assert router.cost(X) == pytest.approx(np.full(60, 1.0 + 45.0), abs=60)
    proved = router.certified(X, seconds, steps, max_loss=0.5)
    assert proved.certificate_.bound <= 0.5
    told = str(router.explain(X[:1], seconds[:1], steps[:1])[0])
    assert told.startswith("bought cheap (paid 1)")
    assert "its quality was 0.989" in told
    page = thrifty.report(router, X, seconds, tmp_path / "a.html", cost=steps)
    assert "bought cheap" in page.read_text()
    session = router.start()
    while session.next_purchase is not None:
        session.give({"kind": 1.0}, cost=1.5) if session.next_purchase.columns else session.give(
            "solved", cost=9.0
        )
    assert (session.model, session.cost) == ("a", 10.5)


def test_a_solver_that_fails_is_followed_by_another_one_while_there_is_time(router):
    session = router.start().give({"kind": 1.0})
    assert session.fail(cost=2.0).next_purchase.name == "c"  # a has crashed, and b does not solve this kind
    assert session.give("solved", cost=50.0).answer == "solved"
    assert session.cost == 53.0
    session = router.start().give({"kind": 1.0}).fail(cost=99.0)
    assert session.next_purchase is None
    assert session.answer is None


def luck(n_rows=200, seed=0):
    """Seconds of three solvers, of which no column tells anything: each solves what the others do not."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"size": rng.random(n_rows).round(3), "kind": rng.random(n_rows).round(3)})
    kind = rng.choice(3, n_rows, p=[0.4, 0.3, 0.3])
    seconds = np.where(kind[:, None] == np.arange(3), [2.0, 20.0, 15.0], np.inf)
    return X, pd.DataFrame(seconds, columns=SOLVERS)


def test_where_no_column_tells_which_solver_ends_they_run_one_after_the_other():
    prices = Prices({"size": 5.0, "kind": 5.0})
    how = {"outcome": "runtime", "cutoff": CUTOFF, "prices": prices}
    X, seconds = luck()
    router = ModelRouter(SOLVERS, **how).fit(X, seconds)
    new = luck(100, seed=1)
    replay = router.replay(*new)
    assert (par10(replay) <= CUTOFF).all()
    alone = ModelRouter(SOLVERS, **how, max_asks=1).fit(X, seconds).replay(*new)
    assert (par10(alone) > CUTOFF).mean() > 0.2  # columns tell nothing, and one solver leaves rows unsolved
    answers = {name: partial(run_for, new[1][name].to_numpy()) for name in SOLVERS}
    receipt = router.buy(answers, new[0])
    assert receipt.cost == pytest.approx(replay.cost)
    assert np.array_equal(from_bytes(to_bytes(router)).replay(*new).cost, replay.cost)
    assert "it did not solve the row, and is skipped" in str(router.explain(*new)[int(replay.cost.argmax())])


def run_for(seconds, rows, limits):
    """What a solver returns about rows within limits: solved, or the time is over."""
    taken = seconds[rows.index]
    failed = dict.fromkeys(np.flatnonzero(taken > limits).tolist(), "time is over")
    return thrifty.Delivery(["solved"] * len(rows), failed, cost=np.minimum(taken, limits))


def test_columns_may_be_free_and_there_may_be_none():
    X, seconds, _ = scenario(120)
    how = {"outcome": "runtime", "cutoff": CUTOFF}
    assert par10(ModelRouter(SOLVERS, **how).fit(X, seconds).replay(X, seconds)) == pytest.approx(
        np.full(120, 10.0)
    )
    alone = ModelRouter(SOLVERS, **how).fit(None, seconds)
    assert alone.predict([1, 2]).tolist() == ["c", "c"]


def test_the_command_line_reads_a_log_of_run_times(tmp_path, capsys):
    X, seconds, steps = scenario(60)
    lines = [
        {"id": row, "model": name, "seconds": value if np.isfinite(value) else None, **X.loc[row]}
        for table in (seconds, steps)
        for name in table
        for row, value in enumerate(table[name])
    ]
    log, out = str(tmp_path / "runs.csv"), str(tmp_path / "r.thrifty")
    pd.DataFrame(lines).to_csv(log, index=False)
    (tmp_path / "prices.csv").write_text("feature,cost,group\nsize,0,\nkind,1,cheap\nmore,60,dear\n")
    assert main(["route", log, "--cutoff", "100", "--prices", str(tmp_path / "prices.csv"), "-o", out]) == 0
    capsys.readouterr()
    assert main(["predict", out, log, "-o", str(tmp_path / "a.csv")]) == 0
    answers = pd.read_csv(tmp_path / "a.csv")
    assert answers["cost"].to_numpy() == pytest.approx(np.full(60, 11.0))
    assert answers["quality"].to_numpy() == pytest.approx(np.full(60, 1 - 11.0 / 1000))
    assert main(["report", out, log, "-o", str(tmp_path / "r.html")]) == 0
    assert main(["explain", out, log, "--row", "1"]) == 0
    assert "(took 10 seconds): solved" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("how", "error", "word"),
    [
        ({"outcome": "time"}, InvalidParameterError, "'quality', 'loss' or 'runtime'"),
        ({"outcome": "runtime"}, InvalidParameterError, "a number of seconds > 0"),
        ({"cutoff": 10.0}, InvalidParameterError, "None without"),
        ({"outcome": "runtime", "cutoff": -1.0}, InvalidParameterError, "a number of seconds > 0"),
    ],
    ids=["outcome", "no cutoff", "only cutoff", "negative"],
)
def test_outcomes_that_make_no_sense_are_refused_in_words(how, error, word):
    X, seconds, _ = scenario(40)
    with pytest.raises(error, match=word):
        ModelRouter(SOLVERS, **how).fit(X, seconds)


def test_logs_that_make_no_sense_are_refused_in_words():
    X, seconds, _ = scenario(40)
    router = ModelRouter(SOLVERS, outcome="runtime", cutoff=CUTOFF)
    with pytest.raises(InvalidInputError, match="asks one model about each row"):
        router.fit(X, seconds, answers=np.zeros((40, 3), dtype=int))
    with pytest.raises(InvalidInputError, match="has seconds >= 0"):
        router.fit(X, seconds - 50.0)
