"""tools/check_commit_message.py accepts well-formed messages and names what is wrong with others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKER = ROOT / "tools" / "check_commit_message.py"
WHY = "\n\nOtherwise they wait until the lease runs out.\n"


def said_of(message: str, directory: Path) -> tuple[int, str]:
    file = directory / "COMMIT_EDITMSG"
    file.write_text(message)
    done = subprocess.run([sys.executable, str(CHECKER), str(file)], capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "message",
    [
        f"Release prefetched jobs before leaving{WHY}",
        f"Process stop requests first{WHY}",
        f"# a comment of git\n\nAdd a glossary{WHY}# Changes to be committed:\n#\tREADME.md\n",
        f"Add a glossary{WHY}\nhttps://example.org/{'x' * 100}\n",
        "Merge branch 'main'\n",
        f"Add a glossary{WHY}# ------------------------ >8 ------------------------\n{'+ long line ' * 20}\n",
    ],
    ids=["plain", "ends in s", "comments", "long link", "merge", "verbose"],
)
def test_a_well_formed_message_passes(message: str, tmp_path: Path) -> None:
    assert said_of(message, tmp_path) == (0, "")


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("\n", "The message is empty"),
        (f"Releases prefetched jobs{WHY}", "use the imperative"),
        (f"Released prefetched jobs{WHY}", "use the imperative"),
        (f"Releasing prefetched jobs{WHY}", "use the imperative"),
        (f"The worker releases jobs{WHY}", "use the imperative"),
        (f"release prefetched jobs{WHY}", "start with a capital letter"),
        (f"Release prefetched jobs.{WHY}", "ends with a full stop"),
        (f"Release {'prefetched ' * 8}jobs{WHY}", "use at most 72"),
        ("Release prefetched jobs\n", "There is no body"),
        ("Release prefetched jobs\n\nSigned-off-by: Ada <ada@example.org>\n", "There is no body"),
        ("Release prefetched jobs\nbecause they wait\n", "The second line is not empty"),
        (f"Release prefetched jobs\n\n{'because they wait ' * 6}\n", "use at most 76"),
    ],
)
def test_a_malformed_message_fails(message: str, problem: str, tmp_path: Path) -> None:
    code, said = said_of(message, tmp_path)
    assert code == 1
    assert problem in said


def test_pre_commit_runs_the_check() -> None:
    settings = (ROOT / ".pre-commit-config.yaml").read_text()
    assert "tools/check_commit_message.py" in settings
    assert "stages: [commit-msg]" in settings
