"""Values are found in error text however they are quoted, at a cost that does not grow with what does not matter."""

import json
import random
import string
import tracemalloc
from urllib.parse import quote, quote_plus

from hypothesis import example, given
from hypothesis import strategies as st

from taskharbor.drivers import JobRecord
from taskharbor.model.bounds import MAX_ERROR_BYTES, clean_error
from taskharbor.policy.mask import MASK, RUN, SHORTEST, Finder, mask, scalars
from taskharbor.store.redaction import HIDDEN

MEGABYTE = 1_000_000

texts = st.text(max_size=40) | st.text(alphabet="ab\\'\"\n é", max_size=40)
values = st.recursive(
    texts | st.integers() | st.floats(allow_nan=False) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["to", "card"]), inner, max_size=3),
    max_leaves=8,
)


def quoted(value: object) -> list[str]:
    """Every way in which a handler's error is likely to repeat a value, if it is long enough to be hidden."""
    if isinstance(value, str):
        forms = [value, value.strip(), repr(value)[1:-1], json.dumps(value)[1:-1], clean_error(value)]
        sent = value.strip().encode(errors="replace")
        forms += [quote(sent), quote(sent, safe=""), quote_plus(sent)]
        return forms if len(value.strip()) >= SHORTEST else []
    return [] if isinstance(value, bool) or value is None else [str(value)]


def plainly(text: str, given: list[str]) -> str:
    """The same by the simplest means: every value, and every run of sixteen characters of one."""
    hidden = [False] * len(text)
    pieces = {value for value in given if len(value) >= SHORTEST}
    pieces |= {value[at : at + RUN] for value in given for at in range(len(value) - RUN + 1)}
    for piece in pieces:
        at = text.find(piece)
        while at >= 0:
            hidden[at : at + len(piece)] = [True] * len(piece)
            at = text.find(piece, at + 1)
    return "".join(
        MASK if hide and not (at and hidden[at - 1]) else "" if hide else text[at] for at, hide in enumerate(hidden)
    )


@given(st.lists(values, max_size=4), st.data())
def test_a_quoted_value_is_masked_completely(given: list[object], data: st.DataObject):
    forms = [form for value in given for each in scalars(value) for form in quoted(each)]
    parts = data.draw(st.lists(st.sampled_from(["ValueError: ", " no\n", *forms]) | st.text(max_size=8), max_size=6))
    text = "".join(parts)
    (masked,) = mask([text], given)
    left = masked.split(MASK)
    for form in forms:
        if len(form.strip()) >= SHORTEST:  # a number may be shorter
            assert all(form not in part for part in left), (text, form)
        assert all(form[at : at + RUN] not in part for at in range(len(form) - RUN + 1) for part in left)


words = st.text(alphabet=string.ascii_lowercase, max_size=40)


@given(st.lists(words, max_size=5), st.data())
@example(["a" * 40], None)
def test_other_text_is_not_masked(given: list[str], data: st.DataObject | None):
    parts = ["a" * 20] if data is None else data.draw(st.lists(words | st.sampled_from([*given, "x"]), max_size=6))
    text = " ".join(parts)
    assert mask([text], list(given)) == [plainly(text, given)]


def test_a_value_in_an_address_is_hidden():
    """As HTTP clients write it into their errors."""
    error = "HTTPError: 403 for https://pay.example/charge?key=sk%2Flive%2B9%3D%3D&who=ada+l%C3%B6we"
    masked = "HTTPError: 403 for https://pay.example/charge?key=•••&who=•••"
    assert mask([error], [{"key": "sk/live+9==", "who": "ada löwe"}]) == [masked]


def test_a_value_cut_off_at_the_end_of_a_long_error_is_masked():
    for kept in range(SHORTEST, RUN + 2):
        text = clean_error("ValueError: " + "." * (MAX_ERROR_BYTES - 12 - kept) + "4929-1234-5678-9012-canary")
        assert text.endswith("4929-1234-5678-9012-canary"[:kept])
        (masked,) = mask([text], ["4929-1234-5678-9012-canary"])
        assert masked.endswith(f".{MASK}")


def test_keys_that_are_data_are_hidden_and_names_are_not():
    payload = {"recipients": {"ada@example.com": {"plan": "free"}}}
    (text,) = mask(["KeyError: 'ada@example.com' in recipients at plan"], [payload])
    assert text == f"KeyError: '{MASK}' in recipients at plan"


def test_a_value_that_contains_itself_is_visited_once():
    ring: list[object] = ["canary-4711"]
    ring.append(ring)
    assert mask(["no canary-4711"], [ring]) == [f"no {MASK}"]


# What it costs


def error_of(size: int = MAX_ERROR_BYTES) -> str:
    generator = random.Random(1)
    return "ValueError: " + "".join(generator.choices(string.ascii_letters + " \n", k=size - 12))


def long_text() -> str:
    return "".join(random.Random(2).choices(string.ascii_letters, k=MEGABYTE))


def test_a_megabyte_is_checked_at_every_ninth_character():
    finder = Finder(["failed 1 of 1 attempts", error_of()])
    finder.look_for([long_text()])
    assert finder.lookups < MEGABYTE / 8


def test_many_values_are_checked_once_each():
    finder = Finder(["failed 1 of 1 attempts", error_of()])
    finder.look_for([f"{number:x}-{number * 7919:x}" for number in range(75_000)])
    assert finder.lookups < 2 * 75_000


def test_a_repetitive_value_and_error_cost_no_more():
    for text, value in (("a" * MAX_ERROR_BYTES, "a" * MEGABYTE), (error_of(), error_of() * 120)):
        finder = Finder([text])
        finder.look_for([value])
        assert finder.lookups < MEGABYTE / 4
        assert finder.masked(text) == MASK


def test_hiding_a_megabyte_takes_little_memory():
    """Of fifty such jobs on a page each is looked at for itself, so what one takes is what the command takes."""
    payload = json.dumps({"text": long_text()}).encode()
    job = JobRecord(id="j1", type="x", payload=payload, reason="failed 1 of 1 attempts", last_error=error_of())
    tracemalloc.start()
    try:
        why = HIDDEN.why(job)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert why.startswith("failed 1 of 1 attempts: ValueError")
    assert peak < 20 * MEGABYTE
