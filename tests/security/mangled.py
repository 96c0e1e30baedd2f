"""Strategies for data from outside: anything at all, and valid examples with some characters or bytes changed."""

from collections.abc import Sequence

from hypothesis import strategies as st

ODD = "\x00\x1b\x7f\ud800\u202e\U0001f680'\"%;:,@/\\?&#=+-_.*0123456789aZ {}[]()<>\n\r\t"


@st.composite
def text_like(draw: st.DrawFn, examples: Sequence[str]) -> str:
    """A valid example with pieces taken out, put in and repeated."""
    text = draw(st.sampled_from(examples))
    for _ in range(draw(st.integers(0, 5))):
        at, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        piece = draw(st.one_of(st.text(ODD, max_size=4), st.text(max_size=4), st.sampled_from(examples)))
        text = text[:at] + piece + text[end if draw(st.booleans()) else at :]
    return text[:5000]


@st.composite
def bytes_like(draw: st.DrawFn, examples: Sequence[bytes]) -> bytes:
    data = bytearray(draw(st.sampled_from(examples)))
    for _ in range(draw(st.integers(0, 6))):
        at, end = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
        data[at : end if draw(st.booleans()) else at] = draw(st.binary(max_size=6))
    return bytes(data[:20_000])


def texts(*examples: str) -> st.SearchStrategy[str]:
    return st.one_of(text_like(examples), st.text(max_size=60))


def data(*examples: bytes) -> st.SearchStrategy[bytes]:
    return st.one_of(bytes_like(examples), st.binary(max_size=60))
