"""Everything that the documents name exists: files, functions, commands, settings, events, tables and columns."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import typer

import watchbill
from tests.architecture.python_reference import undocumented
from tests.architecture.reference_tables import REFERENCE, TABLES, commands, with_table
from watchbill.cli import _app
from watchbill.settings import FOR_ENDPOINTS, describe_settings
from watchbill.telemetry.events import EVENTS

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"), *ROOT.glob("benchmarks/*.md")]
)
_PATH = re.compile(r"(?<![\w/.])(?:src|tests|docs|examples|benchmarks|tools)/[\w./*-]*\w")
_COMMAND = re.compile(r"(?<![\w.-])(?<!from )watchbill(?: [a-z][a-z-]*){1,2}")
_WRITTEN = re.compile(r"(?<![\w.-])(?<!from )watchbill((?: [^\n`|;&>)#]+)+)")  # a command with its options
_OPTION = re.compile(r"(?<= )--[a-z][\w-]*")
_TARGET = re.compile(r"(?<![\w.-])make ([a-z][a-z-]*)")
_LINK = re.compile(r"\]\(([^)#:]*)(?:#([\w-]+))?\)")
_CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
_BLOCK = re.compile(r"```.*?```", re.DOTALL)
_SNAKE_CASE = re.compile(r"(?<![\w$./:-])_?[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?![\w/.:-]*\w)")
_SINGLE_WORD = re.compile(r"`([A-Za-z]*[a-z][A-Za-z]*)`")
_FILE_AND_NAME = re.compile(r"`(src/[\w/]+\.(?:py|sql))`\s+`([\w.]+)`")
_VARIABLE = re.compile(r"\bWATCHBILL_[A-Z_]*[A-Z]\b")
_OBSERVED = re.compile(r"""\.on\(["'](\w+)["']""")

# Pages about other libraries and CONTRIBUTING.md quote names that are not ours, or only examples. tests/compat checks
# the names of compat.md.
_OURS = [
    page
    for page in DOCUMENTS
    if page.parent.name not in ("migrate", "benchmarks")
    and page.name not in ("CONTRIBUTING.md", "compat.md", "coming_from_temporal.md")
]
_FOREIGN = {
    "bind_arguments", "include_name", "include_schemas", "my_include_name", "orders_test_gw0", "orders_test_gw1",
    "override_settings", "run_sync", "scoped_session", "sync_to_async",
    "TestCase", "setUpTestData", "fasteners", "gcsfs", "makemigrations", "platformdirs", "psutil",
}  # fmt: skip
_OTHER_VARIABLES = {
    "WATCHBILL_ADDRESS",
    "WATCHBILL_API_KEY",
    "WATCHBILL_TEST_DATABASE_URL",
    "WATCHBILL_PORT",
    "WATCHBILL_SERVICE_HOST",
}


def named(pattern: re.Pattern[str], document: Path) -> list[str]:
    pieces = _CODE.findall(document.read_text())
    return sorted({name for piece in pieces for name in pattern.findall(piece)})


@pytest.mark.parametrize("document", TABLES)
def test_reference_tables_match_the_code(document: str) -> None:
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
def test_every_option_that_a_document_gives_a_command_exists(document: Path) -> None:
    unknown = [
        f"watchbill{words}"
        for words in named(_WRITTEN, document)
        if not set(_OPTION.findall(words)) <= find_options(words.split())
    ]
    assert unknown == []


@cache
def list_options() -> dict[tuple[str, ...], set[str]]:
    """The options of each command. A group without a verb runs one of its commands, so it has the options of all."""
    found = {(): typer.main.get_command(_app), **dict(commands())}
    options = {
        words: {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        for words, command in found.items()
    }
    return {
        words: own.union(*(more for below, more in options.items() if words and below[:-1] == words))
        for words, own in options.items()
    }


def find_options(words: list[str]) -> set[str]:
    """The options of the command that these words begin with, and those that all commands take."""
    known = list_options()
    own = max((command for command in known if command == tuple(words[: len(command)])), key=len)
    return known[()] | known[own] | {"--help"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_make_target_that_a_document_names_exists(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert sorted(set(named(_TARGET, document)) - targets) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_document_exists(document: Path) -> None:
    links = _LINK.findall(_CODE.sub("", document.read_text()))
    assert [link for link in links if not leads_somewhere(document, *link)] == []


def leads_somewhere(document: Path, file: str, heading: str) -> bool:
    target = document.parent / file if file else document
    return target.exists() and (not heading or heading in headings(target))


def headings(document: Path) -> set[str]:
    """The names that GitHub gives to headings."""
    titles = re.findall(r"^#+ (.*)$", _BLOCK.sub("", document.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_function_that_stands_beside_a_file_is_defined_there() -> None:
    named_beside = _FILE_AND_NAME.findall((ROOT / "ARCHITECTURE.md").read_text())
    assert len(named_beside) > 20
    missing = [
        (file, name)
        for file, name in named_beside
        if not re.search(rf"(?:def|class|FUNCTION) {name.split('.')[-1]}\b", (ROOT / file).read_text())
    ]
    assert missing == []


@pytest.fixture(scope="module")
def words_of_the_code() -> set[str]:
    """Every word of src/, of examples and deploy files, and of the file names."""
    patterns = ("src/**/*.py", "src/**/*.sql", "examples/**/*.py", "deploy/**/*.*", "Makefile")
    files = [file for pattern in patterns for file in ROOT.glob(pattern)]
    return {word for file in files for word in (*re.findall(r"\w+", file.read_text()), file.stem)}


@pytest.mark.parametrize("document", _OURS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_name_that_a_document_quotes_exists(document: Path, words_of_the_code: set[str]) -> None:
    """Functions, classes, tables, columns, settings, events: a single word, or one with an underscore, in backticks."""
    text = document.read_text()
    defined_here = {word for block in _BLOCK.findall(text) for word in re.findall(r"\w+", block)}
    prose = _BLOCK.sub("", text)
    quoted = {name for piece in _CODE.findall(prose) for name in _SNAKE_CASE.findall(piece)}
    quoted |= set(_SINGLE_WORD.findall(prose))
    assert sorted(quoted - words_of_the_code - defined_here - _FOREIGN) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_variable_that_a_document_names_is_a_setting(document: Path) -> None:
    known = {f"WATCHBILL_{name.upper()}" for name, *_ in describe_settings()} | _OTHER_VARIABLES
    named = {each for each in _VARIABLE.findall(document.read_text()) if not each.startswith(FOR_ENDPOINTS)}
    assert sorted(named - known) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_event_that_a_document_observes_fires(document: Path) -> None:
    assert sorted(set(_OBSERVED.findall(document.read_text())) - EVENTS) == []


def test_the_page_about_events_lists_all_that_fire() -> None:
    section = (ROOT / "docs/howto/application.md").read_text().partition("\n## Events\n")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))
    assert listed == EVENTS


def test_every_page_with_code_is_named_by_a_test() -> None:
    tests = [test.read_text() for test in ROOT.glob("tests/**/test_*.py") if test != Path(__file__)]
    unread = [
        str(page.relative_to(ROOT))
        for page in DOCUMENTS
        if re.search(r"```(python|sql|console)", page.read_text())
        and not any(page.name in test or f'/ "{page.parent.name}")' in test for test in tests)
    ]
    assert unread == []


def test_every_document_that_the_code_names_exists() -> None:
    files = [*ROOT.glob("src/**/*.py"), *ROOT.glob("src/**/*.sql")]
    named_pages = {page for file in files for page in re.findall(r"\bdocs/[\w/-]+\.md", file.read_text())}
    assert sorted(page for page in named_pages if not (ROOT / page).exists()) == []


def test_index_links_every_page() -> None:
    """A decision is found in its directory."""
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link).resolve() for link, _ in _LINK.findall(index.read_text())}
    pages = {page for page in ROOT.glob("docs/**/*.md") if page != index and page.parent.name != "decisions"}
    assert sorted(str(page.relative_to(ROOT)) for page in pages - linked) == []


def is_known(words: list[str], known: set[tuple[str, ...]]) -> bool:
    """`watchbill worker app` is the command `worker` and an argument, so the first word alone may do."""
    first = (words[0],)
    is_group = any(len(command) == 2 and command[0] == words[0] for command in known)
    return tuple(words) in known or (first in known and not (is_group and len(words) == 2))


def test_reference_documents_every_public_name() -> None:
    page = (REFERENCE / "python.md").read_text()
    assert [name for name in watchbill.__all__ if name.strip("_") not in page] == []
    assert undocumented() == []
