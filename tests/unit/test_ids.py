"""Ids that grow, also within a millisecond, across threads and forks; tokens that nobody guesses."""

import itertools
import os
import re
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskharbor.drivers import check_name
from taskharbor.model.ids import IdSource, new_id, new_tokens

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LAST = 253402300799999  # the last millisecond of 9999


def number(text: str) -> int:
    value = 0
    for character in text:
        value = value * 32 + ALPHABET.index(character)
    return value


@given(st.integers(0, LAST))
def test_an_id_is_a_ulid_of_its_millisecond(milliseconds: int):
    made = IdSource().make(milliseconds)
    assert re.fullmatch(f"[0-7][{ALPHABET}]{{25}}", made)
    assert number(made) >> 80 == milliseconds
    check_name(made, "id")


@given(st.lists(st.integers(0, LAST), min_size=2, max_size=50))
def test_ids_grow_whatever_the_clock_does(moments: list[int]):
    source = IdSource()
    made = [source.make(moment) for moment in moments]
    assert made == sorted(set(made))


def test_ids_of_one_millisecond_are_far_enough_apart_to_be_unguessable():
    source = IdSource()
    made = [number(source.make(5)) for _ in range(1000)]
    gaps = {second - first for first, second in itertools.pairwise(made)}
    assert len(gaps) > 990
    assert all(gap >= 1 for gap in gaps)


def test_the_end_of_a_milliseconds_space_is_passed_in_order(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("taskharbor.model.ids.secrets.randbits", lambda bits: 2**bits - 1)
    source = IdSource()
    source._last = (5 << 80) | (2**80 - 1)
    following = source.make(5)
    assert number(following) > (5 << 80) | (2**80 - 1)
    assert source.make(6) > following


def test_threads_never_make_the_same_id():
    made: list[str] = []
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait()
        own = [new_id(5) for _ in range(2000)]
        assert own == sorted(own)
        made.extend(own)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == len(made) == 16_000


def in_child(function: Any) -> bytes:
    """What a forked child answers."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, function())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


def test_a_forked_child_makes_other_ids_and_does_not_wait_for_its_parents_lock():
    source = IdSource()
    source.make(5)
    with source._lock:
        theirs = in_child(lambda: source.make(5).encode()).decode()
    assert len(theirs) == 26
    assert abs(number(theirs) - number(source.make(5))) > 2**40


@pytest.mark.parametrize("count", [0, 1, 500])
def test_tokens_are_128_bits_each_and_all_different(count: int):
    tokens = list(new_tokens(count))
    assert len(set(tokens)) == len(tokens) == count
    assert all(re.fullmatch("[0-9a-f]{32}", token) for token in tokens)
