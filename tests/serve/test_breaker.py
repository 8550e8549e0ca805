"""Circuit breakers, on a clock that the test moves."""

import contextlib

import pytest

from thrifty.engine.purchases.retry import CircuitBreaker
from thrifty.errors import InvalidInputError, RemoteFailure


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def breaker(clock):
    return CircuitBreaker(failures=5, share=0.5, window=20, pause=1.0, clock=clock)


def call(breaker, is_good):
    with contextlib.suppress(ConnectionError), breaker.attempt():
        if not is_good:
            raise ConnectionError


def refusal(breaker):
    """Why a call is refused now; None if it goes through."""
    try:
        call(breaker, True)
    except RemoteFailure as failure:
        return failure.reason
    return None


def test_it_opens_after_five_failures_in_a_row_and_not_after_four(breaker):
    for is_good in (False, False, False, False, True, False, False, False, False):
        call(breaker, is_good)
    assert breaker.state == "closed"
    call(breaker, False)
    assert (breaker.state, refusal(breaker)) == ("open", "breaker_open")


def test_it_opens_when_half_of_the_latest_twenty_failed_and_not_before_there_are_twenty(breaker):
    for place in range(19):
        call(breaker, place % 2 == 1)
    assert breaker.state == "closed"
    call(breaker, True)
    assert breaker.state == "closed"  # only failures open it
    call(breaker, False)
    assert breaker.state == "open"


def test_after_the_pause_one_probe_goes_through_and_its_answer_closes_it(breaker, clock):
    for _ in range(5):
        call(breaker, False)
    clock.now = 0.99
    assert refusal(breaker) == "breaker_open"
    clock.now = 1.0
    with breaker.attempt():
        assert (breaker.state, refusal(breaker)) == ("half_open", "breaker_open")
    assert breaker.state == "closed"
    for _ in range(4):  # what came before the pause is forgotten
        call(breaker, False)
    assert breaker.state == "closed"


def test_a_probe_that_fails_opens_it_for_another_pause(breaker, clock):
    for _ in range(5):
        call(breaker, False)
    clock.now = 1.5
    call(breaker, False)
    clock.now = 2.4
    assert refusal(breaker) == "breaker_open"
    clock.now = 2.5
    assert refusal(breaker) is None


def test_calls_that_were_under_way_when_it_opened_do_not_make_the_pause_longer(breaker, clock):
    with contextlib.suppress(ConnectionError), breaker.attempt():
        for _ in range(5):
            call(breaker, False)
        clock.now = 0.9
        raise ConnectionError
    clock.now = 1.0
    assert refusal(breaker) is None


def test_a_probe_that_was_cancelled_leaves_room_for_another(breaker, clock):
    for _ in range(5):
        call(breaker, False)
    clock.now = 1.0
    with contextlib.suppress(KeyboardInterrupt), breaker.attempt():
        raise KeyboardInterrupt
    assert refusal(breaker) is None


def test_one_call_too_many_at_the_same_time_is_refused_and_is_no_failure_of_the_service():
    breaker = CircuitBreaker(failures=1, max_in_flight=1)
    with breaker.attempt():
        assert refusal(breaker) == "too_many_in_flight"
    assert (refusal(breaker), breaker.in_flight) == (None, 0)


def test_settings_of_which_no_breaker_can_be_made_are_refused():
    with pytest.raises(InvalidInputError, match="share in .*got 5 failures, a share of 0.0"):
        CircuitBreaker(share=0.0)
