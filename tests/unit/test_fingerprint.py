"""What a failure is known by: the class of its error and the fingerprint of its cause."""

import functools
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from taskharbor import Unrecoverable
from taskharbor.model.bounds import check_label
from taskharbor.policy.fingerprint import cause_named, cause_of, note_origin, origin_of

HERE = __name__


def raised(function: Callable[[], Any]) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("it did not raise")


def fails(text: str) -> None:
    raise ValueError(text)


def parses() -> None:
    json.loads("{")


def compiled(source: str, filename: str, module: str) -> Callable[[], None]:
    """A function `run` as if it were in another file."""
    names: dict[str, Any] = {"__name__": module}
    exec(compile(source, filename, "exec"), names)  # source of this test
    run: Callable[[], None] = names["run"]
    return run


def test_a_class_has_its_module_but_builtins_and_ours_have_none_inside() -> None:
    assert origin_of(KeyError("k"))[0] == "KeyError"
    assert origin_of(json.JSONDecodeError("m", "d", 0))[0] == "json.decoder.JSONDecodeError"
    assert origin_of(Unrecoverable("r"))[0] == "taskharbor.Unrecoverable"


def test_the_fingerprint_is_16_hex_digits_of_type_class_and_place() -> None:
    first, second = raised(lambda: fails("a")), raised(lambda: fails("b"))
    cause = cause_of("t", first)
    assert re.fullmatch("[0-9a-f]{16}", cause.fingerprint)
    assert cause == cause_of("t", second), "another text is the same cause"
    others = [
        cause_of("other", first),
        cause_of("t", raised(lambda: int("x"))),
        cause_of("t", ValueError("no traceback")),
        cause_named("t", "KeyError", f"{HERE}:fails"),
    ]
    assert len({cause.fingerprint, *(each.fingerprint for each in others)}) == 5
    assert cause_of("t", ValueError()) == cause_named("t", "ValueError")


def test_the_place_is_the_deepest_function_of_the_application_without_its_line() -> None:
    assert origin_of(raised(parses))[1] == f"{HERE}:parses"
    source = "def run():\n    raise ValueError"
    moved = "\n\n\n" + source
    places = {origin_of(raised(compiled(text, "/srv/app/mail.py", "app.mail")))[1] for text in (source, moved)}
    assert places == {"app.mail:run"}


@pytest.mark.parametrize("filename", ["/srv/lib/site-packages/client/api.py", "/usr/lib/dist-packages/client/api.py"])
def test_installed_packages_are_not_the_application(filename: str) -> None:
    library = compiled("def run():\n    raise ValueError", filename, "client.api")

    def job() -> None:
        library()

    assert origin_of(raised(job))[1].endswith("<locals>.job")


def test_an_application_that_is_installed_is_one_all_the_same() -> None:
    source = "import json\ndef run():\n    json.loads('{')"
    handler = compiled(source, "/srv/lib/site-packages/shop/mail.py", "shop.mail")
    assert origin_of(raised(handler), handler)[1] == "shop.mail:run"
    assert origin_of(raised(handler), functools.partial(handler))[1] == "shop.mail:run"


def test_without_a_frame_of_the_application_the_deepest_one_counts_and_ours_never() -> None:
    run = compiled("import json\ndef run():\n    json.loads('{')", "/srv/lib/site-packages/client/api.py", "client.api")
    error = raised(run)
    error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None  # without this test's frame
    assert origin_of(error)[1] == "json.decoder:JSONDecoder.raw_decode"
    ours = raised(lambda: check_label(1, "x"))
    assert ours.__traceback__ is not None
    ours.__traceback__ = ours.__traceback__.tb_next and ours.__traceback__.tb_next.tb_next
    assert origin_of(ours) == ("taskharbor.InvalidJob", "")


def test_what_was_noted_in_another_process_counts() -> None:
    error = RuntimeError("a stand-in")
    note_origin(error, "app.Strange", "app.mail:send")
    assert cause_of("t", error) == cause_named("t", "app.Strange", "app.mail:send")


class Shifty(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(name)


class Hostile(Exception, metaclass=Shifty):
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Secretive(Exception):
    @property
    def __dict__(self) -> Any:  # type: ignore[override]  # a hostile one
        raise RuntimeError

    @property
    def __traceback__(self) -> Any:  # type: ignore[override]  # a hostile one
        raise RuntimeError


def lying() -> BaseException:
    error = ValueError()
    error.__dict__["__taskharbor_origin__"] = (7, object())
    return error


ODD: dict[str, Callable[[], BaseException]] = {
    "hostile": Hostile,
    "secretive": Secretive,
    "lying": lying,
    "long": type("L" * 400, (Exception,), {}),
    "accented": type("é" * 200, (Exception,), {}),
    "not text": type("N", (Exception,), {"__module__": "a\ud800\x00b"}),
    "no module": type("N", (Exception,), {"__module__": 7}),
}


@pytest.mark.parametrize("kind", ODD)
def test_whatever_an_exception_does_its_labels_can_be_stored(kind: str) -> None:
    class Nameless:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

        def __call__(self) -> None: ...

    def fail() -> None:
        raise ODD[kind]()

    cause = cause_of("t", raised(fail), Nameless())
    check_label(cause.error_class, "error_class")
    check_label(cause.fingerprint, "fingerprint")
    assert len(cause.fingerprint) == 16
