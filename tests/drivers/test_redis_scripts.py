"""The Lua of the Redis driver as a whole: nothing is used that a script has left out, numbers are printed whole."""

import ast
import re
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

from taskharbor.drivers.redis import scripts

pytestmark = pytest.mark.lane("redis")

SCRIPTS = sorted(
    entry.name.removesuffix(".lua")
    for entry in (files(scripts.PACKAGE) / "lua").iterdir()
    if entry.name.endswith(".lua")
)
OMNIQ = [
    ("taskharbor.omniq", entry.name.removesuffix(".lua"))
    for entry in (files("taskharbor.omniq") / "lua").iterdir()
    if entry.name.endswith(".lua") and entry.name != "face.lua"
]
DEFINED = re.compile(r"^(?:(?:local )?function |(?=th\.))([\w.]+)|^local ([\w, ]+?)(?: =|$)", re.MULTILINE)


def names(text: str) -> set[str]:
    """What a text defines at its top level."""
    found: set[str] = set()
    for function, variables in DEFINED.findall(text):
        found.update([function] if function else [name.strip() for name in variables.split(",")])
    return found


@pytest.mark.parametrize("name", SCRIPTS)
def test_nothing_is_missing(name):
    composed = scripts.load(name).text.decode()
    there = names(composed)
    everything = set().union(*(names(text) for _, text in scripts.fragments()))
    bare = re.sub(r"'[^']*'|--[^\n]*", "", composed)
    used = set(re.findall(r"(?<![\w.:])[A-Za-z_][\w]*(?:\.\w+)?", bare))
    words = used | {word.split(".")[0] for word in used}
    assert {word for word in everything & words if word not in there} - OPTIONAL == set()
    assert {word for word in used if word.startswith("th.") and word not in there} - FIELDS - OPTIONAL == set()


READERS = {
    "counts",
    "heads",
    "damage",
    "read_flow",
    "read_memos",
    "count_groups",
    "foreign_ids",
    "read_for_plan",
    "read_locations",
    "scan_locations",
    "list_ids",
    "list_state",
    "list_flows",
    "read_audit",
    "list_schedules",
    "read_schedules",
    "due_schedules",
    "read_figures",
    "upcoming",
    "used_queues",
    "read_jobs",
    "find_in_queues",
    "find_in_list",
    "check_locations",
    "prune_due",
}
NEW_JOBS = {"enqueue_plain", "enqueue", "publish", "childs_init"}
EITHER = {"cluster_registry", "change_schedules"}  # by what they are asked


@pytest.mark.parametrize(("package", "name"), [*((scripts.PACKAGE, name) for name in SCRIPTS), *OMNIQ])
def test_the_first_write_says_whether_a_full_server_refuses(package, name):
    """Redis judges a script by it: see lib/10_keys.lua."""
    text = re.sub(r"--[^\n]*", "", scripts.source(package, f"{name}.lua"))
    said = re.findall(
        r"(even_if_full|unless_full)\(\)|call\('(DEL|[A-Z]*(?:SET|ADD|REM|PUSH|POP|INCR|DECR|EXPIRE|NAME)[A-Z]*)'", text
    )
    if name in EITHER:
        assert [guard for guard, _ in said[:2]] == ["unless_full", "even_if_full"]
    elif name in READERS:
        assert said == []
    else:
        assert said[0][0] == ("unless_full" if name in NEW_JOBS else "even_if_full")
        assert not any(guard for guard, _ in said[1:])


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_names_its_arguments_in_one_line(name):
    text = scripts.source(scripts.PACKAGE, f"{name}.lua")
    assert len(re.findall(r"\bARGS\b", re.sub(r"--[^\n]*", "", text))) == bool(scripts.load(name).arguments)


def test_every_call_gives_its_script_arguments_that_it_names():
    called: set[str] = set()
    for path in Path(scripts.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ScriptCall":
                names = [node.args[0].value] if isinstance(node.args[0], ast.Constant) else ["admin", "amend"]
                given = {word.arg for word in node.keywords} - {None, "now", "home"}
                for name in map(str, names):
                    assert given <= scripts.load(name).arguments.keys(), f"{path.name}:{node.lineno}"
                called.update(map(str, names))
    assert sorted(called) == SCRIPTS


def test_an_argument_that_a_script_does_not_name_is_refused():
    script, call = scripts.load("pause"), scripts.ScriptCall("pause", home="q", queue="q", on=True)
    assert list(script.arguments) == ["queue", "on"]
    assert msgspec.msgpack.decode(call.packed(script, True, 7)) == [7, True, "q", "q", True]
    with pytest.raises(TypeError, match=r"^pause.lua: expected queue, on; got queue, off$"):
        scripts.ScriptCall("pause", queue="q", off=1).packed(script, False)


# Of lib/cascade.lua: a script asks whether it is there.
OPTIONAL = {"receive.stopped", "receive.unstopped", "th.is_stranded", "th.strand"}
FIELDS = {"th.now", "th.cluster", "th.home", "th.number", "th.young", "th.trusting"}


def test_every_script_compiles_and_is_found_by_its_hash():
    from tests.servers import redis as servers

    with servers.shared("redis7").client() as client:
        for name in SCRIPTS:
            script = scripts.load(name)
            assert client.script_load(script.text) in (script.sha, script.sha.encode())


def test_bytes_travel_as_they_are():
    for size in (0, 1, 31, 255, 256, 65535, 65536):
        data = bytes(range(256)) * (size // 256 + 1)
        raw = bytes(scripts.binary(data[:size]))
        assert raw.endswith(data[:size])
        assert raw[0] in (0xD9, 0xDA, 0xDB)
