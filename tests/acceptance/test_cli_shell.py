"""The command as a whole: help, completion, usage, pipes, and how much it loads."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.acceptance.command import Watchbill
from watchbill.cli import _COMMANDS, _MODULES, _Commands, _move_global_options_first
from watchbill.cli.help import first_sentence


def test_watchbill_without_arguments_lists_commands_by_purpose(watchbill: Watchbill) -> None:
    answer = watchbill()
    assert answer.returncode == 0
    for panel, commands in _COMMANDS.items():
        assert f"{panel}:" in answer.stdout
        for name in commands:
            assert f"\n  {name} " in answer.stdout


@pytest.mark.parametrize("name", list(_MODULES))
def test_every_command_has_help(watchbill: Watchbill, name: str) -> None:
    answer = watchbill.here(name, "--help")
    assert answer.returncode == 0
    assert f"Usage: watchbill {name} " in answer.stdout


@pytest.mark.parametrize("name", list(_MODULES))
def test_list_of_commands_says_of_each_what_its_help_says(name: str) -> None:
    ((_, sentence),) = [commands[name] for commands in _COMMANDS.values() if name in commands]
    assert sentence == first_sentence(_Commands().get_command(None, name))


def test_list_of_commands_loads_no_command() -> None:
    """Start-up time is asserted by what is loaded, since seconds depend on the machine."""
    program = (
        "import sys; sys.argv = ['watchbill', '--help']; from watchbill.cli import main\n"
        "try: main()\nfinally: print(*sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    loaded = set(answer.stdout.splitlines()[-1].split())
    assert loaded & {"psycopg", "pydantic", "orjson", "asyncio", "watchbill.settings", "watchbill.app"} == set()
    assert len([name for name in loaded if name.startswith("watchbill")]) <= 15


def test_help_shows_values_by_name_and_whole_sentences() -> None:
    def list_pages(command: Any, path: str) -> Iterator[str]:
        with command.make_context(path, [], resilient_parsing=True, max_content_width=100) as context:
            yield command.get_help(context)
        for name, child in getattr(command, "commands", {}).items():
            yield from list_pages(child, f"{path} {name}")

    pages = [page for name in _MODULES for page in list_pages(_Commands().get_command(None, name), name)]
    assert len(pages) > 80
    for page in pages:
        assert not re.search(r"<\w|\.\.\.$", page.partition("\n")[2], re.MULTILINE), page
        assert max(map(len, page.splitlines())) <= 100, page


@pytest.mark.parametrize("words", [("dbb",), ("db", "migrat"), ("db", "--nothing"), ("version", "more"), ("--schema",)])
def test_wrong_usage_exits_with_2(watchbill: Watchbill, words: tuple[str, ...]) -> None:
    answer = watchbill.here(*words)
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr


def test_version_command_prints_the_version(watchbill: Watchbill) -> None:
    from watchbill import __version__

    assert watchbill("version").stdout.startswith(f"Watchbill {__version__} (Python 3.")
    assert json.loads(watchbill.here("version", "--json").stdout)["watchbill"] == __version__
    assert watchbill.here("--version").stdout == watchbill.here("version").stdout


@pytest.mark.parametrize(("typed", "meant"), [("job", "jobs"), ("schedule", "schedules"), ("work", "worker")])
def test_a_misspelt_command_is_suggested(watchbill: Watchbill, typed: str, meant: str) -> None:
    assert f"Did you mean {meant}?" in watchbill.here(typed).stderr


def test_completion_knows_commands_and_verbs(watchbill: Watchbill) -> None:
    def complete(words: str) -> list[str]:
        asked = {"_WATCHBILL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return watchbill(**asked).stdout.split()

    assert {"db", "doctor"} <= set(complete("watchbill d"))
    assert complete("watchbill db mig") == ["migrate"]


def test_completion_knows_states_queues_types_schedules_nodes_and_ids(tmp_path: Path, schema_database: str) -> None:
    watchbill = Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": schema_database})
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("SELECT watchbill.register('clerk', types => '{\"mail.send\": 1}')")
        connection.execute("SELECT watchbill.add_schedule('nightly', '@daily', type => 't')")
        row = connection.execute("SELECT id::text FROM watchbill.enqueue('t', queue => 'post')").fetchone()
        assert row is not None

    def complete(*words: str) -> list[str]:
        typed = " ".join(("watchbill", *words))
        asked = {"_WATCHBILL_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(words))}
        return watchbill.here(**asked).stdout.split()

    assert complete("jobs", "list", "--state", "s") == ["suspended", "succeeded", "scheduled"]
    assert complete("jobs", "list", "--state", "queued,ru") == ["queued,running"]
    assert complete("jobs", "list", "--queue", "p") == ["post"]
    assert complete("queues", "pause", "p") == ["post"]
    assert complete("jobs", "enqueue", "ma") == ["mail.send"]
    assert complete("jobs", "show", row[0][:20]) == [row[0]]
    assert complete("schedules", "show", "n") == ["nightly"]
    assert complete("nodes", "drain", "c") == ["clerk"]
    nowhere = "--database-url=postgresql://127.0.0.1:1/x"
    assert complete(nowhere, "nodes", "drain", "c") == []


def test_closed_output_pipe_causes_no_error(watchbill: Watchbill) -> None:
    writer = subprocess.Popen(
        watchbill.command("db", "sql", "--all"),
        cwd=watchbill.directory,
        env=watchbill.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    with writer:
        assert writer.stdout is not None
        assert writer.stderr is not None
        assert writer.stdout.read(13) == b"-- Watchbill "
        writer.stdout.close()
        assert writer.stderr.read() == b""


def test_version_command_does_not_load_the_driver() -> None:
    """Start-up time is asserted by what is loaded, since seconds depend on the machine."""
    program = (
        "import sys; sys.argv = ['watchbill', 'version']; from watchbill.cli import main\n"
        "try: main()\nfinally: print(sorted({'psycopg', 'rich', 'orjson', 'watchbill.settings'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert answer.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("typed", "parsed"),
    [
        ("db status --schema x", "--schema x db status"),
        ("db status --schema=x --json", "--schema=x db status --json"),
        ("jobs list --debug", "--debug jobs list"),
        ("--database-url u db", "--database-url u db"),
        ("db -- --schema x", "db -- --schema x"),
        ("db --schema", "--schema db"),
    ],
)
def test_global_options_may_stand_anywhere(typed: str, parsed: str) -> None:
    assert _move_global_options_first(typed.split()) == parsed.split()
