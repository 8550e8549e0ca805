"""Held budgets: streams of rows that are not those of the fit, through a small chain whose points were measured."""

from dataclasses import replace

import numpy as np
import pytest

from thrifty import evidence_of
from thrifty.engine.full.model import CallableFull
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.purchases.readers import Ledger
from thrifty.engine.table.table import Table
from thrifty.engine.tasks.classes import BinaryTask
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.policy import Policy
from thrifty.engine.walk.stage import LinearStage
from thrifty.errors import InvalidInputError, RowsLeftBehindError
from thrifty.serve.budget_controller import BudgetController, Spending, shared_memory

WINDOW = 2000


def rows(n_rows, seed, shift=0.0):
    """Rows that are harder, so that more of them go on, by the shift of their gates."""
    return np.random.default_rng(seed).normal(size=(n_rows, 3)).round(1) + shift


@pytest.fixture(scope="module")
def chain():
    """Two stages that look at a column each, and a full model that looks at three; costs of 1, 2 and 8."""

    def stage(column):
        return LinearStage(np.array([column]), np.ones((1, 2)), np.zeros(2))

    thresholds = np.linspace(3.0, -1.0, 9)[:, None] * np.ones(2)
    unknown = np.zeros(len(thresholds))
    made = Chain(
        (stage(0), stage(1)),
        CallableFull(lambda X: np.full(len(X), 0.5), BinaryTask(np.arange(2))),
        PriceList(np.ones(3), np.arange(3), 5.0),
        BinaryTask(np.arange(2)),
        Policy(thresholds, unknown, unknown),
    )
    X = rows(20_000, 0)
    cost = np.array([made.at(made.policy.at(point)).cost(X).mean() for point in range(len(thresholds))])
    return made.at(replace(made.policy, cost=cost))


def stream(controller, chain, X, batch=20):
    """What each row paid."""
    readers = (
        chain.reader(X[first : first + batch], np.arange(first, min(first + batch, len(X))))
        for first in range(0, len(X), batch)
    )
    return np.concatenate([chain.cost_by_place[controller.walk(reader).route] for reader in readers])


def means(costs, window=WINDOW):
    """Mean of every window."""
    total = np.cumsum(np.r_[0.0, costs])
    return (total[window:] - total[:-window]) / window


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "batch", "tolerance"),
    [
        (1.3, 20, 0.02),
        (2.0, 1000, 0.025),
        (4.0, 20, 0.02),
    ],  # the largest of twelve draws of keys: .014 .021 .015
)
def test_every_window_of_a_stream_spends_nearly_the_target(chain, target, batch, tolerance):
    costs = stream(BudgetController(chain, target=target), chain, rows(8000, 1, 0.3), batch)
    fixed = chain.at(chain.policy.within(target)).cost(rows(8000, 1, 0.3)).mean()
    assert fixed > 1.1 * target  # these rows are harder than those of the fit
    assert abs(costs[:WINDOW].mean() / target - 1) < 0.05
    np.testing.assert_allclose(means(costs[WINDOW:]), target, rtol=tolerance)


@pytest.mark.slow
def test_rows_that_become_harder_at_once_are_caught_up_with(chain):
    X = np.vstack([rows(4000, 2), rows(6000, 3, 0.8)])
    costs = stream(BudgetController(chain, target=2.0), chain, X)
    np.testing.assert_allclose(means(costs[:4000]), 2.0, rtol=0.02)
    np.testing.assert_allclose(means(costs[4000:]), 2.0, rtol=0.05)
    np.testing.assert_allclose(means(costs[6000:]), 2.0, rtol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 700])
def test_the_cap_is_never_broken_whatever_comes(chain, batch):
    controller = BudgetController(chain, target=2.0, cap=2.05, window=400)
    X = np.vstack([rows(500, 4), np.full((500, 3), 9.0), rows(500, 5)])
    costs = stream(controller, chain, X, batch)
    assert means(costs, 400).max() <= 2.05
    assert means(costs, 400)[-1] > 1.7
    uncapped = stream(BudgetController(chain, target=2.0, window=400), chain, X, batch)
    assert means(uncapped, 400).max() > 2.05


@pytest.mark.slow
def test_a_long_time_in_which_the_target_cannot_be_spent_is_no_leave_to_overspend(chain):
    easy = np.full((20_000, 3), -9.0)  # nobody goes on at any point
    controller = BudgetController(chain, target=2.0)
    stream(controller, chain, easy, 500)
    assert controller.setpoint == pytest.approx(chain.policy.cost[-1])
    costs = stream(controller, chain, rows(8000, 6))
    # The rest of one window's budget at most is spent on top.
    assert costs.sum() <= 2.0 * len(costs) + WINDOW * (chain.policy.cost[-1] - 2.0) / 2 * 1.2
    np.testing.assert_allclose(means(costs[4000:]), 2.0, rtol=0.02)


def test_with_the_rows_of_the_fit_keys_decide_about_few_rows_and_the_target_is_held(chain):
    X = rows(2000, 0)
    evidence = evidence_of(chain, X, np.zeros(len(X), dtype=int))
    lots = []
    for of_fit in (None, evidence):
        controller = BudgetController(chain, target=2.0, evidence=of_fit)
        costs = stream(controller, chain, rows(4000, 1))
        assert means(costs)[-1] == pytest.approx(2.0, rel=0.03)
        lots.append(evidence.share_by_lot(controller.chain_at_setpoint.policy))
    assert lots[1] < 0.5 * lots[0]


def test_a_target_can_be_changed_while_rows_come(chain):
    controller = BudgetController(chain, target=1.5)
    stream(controller, chain, rows(4000, 7))
    assert controller.mean_spend == pytest.approx(1.5, rel=0.02)
    controller.target = 4.0
    costs = stream(controller, chain, rows(4000, 8))
    np.testing.assert_allclose(means(costs), 4.0, rtol=0.03)
    assert (controller.target, controller.n_seen) == (4.0, 8000)
    assert controller.mean_spend == pytest.approx(costs[-WINDOW:].mean())


def test_the_same_stream_spends_the_same_row_by_row(chain):
    first, second = (
        stream(BudgetController(chain, target=2.0, cap=2.1), chain, rows(2000, 9)) for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_rows_that_hold_the_same_follow_two_points_by_their_keys_and_a_key_keeps_its_route(chain):
    slow = BudgetController(chain, target=3.0, window=10**6)  # hundreds of rows hardly move it
    policy = chain.policy.within(3.0)
    between = chain.policy.thresholds[[policy.lower, policy.upper], 0].mean()
    first, again = (stream(slow, chain, np.full((300, 3), between), 1) for _ in range(2))
    assert (first == 8.0).mean() == pytest.approx(policy.share, abs=0.1)
    assert (first != again).mean() < 0.01  # only keys whose chance lies where the setpoint has moved


def test_a_batch_in_pieces_is_one_walk_also_through_a_chain_behind(chain):
    front = replace(chain, full=chain, policy=replace(chain.policy, cost=chain.policy.cost + 0.01))
    X = rows(500, 10, 0.5)
    controller = BudgetController(front, target=3.0)
    reader = front.reader(X)
    walk = controller.walk(reader)
    np.testing.assert_array_equal(walk.rows, np.arange(500))
    assert len(walk.behind.rows) == (walk.route >= 2).sum() > 0
    np.testing.assert_array_equal(walk.route[walk.route >= 2] - 2, walk.behind.route)
    assert front.answer(reader, walk).shape == (500, 2)
    assert controller.walk(front.reader(X[:0])).route.shape == (0,)


def test_another_point_of_a_chain_does_not_compute_anew_what_all_points_share(chain):
    other = chain.ready().at(chain.policy.at(1))
    assert other.cost_by_place is chain.cost_by_place
    assert other.walker is chain.walker
    np.testing.assert_array_equal(
        other.route(rows(50, 11)), replace(chain, policy=chain.policy.at(1)).route(rows(50, 11))
    )


def test_what_cannot_be_held_is_refused_in_words(chain):
    controller = BudgetController(chain, target=2.0, cap=3.0)
    for target, words in (
        (0.5, "must lie between 1.*got 0.5"),
        (99.0, "got 99"),
        (3.5, "at most the cap of 3;"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            controller.target = target
    assert controller.target == 2.0
    with pytest.raises(InvalidInputError, match="the cap must be at least 1, what a row pays"):
        BudgetController(chain, target=2.0, cap=0.5)
    with pytest.raises(InvalidInputError, match="at least 1 row; got 0"):
        BudgetController(chain, target=2.0, window=0)
    with pytest.raises(InvalidInputError, match="whose costs are known"):
        BudgetController(chain.at(Policy.of(np.zeros(2))), target=2.0)


class Nothing(Table):
    """A source that delivers nothing."""

    is_at_hand = False
    ledger = Ledger("answer")

    def block(self, rows, columns):
        raise RowsLeftBehindError(rows)


def test_rows_that_nobody_answers_cost_nothing(chain):
    controller = BudgetController(chain, target=float(chain.policy.cost[4]))
    assert controller.walk(Nothing(rows(3, 0), None)).route.tolist() == [-1] * 3
    assert (controller.n_seen, controller.mean_spend) == (3, 0.0)


def test_rows_under_way_count_for_the_cap_as_the_dearest_there_are(chain):
    cap, window, most = float(chain.policy.cost[4]), 40, chain.cost_by_place.max()
    controller = BudgetController(chain, target=cap, window=window, cap=cap)
    begun = 0
    while not controller.capped:
        begun += controller.begin(1)[0]
    # The last one is made to stop at the first stage; the others may all pay the most.
    assert 1 < begun < window
    room = (cap - chain.cost_by_place[0]) * window / (most - chain.cost_by_place[0])
    assert begun - 1 == int(room)
    for _ in range(begun):
        controller.end(1, np.zeros(0))  # refused: nothing was paid
    controller.begin(1)
    assert not controller.capped


def test_controllers_of_two_processes_hold_one_cap_and_rows_of_a_killed_one_count_as_the_dearest(
    chain, tmp_path
):
    window, cap = 40, 2.05
    shared = shared_memory(window, 2), tmp_path / "lock", 2

    def controller(worker):
        spending = Spending(window, *shared, worker)
        return BudgetController(chain, target=2.0, cap=cap, window=window, spending=spending)

    both, X = [controller(0), controller(1)], np.full((300, 3), 9.0)  # every row would go to the full model
    costs = []
    for turn, row in enumerate(X):
        costs.append(stream(both[turn % 2], chain, row[None])[0])
        if turn == 3:
            assert both[1].begin(1)[0] == 1  # killed before it is known what this row pays
            Spending(window, *shared).settle(1)
            costs.append(chain.cost_by_place.max())
            both[1] = controller(1)
    assert means(np.array(costs), window).max() <= cap * (1 + 1e-9)
    assert means(np.array(costs), window)[-1] > 1.7
    assert both[0].n_seen == both[1].n_seen == len(costs)


def test_rows_under_way_in_another_process_count_against_the_cap(chain, tmp_path):
    memory, lock = shared_memory(20, 2), tmp_path / "lock"
    spendings = [Spending(20, memory, lock, 2, worker) for worker in range(2)]
    one, other = (
        BudgetController(chain, target=2.0, cap=2.0, window=20, spending=spending) for spending in spendings
    )
    begun = 0
    while not one.capped:
        begun += one.begin(1)[0]
    other.begin(1)
    assert begun > 1
    assert other.capped


def test_a_file_that_is_cut_or_a_full_disk_ends_no_process(chain, tmp_path):
    memory = shared_memory(WINDOW, 2)
    spending = Spending(WINDOW, memory, tmp_path / "lock", 2)
    for path in tmp_path.iterdir():
        path.write_bytes(b"")  # memory mapped from it would end the process at the next row
    costs = stream(BudgetController(chain, target=2.0, spending=spending), chain, rows(100, 12))
    assert Spending(WINDOW, memory, tmp_path / "lock", 2, 1).latest.sum() == spending.latest.sum()
    assert spending.state["n_seen"] == len(costs) == 100
