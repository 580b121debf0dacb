"""Walks through one of the five documents: every statement of its code blocks is run, or listed with a reason.

The documents are not part of this repository. The environment variable COMPAT_SEEDS names their directory. Without it,
a folder beside the clone is used that has them in `seeds/`. Where there is none, tests that need the text are skipped
and say how many statements that leaves out. Tests of headings do not need the text and always run.

`NNN.toml` beside this file describes document NNN: the name of its file, how many statements it has, the headings that
promise something, and the statements that are not run:

    file = "000_5c24bacdeac41c73.txt"
    statements = 61
    headings = ["Quick Start / 1. Create Job Table"]

    [[not_run]]
    block = 1                                # blocks are counted from 1
    words = "CREATE TABLE scheduled_jobs"    # how the statement begins
    sha256 = "0badcafe"                      # of its text, the first 8 digits
    because = "replaced"                     # one of BECAUSE; not-built if it may work one day
    reason = "`watchbill db install jcron` creates it"

    [not_built]                              # headings whose promise is still to be built
    "Alerts / Recommended Alerts" = "alerts come with operations"

    [without_effect]                         # parameters that are accepted and change nothing
    "Job.wait_on_exit" = "nothing has to be waited for"

`python -m tests.compat.walk NNN` prints what a document has, in the form of this list.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

import pytest

HERE = Path(__file__).parent
VARIABLE = "COMPAT_SEEDS"
BECAUSE = ("replaced", "faulty", "users-own", "not-python", "not-built")

Test = TypeVar("Test", bound=Callable[..., object])


def find_seeds(beside: Path = HERE.parents[1]) -> Path | None:
    """The directory of the documents, or None: the one that the environment names, or one in a folder beside the
    repository."""
    if named := os.environ.get(VARIABLE):
        return Path(named) if Path(named).is_dir() else None
    first = min(beside.parent.glob("*/seeds/000_*.txt"), default=None)
    return None if first is None else first.parent


@dataclass(frozen=True)
class Statement:
    """One SQL statement, or a whole block of another language."""

    heading: str
    block: int
    number: int  # in its block, from 1
    language: str
    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:8]

    @property
    def words(self) -> str:
        """Its first words, in one line and without comments."""
        return " ".join(_without_comments(self.text, self.language).split())[:60]

    def __str__(self) -> str:
        return f"block {self.block}, statement {self.number} ({self.heading}): {self.words}"


@dataclass(frozen=True)
class NotRun:
    """An entry of the list of statements that are not run."""

    block: int
    words: str
    sha256: str
    because: Literal["replaced", "faulty", "users-own", "not-python", "not-built"]
    reason: str

    def is_of(self, statement: Statement) -> bool:
        return (
            self.block == statement.block and self.sha256 == statement.digest and statement.words.startswith(self.words)
        )


@dataclass
class Block:
    heading: str
    number: int
    language: str
    text: str

    def statements(self) -> list[Statement]:
        parts = split_sql(self.text) if self.language == "sql" else [self.text.strip()]
        return [Statement(self.heading, self.number, n, self.language, part) for n, part in enumerate(parts, 1)]


@dataclass
class Document:
    """What this repository knows of a document, and its text if that is here."""

    number: str
    file: str
    count: int
    headings: list[str]
    not_run: list[NotRun] = field(default_factory=list)
    without_effect: dict[str, str] = field(default_factory=dict)
    not_built: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, number: str) -> Document:
        data = tomllib.loads((HERE / f"{number}.toml").read_text(encoding="utf-8"))
        entries = [NotRun(**entry) for entry in data.get("not_run", [])]
        return cls(
            number,
            data["file"],
            data["statements"],
            data["headings"],
            entries,
            data.get("without_effect", {}),
            data.get("not_built", {}),
        )

    @cached_property
    def text(self) -> str:
        seeds = find_seeds()
        if seeds is None or not (seeds / self.file).is_file():
            pytest.skip(
                f"the text of document {self.number} is not here, so its {self.count} statements are not run; "
                f"set {VARIABLE} to the directory that has it"
            )
        return (seeds / self.file).read_text(encoding="utf-8")

    @cached_property
    def blocks(self) -> list[Block]:
        return list(cut_blocks(self.text))

    @cached_property
    def statements(self) -> list[Statement]:
        return [statement for block in self.blocks for statement in block.statements()]

    def entry(self, statement: Statement) -> NotRun | None:
        return next((entry for entry in self.not_run if entry.is_of(statement)), None)

    def to_run(self) -> list[Statement]:
        """All statements that are not listed, in the order of the document."""
        return [statement for statement in self.statements if self.entry(statement) is None]

    def under(self, heading: str) -> list[Statement]:
        """The statements of a heading that are not listed."""
        return [statement for statement in self.to_run() if statement.heading == heading]

    def walk(self, run: Callable[[Statement], Any]) -> dict[Statement, Any]:
        """Runs every statement that is not listed and returns what `run` returned for each.

        A statement that fails stops the walk with its place in the document.
        """
        results = {}
        for statement in self.to_run():
            try:
                results[statement] = run(statement)
            except Exception as error:
                error.add_note(f"in {statement}\n\n{statement.text}")
                raise
        self.check_complete(list(results))
        return results

    def check_complete(self, ran: list[Statement]) -> None:
        """Fails unless each statement ran or is listed, and each entry of the list is a statement of the document."""
        listed = [statement for statement in self.statements if self.entry(statement)]
        missing = [str(s) for s in self.statements if s not in ran and s not in listed]
        stale = [entry for entry in self.not_run if not any(entry.is_of(s) for s in self.statements)]
        assert not missing, f"neither run nor listed: {missing}"
        assert not stale, f"listed, but not in the document: {stale}"
        unbuilt = [s for s in listed if s.heading in self.not_built]
        wrong = [str(s) for s in unbuilt if (entry := self.entry(s)) and entry.because != "not-built"]
        assert not wrong, f"what their heading promises is not built, so say not-built: {wrong}"
        assert len(self.statements) == self.count, (
            f"{self.file} has {len(self.statements)} statements, not {self.count}"
        )

    def check_reasons(self) -> None:
        """Fails if an entry of the list has no proper reason. Needs no text."""
        for entry in self.not_run:
            assert entry.because in BECAUSE, f"{entry.words}: because must be one of {BECAUSE}"
            assert len(entry.reason) >= 10, f"{entry.words}: say why it is not run"

    def check_headings(self, *modules: ModuleType) -> None:
        """Fails unless the tests of these modules cover exactly the headings of the document that promise something.

        With the text here, also fails if a heading with a code block is not among them.
        """
        covered = {heading for module in modules for heading in covered_headings(module)}
        assert not covered & set(self.not_built), "built after all: take it from the list not_built"
        assert covered == set(self.headings), f"not covered or not listed: {sorted(covered ^ set(self.headings))}"
        if find_seeds() is not None:
            uncovered = [b.heading for b in self.blocks if b.heading not in covered | set(self.not_built)]
            unknown = (covered | set(self.not_built)) - set(cut_headings(self.text))
            assert not uncovered, f"headings with a code block but no test: {uncovered}"
            assert not unknown, f"not headings of the document: {unknown}"

    def check_parameters(self, parameters: set[str], *modules: ModuleType) -> None:
        """Fails unless the tests of these modules show the effect of each parameter ("function.parameter"), or the
        document's list says why it has none."""
        shown = {name for module in modules for name in _collect(module, "shows")}
        for name in sorted(parameters):
            assert (name in shown) != (name in self.without_effect), f"{name}: show its effect or list it, not both"
        unknown = (shown | set(self.without_effect)) - parameters
        assert not unknown, f"no facade has these parameters: {sorted(unknown)}"

    def tables(self, heading: str) -> list[list[dict[str, str]]]:
        """The Markdown tables under a heading; each row by the names of its columns."""
        return list(cut_tables(self.text, heading))


def covers(*headings: str) -> Callable[[Test], Test]:
    """Marks a test as one that shows what the document promises under these headings."""

    def mark(test: Test) -> Test:
        test.__dict__["covers"] = (*test.__dict__.get("covers", ()), *headings)
        return test

    return mark


def shows(*parameters: str) -> Callable[[Test], Test]:
    """Marks a test as one that fails if these parameters ("function.parameter") have no effect."""

    def mark(test: Test) -> Test:
        test.__dict__["shows"] = (*test.__dict__.get("shows", ()), *parameters)
        return test

    return mark


def covered_headings(module: ModuleType) -> set[str]:
    return _collect(module, "covers")


def _collect(module: ModuleType, mark: str) -> set[str]:
    tests = [value for name, value in vars(module).items() if name.startswith("test_")]
    return {name for test in tests for name in getattr(test, mark, ())}


def cut_lines(text: str) -> Iterator[tuple[str, str, str | None]]:
    """Each line with its heading path, and the language of the code block that it is in, or None.

    The title of the document is not part of the path. The fences of blocks are left out; an empty language is "text".
    """
    path: list[str] = []
    language: str | None = None
    for line in text.splitlines():
        if fence := re.match(r"\s*```(\w*)", line):
            language = (fence[1].lower() or "text") if language is None else None
            yield _joined(path), "", language
        elif language is None and (heading := re.match(r"(#{2,6})\s+(.*)", line)):
            del path[len(heading[1]) - 2 :]
            path.append(heading[2].strip())
            yield _joined(path), "", None
        else:
            yield _joined(path), line, language


def _joined(path: list[str]) -> str:
    return " / ".join(path)


def cut_blocks(text: str) -> Iterator[Block]:
    block: Block | None = None
    number = 0
    for heading, line, language in cut_lines(text):
        if language is None:
            if block is not None:
                yield block
            block = None
        elif block is None:
            number += 1
            block = Block(heading, number, language, "")
        else:
            block.text += line + "\n"


def cut_headings(text: str) -> list[str]:
    return list(dict.fromkeys(heading for heading, _, _ in cut_lines(text) if heading))


def cut_tables(text: str, heading: str) -> Iterator[list[dict[str, str]]]:
    rows: list[list[str]] = []
    for path, line, language in [*cut_lines(text), (heading, "", None)]:
        if path == heading and language is None and line.lstrip().startswith("|"):
            rows.append([cell.strip().strip("`") for cell in line.strip().strip("|").split("|")])
        elif rows:
            yield [dict(zip(rows[0], row, strict=False)) for row in rows[2:]]
            rows = []


_SQL_PARTS = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)
      | (?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
      | (?P<end>;)
      | (?P<other>\$|.)""",
    re.VERBOSE | re.DOTALL,
)


def split_sql(text: str) -> list[str]:
    """The statements of a script, without the semicolons. Knows quotes, dollar quotes and comments.

    Comments before a statement stay with it. A script of comments has no statements.
    """
    statements = [""]
    for part in _SQL_PARTS.finditer(text):
        if part["end"]:
            statements.append("")
        else:
            statements[-1] += part[0]
    return [s.strip() for s in statements if _without_comments(s, "sql").strip()]


def _without_comments(text: str, language: str) -> str:
    if language != "sql":
        return text
    return "".join("" if part["comment"] else part[0] for part in _SQL_PARTS.finditer(text))


def main(number: str) -> None:
    """Prints the statements of a document in the form of its list."""
    seeds = find_seeds()
    [path] = list(seeds.glob(f"{number}_*.txt")) if seeds else []
    document = Document(number, path.name, 0, [])
    print(f'file = "{path.name}"\nstatements = {len(document.statements)}\nheadings = [')
    for heading in cut_headings(document.text):
        print(f'  "{heading}",{"" if any(b.heading == heading for b in document.blocks) else "  # no code block"}')
    print("]")
    for s in document.statements:
        print(f'\n[[not_run]]  # {s.heading}\nblock = {s.block}\nwords = {s.words[:40]!r}\nsha256 = "{s.digest}"')
        print('because = ""\nreason = ""')


if __name__ == "__main__":
    main(sys.argv[1])
