"""Columns that cost before models that cost: ``ModelRouter(models, prices=Prices(...))``."""

import json
from itertools import product

import numpy as np
import pandas as pd
import pytest

import thrifty
from thrifty import ModelRouter, Prices
from thrifty.bundle import from_bytes, to_bytes
from thrifty.cli import main
from thrifty.errors import InvalidInputError

MODELS = {"small": 1.0, "a": 10.0, "b": 10.0}
PRICES = Prices({"easy": 0.5, "kind": 1.0, "noise": 2.0})
N = 240


def table(n_rows=N, seed=0):
    """Rows that are easy, or of one of two kinds that one large model each is right about, and a column of noise."""
    rng = np.random.default_rng(seed)
    easy, kind = rng.random((2, n_rows)) < 0.5
    X = pd.DataFrame({"easy": easy * 1.0, "kind": kind * 1.0, "noise": rng.random(n_rows).round(3)})
    return X, np.column_stack([easy, easy | kind, easy | ~kind]).astype(float)


@pytest.fixture(scope="module")
def router():
    return ModelRouter(MODELS, prices=PRICES).fit(*table())


def best_plan(price):
    """Value of the best of all plans, by trying each: ``quality - price * cost`` of easy rows and two other kinds."""
    rows = [((1, 0), 0.25), ((1, 1), 0.25), ((0, 0), 0.25), ((0, 1), 0.25)]

    def quality(row, model):
        easy, kind = row
        return float(easy or (model == 1 and kind) or (model == 2 and not kind))

    def value(known, those):
        stops = [
            sum(share * (quality(row, model) - price * cost) for row, share in those)
            for model, cost in enumerate(MODELS.values())
        ]
        buys = []
        for column, cost in enumerate((0.5, 1.0)):
            if column not in known:
                parts = [[one for one in those if one[0][column] == level] for level in (0, 1)]
                paid = price * cost * sum(share for _, share in those)
                buys.append(sum(value((*known, column), part) for part in parts if part) - paid)
        return max(stops + buys)

    return value((), rows)


def test_the_plan_is_as_good_as_the_best_of_all_plans(router):
    X, quality = table(4_000, seed=1)
    state = router.state_
    walks = [router.replay(X, quality) for router in (router.at(budget=b) for b in (1.0, 3.0, 6.0, 20.0))]
    for price in (0.0, 0.01, 0.04):
        reached = max((one.quality - price * one.cost).mean() for one in walks)
        assert reached == pytest.approx(best_plan(price), abs=0.04)
    best = walks[-1]
    assert best.quality.mean() == pytest.approx(1.0, abs=0.01)
    assert (
        best.cost.mean() < 7.0
    )  # 6.5 is the least that is always right; all columns and the best model cost 13.5
    assert not (best.asked == "noise").any()
    assert state.pool == (*MODELS, *("easy", "kind", "noise"))


def test_a_row_may_be_answered_without_any_column_and_columns_are_bought_before_models(router):
    X, quality = table(200, seed=2)
    cheap = router.at(budget=1.0).replay(X, quality)
    assert np.unique(cheap.asked).tolist() == ["small"]
    for asked in router.replay(X, quality).asked:
        names = [name for name in asked if name]
        assert names[-1] in MODELS
        assert set(names[:-1]) <= {"easy", "kind", "noise"}


def test_sessions_ask_for_purchases_of_either_kind_and_pay_what_a_replay_pays(router):
    X, quality = table(8, seed=3)
    replay = router.replay(X, quality)
    for row in range(len(X)):
        session = router.start()
        while (wanted := session.next_purchase) is not None:
            assert bool(wanted.columns) == (wanted.name not in MODELS)
            session.give(
                X.loc[row, list(wanted.columns)].to_dict() if wanted.columns else f"of {wanted.name}"
            )
        assert session.answer == f"of {replay.model[row]}"
        assert session.cost == replay.cost[row]
        assert session.asked == tuple(name for name in replay.asked[row] if name)
        assert session.explain().startswith("bought easy (paid 0.5)")


def test_a_row_whose_columns_fail_is_answered_by_what_it_holds(router):
    session = router.start()
    while session.next_purchase is not None:
        session = session.fail(cost=0.1) if session.next_purchase.columns else session.give("yes")
    assert session.answer == "yes"
    assert session.model in MODELS
    assert "it failed" in session.explain()
    with pytest.raises(InvalidInputError, match="'easy' has 1 columns"):
        router.start().give([1.0, 2.0])


def test_groups_share_a_price_discounts_count_and_free_columns_are_read_at_once():
    X, quality = table()
    X = X.assign(again=1.0 - X["kind"])
    prices = Prices(
        {"easy": 0.0, "kind": 2.0, "again": 2.0, "noise": 1.0},
        groups={"kind": "panel", "again": "panel"},
        discounts={"drawn": (["kind", "noise"], 0.5)},
    )
    router = ModelRouter(MODELS, prices=prices).fit(X, quality)
    assert router.pool_[3:] == ["noise", "panel"]
    replay = router.replay(X, quality)
    is_easy = X["easy"].to_numpy() == 1.0
    assert replay.cost[is_easy].mean() < 1.5
    assert (replay.asked[~is_easy] == "panel").any(axis=1).mean() > 0.9
    log = router.state_.log
    assert log.share_after(4, (3,)) == 0.75  # the panel after noise: 1.5 of 2
    assert log.share_after(3, (4,)) == 0.5


def test_costs_of_columns_that_were_billed_are_those_that_rows_pay(router):
    X, quality = table()
    billed = np.column_stack([np.tile(list(MODELS.values()), (N, 1)), np.tile([0.25, 3.0, 2.0], (N, 1))])
    named = pd.DataFrame(billed, columns=[*MODELS, "easy", "kind", "noise"])
    for cost in (billed, named):
        replay = router.replay(X, quality, cost)
        paid = dict(zip(named.columns, billed[0], strict=True)) | {"": 0.0}
        assert replay.cost == pytest.approx([sum(paid[name] for name in asked) for asked in replay.asked])


def test_it_asks_further_models_and_buys_columns_between_them(monkeypatch):
    monkeypatch.setattr(
        "thrifty.learners.routing.learn.N_PRICES", 20
    )  # at one of them the best plan of all pays
    rng = np.random.default_rng(0)
    hard, kind = rng.random((2, 500)) < 0.5
    X = pd.DataFrame({"kind": kind * 1.0, "id": rng.random(500)})
    quality = np.column_stack([~hard, ~hard | kind, ~hard | ~kind]).astype(float)
    sure = np.column_stack([np.where(hard, 0.2, 0.9)] * 3)  # known once a model was asked
    router = ModelRouter({"small": 1.0, "a": 5.0, "b": 5.0}, prices=Prices({"kind": 1.0}, default=0.0)).fit(
        X, quality, evidence=sure
    )
    replay = router.replay(X, quality, evidence=sure)
    assert replay.quality.mean() > 0.98
    orders = {tuple(name for name in asked if name) for asked in replay.asked}
    assert ("small",) in orders
    assert {("small", "kind", "a"), ("small", "kind", "b")} <= orders
    assert replay.cost.mean() == pytest.approx(1.0 + 6.0 * hard.mean())
    again = from_bytes(to_bytes(router)).replay(X, quality, evidence=sure)
    assert np.array_equal(again.cost, replay.cost)
    session = router.start().give("?", evidence=0.2)
    assert session.next_purchase.columns == ("kind",)
    assert session.give({"kind": 1.0}).next_purchase.name == "a"
    assert session.give("done", evidence=0.2).answer == "done"


def test_the_command_line_learns_from_a_log_with_prices_of_its_columns(tmp_path, capsys):
    X, quality = table(200)
    lines = [
        {"id": row, "model": name, "quality": quality[row, model], **X.loc[row]}
        for (row, (model, name)) in product(range(len(X)), enumerate(MODELS))
    ]
    pd.DataFrame(lines).to_csv(tmp_path / "log.csv", index=False)
    pd.DataFrame({"model": list(MODELS), "price": MODELS.values()}).to_csv(
        tmp_path / "models.csv", index=False
    )
    (tmp_path / "prices.csv").write_text("feature,cost\neasy,0.5\n*,0\n")
    out = str(tmp_path / "r.thrifty")
    files = ["--models", str(tmp_path / "models.csv"), "--prices", str(tmp_path / "prices.csv"), "-o", out]
    assert main(["route", str(tmp_path / "log.csv"), *files]) == 0
    assert "columns, then models" in capsys.readouterr().out
    assert thrifty.load(out).prices.costs == {"easy": 0.5}
    assert main(["explain", out, str(tmp_path / "log.csv"), "--row", "1"]) == 0
    assert "bought easy (paid 0.5)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("how", "rows", "word"),
    [
        ({"prices": Prices([0.0, 0.0, 0.0])}, None, "all columns are free"),
        ({"prices": Prices([1.0, 1.0, 1.0], full=2.0)}, None, "leave out full"),
        ({"prices": Prices({"easy": {"dollars": 1.0}}, default={"dollars": 1.0})}, None, "one resource"),
        ({"prices": PRICES}, "texts", "has none. Give X as a table"),
        ({"prices": PRICES, "models": {"easy": 1.0, "a": 2.0, "b": 2.0}}, None, "is a model and a purchase"),
    ],
    ids=["free", "full", "resources", "texts", "names"],
)
def test_prices_that_make_no_sense_are_refused_in_words(how, rows, word):
    X, quality = table(60)
    X = X if rows is None else ["a text"] * len(X)
    with pytest.raises(InvalidInputError, match=word):
        ModelRouter(**{"models": MODELS, **how}).fit(X, quality)


def test_what_routers_with_prices_of_columns_cannot_do_is_refused_in_words(router):
    X, quality = table(60)
    with pytest.raises(InvalidInputError, match="with_prices is for routers whose columns are free"):
        router.with_prices({"a": 3.0})
    with pytest.raises(InvalidInputError, match="with_model is for routers whose columns are free"):
        router.with_model("new", 3.0, X, quality[:, 0])


def test_a_session_is_saved_today_and_resumed_tomorrow(router):
    X, _ = table(8, seed=3)
    tomorrow = from_bytes(to_bytes(router))
    for row in range(len(X)):
        session = router.start()
        while (wanted := session.next_purchase) is not None:
            again = tomorrow.resume(json.loads(json.dumps(session.saved())))
            assert again.next_purchase == wanted
            assert (again.cost, again.asked) == (session.cost, session.asked)
            values = X.loc[row, list(wanted.columns)].to_numpy() if wanted.columns else "yes"
            session = session.fail(cost=0.5) if wanted.name == "kind" else again.give(values)
        again = tomorrow.resume(session.saved())
        assert (again.answer, again.cost, again.explain()) == ("yes", session.cost, session.explain())
    cheap = router.at(budget=1.0)
    with pytest.raises(InvalidInputError, match="does not ask there"):
        cheap.resume(router.start().give({"easy": 1.0}).saved())
