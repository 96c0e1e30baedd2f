"""From a DSN to a driver: clear errors, drivers of other packages, and never a password in a text."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskharbor import Client, Harbor, Worker
from taskharbor.drivers import open_driver, registry
from taskharbor.drivers.dsn import options_of, redact, scheme_of, span
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.drivers.registry import DEFAULT_DSN, resolve_dsn

# Opening


def test_the_scheme_names_the_driver_in_any_case():
    assert isinstance(open_driver("memory://"), MemoryDriver)
    assert isinstance(open_driver("MEMORY://x"), MemoryDriver)


@pytest.mark.parametrize("dsn", ["jobs.db", "/var/jobs.db", "://x", "5://x", " memory://", "s3cret"])
def test_an_address_without_a_scheme_is_refused_with_an_example(dsn: str):
    with pytest.raises(
        ValueError, match=r"expected a DSN such as sqlite:///jobs.db.*, got one without a scheme"
    ) as caught:
        open_driver(dsn)
    assert "s3cret" not in str(caught.value)


def test_an_unknown_scheme_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"^no driver for mongo://; installed are: .*memory://"):
        open_driver("mongo://app:s3cret@db")


@pytest.mark.parametrize(
    ("dsn", "told"),
    [
        (
            "postgresql+asyncpg://app:s3cret@db/x",
            "no driver for postgresql+asyncpg://; leave out +asyncpg: postgresql://…",
        ),
        ("sqlite+aiosqlite:///jobs.db", "no driver for sqlite+aiosqlite://; leave out +aiosqlite: sqlite://…"),
        ("postgre://app:s3cret@db/x", "did you mean postgres://? installed are: "),
        ("rediss+cluster://app:s3cret@db/x", "did you mean redis+cluster://? installed are: "),
        ("rediss+sentinel://app:s3cret@db/x", "did you mean redis+sentinel://? installed are: "),
        ("psql://app:s3cret@db/x", "did you mean postgresql://? installed are: "),
        ("postgresql://app:half@s3cret@db/x", "it cannot be read; write any of / ? # @ : % in a password as %2F"),
        ("postgresql://app:half#s3cret@db/x", "it cannot be read; write any of / ? # @ : % in a password as %2F"),
        ("sqlite:jobs.db", "sqlite:…: expected two slashes behind the colon, such as sqlite:///jobs.db, with three"),
        ("sqlite:/var/jobs.db", "sqlite:…: expected two slashes behind the colon"),
        (
            "postgresql:app:s3cret@db/x",
            "postgresql:…: expected two slashes behind the colon, such as postgresql://host",
        ),
        ("memory:", "memory:…: expected two slashes behind the colon, such as memory://"),
    ],
)
def test_a_misspelt_scheme_is_refused_with_the_nearest_one(dsn: str, told: str):
    with pytest.raises(ValueError, match=r"s") as caught:
        open_driver(dsn)
    assert told in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "leave out +sentinel" not in str(caught.value)  # redis:// would be another server


def test_a_driver_whose_library_is_missing_is_not_called_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "find_spec", lambda name: None if name == "psycopg" else name)
    with pytest.raises(ValueError, match="no driver for mongo") as caught:
        open_driver("mongo://x")
    told = str(caught.value)
    installed, _, rest = told.partition("; with pip install 'taskharbor[postgres]': ")
    assert "postgres" not in installed
    assert "redis://" in installed
    assert rest.startswith("postgres://, postgresql://")


@pytest.mark.parametrize("dsn", [None, 5, b"memory://", Path("jobs.db")])
def test_a_dsn_that_is_not_text_is_a_type_error(dsn: Any):
    with pytest.raises(TypeError, match=f"^expected a DSN \\(text\\), got {type(dsn).__name__}$"):
        open_driver(dsn)


def test_an_error_of_a_driver_is_raised_with_the_redacted_dsn():
    with pytest.raises(ValueError, match=r"^memory://jobs\?…: unknown option 'retension' in the DSN; expected one of"):
        open_driver("memory://jobs?retension=1h")


def test_argument_environment_and_default_in_this_order(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TASKHARBOR_DSN", raising=False)
    assert resolve_dsn(None) == DEFAULT_DSN
    monkeypatch.setenv("TASKHARBOR_DSN", "memory://env")
    assert resolve_dsn(None) == "memory://env"
    assert resolve_dsn("memory://given") == "memory://given"


@pytest.mark.parametrize("empty", ["", " ", "\n"])
def test_an_empty_address_is_refused_wherever_it_comes_from(monkeypatch: pytest.MonkeyPatch, empty: str):
    for use in (resolve_dsn, open_driver, Harbor, Client, Worker):
        with pytest.raises(ValueError, match=r"got an empty one; is the setting that it comes from set\?$"):
            use(empty)
    monkeypatch.setenv("TASKHARBOR_DSN", empty)
    for use in (resolve_dsn, Harbor, Client):
        with pytest.raises(ValueError, match=r"^\$TASKHARBOR_DSN is set, but empty; give it a DSN .* or unset it"):
            use(None)
    assert resolve_dsn("memory://") == "memory://"


def test_an_environment_that_becomes_empty_fails_at_the_first_call_not_in_a_repr(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TASKHARBOR_DSN", raising=False)
    harbor = Harbor()
    monkeypatch.setenv("TASKHARBOR_DSN", "")
    assert repr(harbor) == "Harbor('…')"
    with pytest.raises(ValueError, match="is set, but empty"):
        harbor.driver  # noqa: B018 - the access is the test


def test_the_default_store_is_logged_once_with_its_whole_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TASKHARBOR_DSN", raising=False)
    harbor = Harbor()
    assert not caplog.records, "making one says nothing: the address may still come"
    for each in (harbor, harbor, Harbor()):
        assert each.driver is not None
    (told,) = caplog.records
    assert told.levelname == "WARNING"
    assert told.getMessage() == (
        f"no store was named, so jobs are kept in the file {tmp_path}/taskharbor.db; name one with Harbor(dsn) or "
        "$TASKHARBOR_DSN"
    )
    caplog.clear()
    assert Harbor(DEFAULT_DSN).driver is not None, "a caller that names it is not warned"
    monkeypatch.setenv("TASKHARBOR_DSN", DEFAULT_DSN)
    assert Harbor().driver is not None
    assert not caplog.records


# Drivers of other packages


class Packages:
    """Distributions that exist for one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, name: str, points: str, **modules: str) -> None:
        info = self.folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[taskharbor.drivers]\n{points}\n")
        for module, source in modules.items():
            (self.folder / f"{module}.py").write_text(source)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield Packages(tmp_path)
    for name in set(sys.modules) - before:
        if name.startswith("outside_"):
            del sys.modules[name]


OUTSIDE = """
from taskharbor.drivers import Driver


class make(Driver):
    def __init__(self, dsn):
        self.dsn = dsn
"""


def test_a_driver_of_another_package_is_found_by_its_entry_point(packages: Packages):
    packages.add("one", "Stone+wall = outside_one:make", outside_one=OUTSIDE)
    made: Any = open_driver("stone+wall://here?x=1")
    assert made.dsn == "stone+wall://here?x=1"


def test_something_else_than_a_driver_is_refused(packages: Packages):
    packages.add("one", "stone = outside_one:make", outside_one="def make(dsn):\n    return ('made', dsn)\n")
    with pytest.raises(TypeError, match=r"stone:// made a tuple: expected a subclass of taskharbor\.drivers\.Driver"):
        open_driver("stone://app:s3cret@db")


@pytest.mark.parametrize(("scheme", "extra"), [("granite", "redis"), ("granite+cluster", "postgres")])
@pytest.mark.parametrize("when", ["import", "call"])
def test_a_missing_extra_is_one_line_that_names_it(
    packages: Packages, monkeypatch: pytest.MonkeyPatch, scheme: str, extra: str, when: str
):
    monkeypatch.setitem(registry._EXTRAS, scheme, extra)
    source = "import outside_nowhere\n" if when == "import" else "def make(dsn):\n    import outside_nowhere\n"
    packages.add("two", f"{scheme} = outside_two:make", outside_two=source)
    with pytest.raises(ModuleNotFoundError) as caught:
        open_driver(f"{scheme}://app:s3cret@db")
    assert str(caught.value) == f"{scheme}:// needs the module outside_nowhere: pip install 'taskharbor[{extra}]'"


def test_a_missing_module_of_another_package_is_named(packages: Packages):
    packages.add("three", "stone = outside_three:make", outside_three="import outside_nowhere\n")
    said = "stone:// needs the module outside_nowhere: install the package that provides outside_nowhere"
    with pytest.raises(ModuleNotFoundError, match=f"^{said}$"):
        open_driver("stone://")


def test_two_packages_for_one_scheme_are_a_conflict_that_names_both(packages: Packages):
    packages.add("four", "stone = outside_four:make", outside_four="make = list\n")
    packages.add("five", "stone = outside_five:make", outside_five="make = list\n")
    said = "^expected one driver for stone://, got outside_five:make and outside_four:make; uninstall one$"
    with pytest.raises(ValueError, match=said):
        open_driver("stone://")


def test_an_entry_point_that_cannot_be_imported_is_named(packages: Packages):
    packages.add("six", "stone = outside_six:make\nbrick = outside_six:text", outside_six="text = 'no driver'\n")
    with pytest.raises(ImportError, match=r"^stone:// is declared as outside_six:make, which does not exist"):
        open_driver("stone://")
    with pytest.raises(TypeError, match=r"^brick:// is declared as outside_six:text: expected a callable, got str"):
        open_driver("brick://")


# Secrets

secrets = st.text(alphabet="/?#@:%abc[]&=+ ;,'\"\\é\u2100\n", max_size=12).map(lambda text: f"QQ1{text}QQ2")
shapes = st.sampled_from(
    [
        "postgresql://app:{}@db.example:5432/jobs",
        "postgresql://app:{}@db.example/jobs?sslmode=require",
        "postgresql://app:{}@[::1]:5432/jobs",
        "redis://:{}@cache:6379/0",
        "redis://{}@cache:6379/0",
        "redis+cluster://u:{}@a:1,b:2/0",
        "postgresql://db/jobs?password={}",
        "postgresql://app@db/jobs?user=x&password={}#there",
        "postgresql:app:{}@db",
        "memory://app:{}@x",
        "memory://x?password={}",
        "//app:{}@db",
    ]
)


def leaks(text: str) -> bool:
    return "QQ1" in text or "QQ2" in text


@given(shapes, secrets, st.booleans())
def test_no_part_of_a_password_is_in_a_redacted_dsn(shape: str, secret: str, escaped: bool):
    assert not leaks(redact(shape.format(quote(secret, safe="") if escaped else secret)))


def quoting(dsn: str) -> Any:
    """A driver as the standard library tempts one to write it: its errors quote the address."""
    parts = urlsplit(dsn)
    if parts.port is None:
        options_of(dsn, frozenset())
    raise ValueError(f"cannot connect with {parts.username!r}, {parts.password!r} to {parts.netloc!r}")


@given(shapes, secrets, st.booleans())
def test_no_part_of_a_password_is_in_an_error(shape: str, secret: str, escaped: bool):
    dsn = shape.format(quote(secret, safe="") if escaped else secret)
    said = ""
    with pytest.MonkeyPatch.context() as patch:
        if not dsn.startswith("memory:"):
            patch.setattr("taskharbor.drivers.registry._factory", lambda scheme: quoting)
        try:
            open_driver(dsn)
        except ValueError as error:
            said = str(error)
    assert not leaks(said)


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("memory://", "memory://"),
        ("memory://jobs", "memory://jobs"),
        ("sqlite:///var/jobs.db?retention=1h", "sqlite:///var/jobs.db?…"),
        ("postgresql://db:5432/jobs", "postgresql://db:5432/jobs"),
        ("postgresql://app@db/jobs", "postgresql://…@db/jobs"),
        ("postgresql://app:a/b@db/jobs", "postgresql://…@db/jobs"),
        ("postgresql://app:a?b@db/jobs", "postgresql://…"),
        ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
        ("redis+cluster://u:p@a:1,b:2/0", "redis+cluster://…@a:1,b:2/0"),
        ("redis://:secret", "redis://…"),
        ("postgresql://app:secret/jobs", "postgresql://…/jobs"),
        ("sqlite://x\x1b[2J\n/y", "sqlite://…/y"),
        ("postgresql:secret", "postgresql:…"),
        ("secret", "…"),
    ],
)
def test_a_redacted_dsn_still_names_the_store(dsn: str, shown: str):
    assert redact(dsn) == shown


# Reading


def test_schemes():
    assert scheme_of("Redis+Cluster://x") == "redis+cluster"


def test_options():
    assert options_of("memory://x?a=1&b=", frozenset("ab")) == {"a": "1", "b": ""}
    with pytest.raises(ValueError, match=r"unknown option \(its name is not shown\) in the DSN; expected one of: none"):
        options_of("memory://x?a%20b=1", frozenset())


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5s", 1.5), ("250ms", 0.25), ("2m", 120), ("36h", 129600), (" 1d ", 86400)]
)
def test_durations(text: str, seconds: float):
    assert span(text, "retention") == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "h", "-1", "1 h", "1w", "1e9", "nan", "inf", "0x1", "1h30m"])
def test_an_invalid_duration_is_refused(text: str):
    with pytest.raises(ValueError, match="retention: expected a duration such as 3600, 90s or 24h, got"):
        span(text, "retention")


@pytest.mark.parametrize("text", ["36526d", "9" * 400, "9" * 400 + "d"], ids=["days", "seconds", "nines"])
def test_a_duration_longer_than_a_century_is_refused(text: str):
    with pytest.raises(ValueError, match="retention: expected at most 36525 days, got"):
        span(text, "retention")
