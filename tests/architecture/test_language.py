"""Plain English: phrases that readers had to read twice stay out of everything that a person reads.

docs/glossary.md says which word stands for which idea. This test holds the other half: the patterns below are
counted in docstrings, comments, strings (command-line help, errors, log lines), names of tests, SQL, Lua and
documents. Each entry of `PATTERNS` names what to write instead.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PATTERNS = {
    r"what is no (?!longer)": "what is not an X; an invalid X",
    r"(?:for|to|of|by|from|with) who": "the caller, the worker, another process",
    r"whoever|(?:some|any|every)body|of nobody|to nobody|by nobody": "the caller, the worker, another process",
    r"so (?:long|many|often)(?! as| that)": "the name of the parameter; this long, at most N",
    r"(?:is|are|was|were|be|been|being|when|unless|as|never|not) told|told (?:to|in|so|of|that|once|apart)":
        "is reported, is logged; the caller learns; asked to; by default",
    r"heard (?:of|that|nothing|by|the)|hears|(?:is|are|was|were|be|been|being|ever|not) heard":
        "receives, learns, notices",
    r"look(?:s|ed)? again": "checks again, polls",
    r"in no time": "at once; in less than N ms",
    r"(?:that|which|what) (?:is|are) none": "that is not one",
    r"(?<!there )(?:is|are|was|were) no (?:failure|error|job|task|accident|DSN|JSON|text|markup|reason|quota|lease)":
        "is not a failure, is not a job",
    r"answers (?:with|the|how|what|whether|who)|is answered|are answered": "returns",
    r"to be had": "available",
    r"but for": "except for",
}  # fmt: skip
FORBIDDEN = re.compile("|".join(rf"\b(?:{each})\b" for each in PATTERNS).replace(" ", "[ \n]"), re.IGNORECASE)

WRITTEN = [
    "src/taskharbor/**/*.py",
    "src/taskharbor/**/*.sql",
    "src/taskharbor/**/*.lua",
    "tests/**/*.py",
    "bench/**/*.py",
    "examples/**/*.py",
    "examples/**/*.md",
    "docs/*.md",
    "README.md",
    "CONTRIBUTING.md",
    "ROADMAP.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "Makefile",
]
QUOTES = {Path(__file__), ROOT / "docs/glossary.md"}
FILES = sorted({path for pattern in WRITTEN for path in ROOT.glob(pattern)} - QUOTES)

# Room → how many are still there. These numbers may only become smaller.
ALLOWED: dict[str, int] = {}


def room(path: Path) -> str:
    """The part of the repository that a file belongs to."""
    parts = path.relative_to(ROOT).parts
    deep = 4 if parts[:3] == ("src", "taskharbor", "drivers") else 3 if parts[0] == "src" else 2
    return "/".join(parts[: min(deep, len(parts) - 1)]) or parts[0]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """What a person reads in a file: pieces of text, each with the line it begins at."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from _strings_and_names(text)
        yield from _comments(text)
    else:
        number = 1
        for paragraph in re.split(r"(\n\s*\n)", text):
            yield number, re.sub(r"^\s*(?:--|#)", "", paragraph, flags=re.MULTILINE)
            number += paragraph.count("\n")


def _strings_and_names(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name.replace("_", " ")


# A string, or (as its group) a comment. The module tokenize finds the same, in twenty times the time.
TOKEN = re.compile(
    r'"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""|"(?:\\.|[^"\\\n])*"|'
    r"'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''|'(?:\\.|[^'\\\n])*'|"
    r"(#[^\n]*)",
    re.DOTALL,
)


def _comments(text: str) -> Iterator[tuple[int, str]]:
    block: list[str] = []
    first = last = 0
    number, counted = 1, 0
    for token in TOKEN.finditer(text):
        if token[1] is None:
            continue
        number, counted = number + text.count("\n", counted, token.start()), token.start()
        if number != last + 1 and block:
            yield first, " ".join(block)
            block = []
        first = number if not block else first
        last = number
        block.append(token[1].lstrip("# "))
    if block:
        yield first, " ".join(block)


BETWEEN_WORDS = re.compile(r"""(?:[\s#\\_"'-]|\b[rbfuRBFU]{1,2}(?=["']))+""")


def suspicious(text: str) -> bool:
    """Whether a phrase may be in a text: it is read as a whole, without quotes, comment signs and underscores.

    Parsing is what these tests would spend their time on, and few files have to be parsed.
    """
    return FORBIDDEN.search(BETWEEN_WORDS.sub(" ", text)) is not None


def phrases(path: Path) -> list[str]:
    """The forbidden phrases of a file, as `file:line: phrase`."""
    if not suspicious(path.read_text(encoding="utf-8")):
        return []
    place = path.relative_to(ROOT).as_posix()
    return [
        f"{place}:{number + found.string.count(chr(10), 0, found.start())}: {' '.join(found.group().split())}"
        for number, piece in prose(path)
        for found in FORBIDDEN.finditer(re.sub(r"[ \t]*\n[ \t]*", "\n", piece))
    ]


@pytest.mark.parametrize("name", sorted({room(path) for path in FILES}))
def test_a_room_holds_no_more_odd_phrases_than_it_is_allowed(name: str):
    here = [phrase for path in FILES if room(path) == name for phrase in phrases(path)]
    assert len(here) <= ALLOWED.get(name, 0), "\n".join(["write instead:", *PATTERNS.values(), "", *here])


def test_an_allowance_is_for_a_room_that_exists():
    assert set(ALLOWED) <= {room(path) for path in FILES}


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("what is no DSN fails here", "what is no DSN"),
        ("kept for who waits", "for who"),
        ("renewed so often", "so often"),
        ("the caller is told", "is told"),
        ("no worker was\nheard", "was heard"),
        ("that is no failure", "is no failure"),
        ("a third of it unless told otherwise", "unless told"),
        ("everybody waits", "everybody"),
        ("before the worker hears of it", "hears"),
    ],
)
def test_the_patterns_find_what_they_are_for(text: str, phrase: str):
    found = FORBIDDEN.search(text)
    assert found is not None
    assert " ".join(found.group().split()) in phrase


@pytest.mark.parametrize(
    "text", ["as long as it runs", "there is no job", "a queue so long that it", "what it returns"]
)
def test_the_patterns_leave_plain_english_alone(text: str):
    assert FORBIDDEN.search(text) is None


# Names in the source. Prose can be read twice; a name is read a hundred times, and nobody can guess these.

DIALECT = (
    "Deed", "Done", "Sight", "Shown", "Asked", "OperatorRoom", "Recall", "Remembered", "Again", "Late", "Surroundings",
    "Offer", "Standing", "FoundId", "Places", "Look", "Looked", "look", "looks", "looked", "strangers", "strays",
    "worth_a_visit", "OF_A_STORE", "AT", "LESS", "COMPARED", "meant", "said", "heard", "told", r"told_\w+", r"\w+_told",
    r"MAX_TOLD_\w+",
)  # fmt: skip
"""Say what it is: ActionRequest for Deed, StoreReading for Sight, Query for Asked, reported for told."""
NAME = re.compile(rf"_*(?:{'|'.join(DIALECT)})")
MENTION = re.compile(rf"\b{NAME.pattern}\b")
SOURCE = [path for path in FILES if path.suffix == ".py" and path.is_relative_to(ROOT / "src")]


def names_given(text: str) -> set[str]:
    """The names that a module gives to classes, functions, parameters, variables and attributes."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return names


def test_no_name_is_of_the_old_dialect():
    texts = (path.read_text(encoding="utf-8") for path in SOURCE)
    found = {name for text in texts if MENTION.search(text) for name in names_given(text) if NAME.fullmatch(name)}
    assert found == set(), "find a name that a stranger can guess"


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("class Deed: pass", {"Deed"}),
        ("def f(told): self._said = 1", {"told", "_said"}),
        ("MAX_TOLD_BYTES = is_told = 1", {"MAX_TOLD_BYTES", "is_told"}),
        ("def looked_up(asked): AT_ONCE = outlook = asked.told", set()),
    ],
)
def test_the_names_of_the_old_dialect_are_found(text: str, refused: set[str]):
    assert {name for name in names_given(text) if NAME.fullmatch(name)} == refused
