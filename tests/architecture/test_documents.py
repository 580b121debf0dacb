"""What the documents say is so: settings, commands and paths that they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import watchbill
from tests.architecture.python_reference import undocumented
from tests.architecture.reference_tables import REFERENCE, TABLES, commands, with_table

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"), *ROOT.glob("benchmarks/*.md")]
)
_PATH = re.compile(r"(?<![\w/.])(?:src|tests|docs|examples|benchmarks)/[\w./*-]*\w")
_COMMAND = re.compile(r"(?<![\w.-])(?<!from )watchbill(?: [a-z][a-z-]*){1,2}")
_LINK = re.compile(r"\]\(([^)#:]+)\)")
_CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)


def named(pattern: re.Pattern[str], document: Path) -> list[str]:
    pieces = _CODE.findall(document.read_text())
    return sorted({name for piece in pieces for name in pattern.findall(piece)})


@pytest.mark.parametrize("document", TABLES)
def test_tables_of_the_reference_follow_from_the_code(document: str) -> None:
    """`python -m tests.architecture.reference_tables` rewrites them."""
    text = (REFERENCE / document).read_text()
    assert text == with_table(text, TABLES[document]())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_that_a_document_names_exists(document: Path) -> None:
    missing = [path for path in named(_PATH, document) if "NNNN" not in path and not any(ROOT.glob(path))]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_that_a_document_names_exists(document: Path) -> None:
    known = {words for words, _ in commands()}
    unknown = [words for words in named(_COMMAND, document) if not is_known(words.split()[1:], known)]
    assert unknown == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_document_leads_somewhere(document: Path) -> None:
    links = _LINK.findall(_CODE.sub("", document.read_text()))
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_every_page_that_shows_code_is_read_by_a_test() -> None:
    tests = [test.read_text() for test in ROOT.glob("tests/**/test_*.py") if test != Path(__file__)]
    unread = [
        str(page.relative_to(ROOT))
        for page in DOCUMENTS
        if re.search(r"```(python|sql|console)", page.read_text())
        and not any(page.name in test or f'/ "{page.parent.name}")' in test for test in tests)
    ]
    assert unread == []


def test_every_page_is_found_from_the_index() -> None:
    """A decision is found in its directory."""
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link).resolve() for link in _LINK.findall(index.read_text())}
    pages = {page for page in ROOT.glob("docs/**/*.md") if page != index and page.parent.name != "decisions"}
    assert sorted(str(page.relative_to(ROOT)) for page in pages - linked) == []


def is_known(words: list[str], known: set[tuple[str, ...]]) -> bool:
    """`watchbill worker app` is the command `worker` and an argument, so the first word alone may do."""
    first = (words[0],)
    is_group = any(len(command) == 2 and command[0] == words[0] for command in known)
    return tuple(words) in known or (first in known and not (is_group and len(words) == 2))


def test_the_reference_leaves_out_no_public_name_and_says_something_of_each() -> None:
    page = (REFERENCE / "python.md").read_text()
    assert [name for name in watchbill.__all__ if name.strip("_") not in page] == []
    assert undocumented() == []
