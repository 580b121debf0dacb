"""The command as a whole: help, completion, usage, pipes, and how much it loads."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from watchbill.cli import _COMMANDS, _MODULES, _globals_first
from tests.acceptance.command import Watchbill


def test_alone_it_shows_the_commands_by_purpose(watchbill: Watchbill) -> None:
    answer = watchbill()
    assert answer.returncode == 0
    for panel, commands in _COMMANDS.items():
        assert f"{panel}:" in answer.stdout
        for name in commands:
            assert f"\n  {name} " in answer.stdout


@pytest.mark.parametrize("name", list(_MODULES))
def test_every_command_has_help(watchbill: Watchbill, name: str) -> None:
    answer = watchbill(name, "--help")
    assert answer.returncode == 0
    assert f"Usage: watchbill {name} " in answer.stdout


@pytest.mark.parametrize("words", [("dbb",), ("db", "migrat"), ("db", "--nothing"), ("version", "more"), ("--schema",)])
def test_wrong_usage_ends_with_2(watchbill: Watchbill, words: tuple[str, ...]) -> None:
    answer = watchbill(*words)
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr


def test_the_version(watchbill: Watchbill) -> None:
    from watchbill import __version__

    assert watchbill("version").stdout.startswith(f"Watchbill {__version__} (Python 3.")
    assert json.loads(watchbill("version", "--json").stdout)["watchbill"] == __version__


def test_completion_knows_commands_and_verbs(watchbill: Watchbill) -> None:
    def complete(words: str) -> list[str]:
        asked = {"_WATCHBILL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return watchbill(**asked).stdout.split()

    assert {"db", "doctor"} <= set(complete("watchbill d"))
    assert complete("watchbill db mig") == ["migrate"]


def test_a_reader_that_leaves_early_is_no_error(watchbill: Watchbill) -> None:
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
        assert writer.stdout.read(10) == b"-- Watchbill "
        writer.stdout.close()
        assert writer.stderr.read() == b""


def test_a_light_command_loads_no_driver() -> None:
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
    assert _globals_first(typed.split()) == parsed.split()
