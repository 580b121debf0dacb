"""What the pages show, as programs: blocks cut out, put together and run in a process of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str = "python") -> list[str]:
    """The page's blocks in that language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """This one without our own variables, and more."""
    return {name: value for name, value in os.environ.items() if not name.startswith("WATCHBILL_")} | dict(more)


def run_program(text: str, directory: Path, more: Mapping[str, str], *, name: str = "program.py") -> str:
    """What it prints; a warning is an error, as in our own tests."""
    (directory / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-W", "error", name],
        env=environment(more),
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
