"""A command for which the system has no memory, thread or file says that, in one sentence."""

import errno

import pytest

from taskharbor.cli.errors import EXIT_BUG, EXIT_REFUSED, explained


@pytest.mark.parametrize(
    ("error", "lacking"),
    [
        (MemoryError(), "no memory is left"),
        (RuntimeError("can't start new thread"), "no further thread can be started"),
        (OSError(errno.EMFILE, "x", "/secret/path"), "Too many open files"),
        (BlockingIOError(errno.EAGAIN, "fork"), "Resource temporarily unavailable"),
    ],
)
def test_what_the_system_lacks_is_named(error: BaseException, lacking: str) -> None:
    text, code = explained(error)
    assert code == EXIT_REFUSED
    assert text.startswith(f"the system does not have what it needs: {lacking}; look at the limits of memory")
    assert "secret" not in text


def test_another_error_of_the_runtime_is_a_bug() -> None:
    assert explained(RuntimeError("set changed size"))[1] == EXIT_BUG
