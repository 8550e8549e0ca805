"""Breakers, on a clock that the test moves."""

import pytest

from thrifty.errors import InvalidInputError
from thrifty.serve.remote import Breaker


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def breaker(clock):
    return Breaker(failures=5, share=0.5, window=20, pause=1.0, clock=clock)


def call(breaker, is_good):
    assert breaker.allows()
    (breaker.succeeded if is_good else breaker.failed)()


def test_it_opens_after_five_failures_in_a_row_and_not_after_four(breaker):
    for is_good in (False, False, False, False, True, False, False, False, False):
        call(breaker, is_good)
    assert breaker.state == "closed"
    call(breaker, False)
    assert (breaker.state, breaker.allows(), breaker.n_opened) == ("open", False, 1)


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
    assert not breaker.allows()
    clock.now = 1.0
    assert [breaker.allows(), breaker.allows(), breaker.state] == [True, False, "half_open"]
    breaker.succeeded()
    assert breaker.state == "closed"
    for _ in range(4):  # what came before the pause is forgotten
        call(breaker, False)
    assert breaker.state == "closed"


def test_a_probe_that_fails_opens_it_for_another_pause(breaker, clock):
    for _ in range(5):
        call(breaker, False)
    clock.now = 1.5
    call(breaker, False)
    assert (breaker.state, breaker.n_opened) == ("open", 2)
    clock.now = 2.4
    assert not breaker.allows()
    clock.now = 2.5
    assert breaker.allows()


def test_calls_that_were_under_way_when_it_opened_do_not_make_the_pause_longer(breaker, clock):
    for _ in range(5):
        call(breaker, False)
    clock.now = 0.9
    breaker.failed()
    clock.now = 1.0
    assert breaker.allows()


def test_a_probe_that_nobody_waited_for_leaves_room_for_another(breaker, clock):
    for _ in range(5):
        call(breaker, False)
    clock.now = 1.0
    assert breaker.allows()
    breaker.abandoned()
    assert breaker.allows()


def test_settings_of_which_no_breaker_can_be_made_are_refused():
    with pytest.raises(InvalidInputError, match="share in .*got 5 failures, a share of 0.0"):
        Breaker(share=0.0)
