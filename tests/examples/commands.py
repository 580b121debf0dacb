"""The commands of an example's README, in a copy of its directory, on a database of the test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg

EXAMPLES = Path(__file__).parents[2] / "examples"


class Example:
    def __init__(self, name: str, url: str, place: Path) -> None:
        self.directory, self.url = place / name, url
        shutil.copytree(EXAMPLES / name, self.directory, ignore=shutil.ignore_patterns("__pycache__"))
        inherited = {n: v for n, v in os.environ.items() if not n.startswith(("WATCHBILL_", "PG", "DATABASE_URL"))}
        self.environment = inherited | {"DATABASE_URL": url}

    def watchbill(self, *words: str) -> str:
        """Returns what the command prints; it must succeed."""
        done = subprocess.run(
            [sys.executable, "-m", "watchbill.cli", *words],
            cwd=self.directory, env=self.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def work_off(self, module: str) -> str:
        """Runs what is ready, and returns what the worker prints."""
        return self.watchbill("worker", module, "--once", "--lines")

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode()).fetchall()
