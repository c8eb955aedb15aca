"""Guessing tokens gets slower with every wrong one."""

from __future__ import annotations

from paceline.web.login_delay import FREE_TRIES, LONGEST_SECONDS, MOST_ADDRESSES, LoginDelay


def test_the_delay_doubles_after_the_free_tries_and_ends_with_the_right_token() -> None:
    now = [0.0]
    delay = LoginDelay(lambda: now[0])
    for _ in range(FREE_TRIES):
        delay.note_wrong("a")
        assert delay.seconds_left("a") == 0
    delay.note_wrong("a")
    assert delay.seconds_left("a") == 1.0
    now[0] = 0.75
    assert delay.seconds_left("a") == 0.25
    delay.note_wrong("a")
    assert delay.seconds_left("a") == 2.0
    assert delay.seconds_left("b") == 0
    for _ in range(40):
        delay.note_wrong("a")
    assert delay.seconds_left("a") == LONGEST_SECONDS
    delay.note_right("a")
    assert delay.seconds_left("a") == 0


def test_addresses_are_forgotten_beyond_a_number() -> None:
    delay = LoginDelay(lambda: 0.0)
    for address in range(MOST_ADDRESSES + 1):
        for _ in range(FREE_TRIES + 1):
            delay.note_wrong(str(address))
    assert delay.seconds_left("0") == 0
    assert delay.seconds_left("1") == 1.0
