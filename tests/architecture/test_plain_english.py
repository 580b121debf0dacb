"""Words and names that the style guide bans do not come back: in prose, comments, docstrings, messages and names.

A match that is right where it stands gets an entry in EXCEPTIONS, with the reason. CONTRIBUTING.md has the rules.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKED = ("docs", "examples", "src", "tools")

BANNED = {
    r"nobody|no one": "say which part of the system does not, or use the passive",
    r"whoever|whomever": "name who: the caller, the worker, another session",
    r"in vain": "say what was not found",
    r"(?:is|are|was|were|be|been|being) told": "say who sends what to whom",
    r"goes? back|went back|gone back": "use release, reclaim, requeue or return",
    r"of (?:ours|theirs|mine)": "name what belongs to whom",
    r"(?<!there )(?:is|are|was|were) no(?! (?:longer|later|earlier|more|less|larger|greater)\b)(?= [a-z])": (
        "'X is no Y': write 'X is not a Y'"
    ),
}
BANNED_NAMES = {"manager", "helper", "helpers", "util", "utils", "common", "misc", "base", "core"}

# (path, banned phrase in lower case): why it is right there.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("src/watchbill/postgres/embedded/account.py", "nobody"): "the name of a system account",
}

_PHRASE = re.compile("|".join(rf"(?P<p{n}>\b(?:{pattern})\b)" for n, pattern in enumerate(BANNED)), re.IGNORECASE)
_ADVICE = list(BANNED.values())
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def files_with(*suffixes: str) -> list[Path]:
    """Decisions are kept as they were made."""
    pages = [*ROOT.glob("*.md"), ROOT / "benchmarks" / "README.md"] if ".md" in suffixes else []
    below = [path for directory in CHECKED for path in (ROOT / directory).rglob("*") if path.suffix in suffixes]
    return sorted(path for path in (*pages, *below) if "decisions" not in path.parts)


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that people read, with their numbers."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from _comments_and_strings(text)
        return
    if path.suffix == ".md":
        text = _FENCED.sub(_blank_lines, text)
    yield from enumerate(text.splitlines(), 1)


def _blank_lines(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def _comments_and_strings(text: str) -> Iterator[tuple[int, str]]:
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds:
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line


def complaints(path: Path) -> Iterator[str]:
    name = str(path.relative_to(ROOT))
    for number, line in prose_of(path):
        for found in _PHRASE.finditer(line):
            if (name, found[0].lower()) not in EXCEPTIONS:
                advice = _ADVICE[int((found.lastgroup or "p0")[1:])]
                yield f"{name}:{number}: {found[0]!r}: {advice}\n    {line.strip()}"


@pytest.mark.parametrize("path", files_with(".md", ".py", ".sql", ".sh"), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_banned_phrase(path: Path) -> None:
    found = list(complaints(path))
    assert not found, "\n".join(["Rewrite these lines in plain English:", *found])


def test_no_banned_name() -> None:
    """Modules and classes are named after what they do."""
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files_with(".py")
        for name in (path.stem, *class_names(path))
        if BANNED_NAMES & set(re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower().split("_"))
    ]
    assert found == []


def class_names(path: Path) -> list[str]:
    """`Base` is what SQLAlchemy's own documentation calls it."""
    classes = [node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
    return [name for name in classes if not (name == "Base" and "examples" in path.parts)]


def test_every_exception_is_still_needed() -> None:
    used = {
        (str(path.relative_to(ROOT)), found[0].lower())
        for path in files_with(".md", ".py", ".sql", ".sh")
        for _, line in prose_of(path)
        for found in _PHRASE.finditer(line)
    }
    assert sorted(set(EXCEPTIONS) - used) == []


@pytest.mark.parametrize(
    "line", ["Nobody waits", "whoever calls", "it looks in vain", "It is told again", "it goes back", "this is no end"]
)
def test_the_check_finds(line: str) -> None:
    assert _PHRASE.search(line)


@pytest.mark.parametrize("line", ["There is no job", "it is no longer ours", "no later than", "back to front"])
def test_the_check_allows(line: str) -> None:
    assert not _PHRASE.search(line)
