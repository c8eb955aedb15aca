"""Steps recovered from a repeated program: loops with layers, noise, unfinished ends; and recordings that repeat nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.formats.repeated_program import repeated_program


def bounds_of(text: str, *, pauses: dict[str, int] | None = None) -> list[int] | None:
    """One letter per launch; `pauses`: before which letters the host paused."""
    letters = sorted(set(text))
    names = np.array([letters.index(letter) for letter in text], dtype=np.int64)
    times = np.cumsum([1 + (pauses or {}).get(letter, 0) for letter in text]).astype(np.int64)
    found = repeated_program(names, times)
    return None if found is None else found.bounds.tolist()


STEP = "e" + "lmno" * 3 + "h" + "NMOL" * 3 + "uvw"


def test_a_loop_of_whole_steps_begins_with_the_recording() -> None:
    assert bounds_of(STEP * 4) == [len(STEP) * at for at in range(5)]


def test_two_steps_are_enough() -> None:
    assert bounds_of(STEP * 2) == [0, len(STEP), 2 * len(STEP)]


def test_one_step_with_equal_layers_repeats_nothing() -> None:
    assert bounds_of(STEP) is None
    assert bounds_of("e" + "lmno" * 32 + "hijk") is None


def test_a_loop_cut_in_the_middle_begins_where_the_host_paused() -> None:
    cut = (STEP * 5)[7:-4]
    first = len(STEP) - 7
    assert bounds_of(cut, pauses={"e": 50}) == [first + len(STEP) * at for at in range(4)]


def test_a_print_every_second_step_does_not_make_two_steps_one() -> None:
    # Of 12 names one is not in every step.
    text = (STEP + STEP + "p") * 3
    found = bounds_of(text)
    assert found is not None and len(found) == 7


def test_different_programs_one_after_the_other_repeat_nothing() -> None:
    assert bounds_of("abcdefgh" + "ijklmnop") is None
    assert bounds_of("aaaabbbbccccdddd") is None
    assert bounds_of("aaaaaaaa") is None
    assert bounds_of("abababab") is None
    assert bounds_of("") is None
    assert bounds_of("a") is None


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_steps_of_a_random_program_are_found(seed: int) -> None:
    random = np.random.default_rng(seed)
    once = random.permutation(np.arange(20))
    layer = 20 + random.integers(0, 6, random.integers(2, 9))
    layers = int(random.integers(1, 9))
    step = np.concatenate([once[:8], *[layer] * layers, once[8:]])
    count = int(random.integers(2, 8))
    names = np.concatenate([step] * count)
    _, names = np.unique(names, return_inverse=True)
    found = repeated_program(names.astype(np.int64), np.arange(len(names)) * 10)
    assert found is not None
    assert found.bounds.tolist() == [len(step) * at for at in range(count + 1)]
