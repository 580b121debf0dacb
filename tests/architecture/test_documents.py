"""What the documents say is so: settings, commands and paths that they name exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from foliot.cli import _app
from tests.architecture.settings_table import rendered

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
_PATH = re.compile(r"(?<![\w/.])(?:src|tests|docs|examples|benchmarks)/[\w./*-]*\w")
_COMMAND = re.compile(r"(?<![\w.-])(?<!from )foliot(?: [a-z-]+){1,2}")
_CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)


def named(pattern: re.Pattern[str], document: Path) -> list[str]:
    pieces = _CODE.findall(document.read_text())
    return sorted({name for piece in pieces for name in pattern.findall(piece)})


def test_the_settings_in_the_reference_are_those_of_the_class() -> None:
    """`python -m tests.architecture.settings_table` prints the table as it should be."""
    assert rendered() in (ROOT / "docs/reference/settings.md").read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_that_a_document_names_exists(document: Path) -> None:
    missing = [path for path in named(_PATH, document) if "NNNN" not in path and not any(ROOT.glob(path))]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_that_a_document_names_exists(document: Path) -> None:
    known = set(commands())
    unknown = [words for words in named(_COMMAND, document) if not is_known(words.split()[1:], known)]
    assert unknown == []


def is_known(words: list[str], known: set[tuple[str, ...]]) -> bool:
    """`foliot worker app` is the command `worker` and an argument, so the first word alone may do."""
    first = (words[0],)
    is_group = any(len(command) == 2 and command[0] == words[0] for command in known)
    return tuple(words) in known or (first in known and not (is_group and len(words) == 2))


def commands() -> Iterator[tuple[str, ...]]:
    group: Any = typer.main.get_command(_app)
    context = typer.Context(group)
    for name in group.list_commands(context):
        yield (name,)
        command = group.get_command(context, name)
        for verb in getattr(command, "commands", {}):
            yield (name, verb)
