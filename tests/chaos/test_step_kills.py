"""The crash points of docs/explanation/steps.md: a worker is killed there, and the next one continues."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.docs.programs import environment

PROGRAM = Path(__file__).parent / "step_program.py"
# No three in a row without a stored step: the job would be dead, as one that kills its nodes.
ASYNC_POINTS = [
    "in charge", "before save charge done", "after save charge done", "in ship", "before save sleep waiting",
    "after save sleep waiting", "before save sleep done", "after save sleep done",
]  # fmt: skip
THREAD_POINTS = ["in ship", "before save ship done", "after save ship done", "after save sleep waiting"]


@pytest.mark.parametrize(
    ("task", "points", "result"), [("fulfil", ASYNC_POINTS, 3), ("report", THREAD_POINTS, 2)], ids=["async", "thread"]
)
def test_a_killed_worker_loses_no_stored_step(
    schema_database: str, tmp_path: Path, task: str, points: list[str], result: int
) -> None:
    """One job, and a process per point: each is killed there, and the last one is not."""
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("SELECT watchbill.enqueue(%s, '{\"order\": 1}', max_attempts => 1000)", [task])
        journal: list[str] = []
        for point in [*points, "never"]:
            file = tmp_path / "journal"
            file.write_text("")
            command = [sys.executable, str(PROGRAM), point, str(file)]
            done = subprocess.run(
                command, env=environment({"DATABASE_URL": schema_database}), capture_output=True, text=True,
                timeout=60, check=False,
            )  # fmt: skip
            seen = file.read_text().splitlines()
            assert done.returncode == (0 if point == "never" else -9), done.stderr
            for name in ("charge", "ship"):
                if f"after save {name} done" in journal:
                    assert f"in {name}" not in seen, f"{name} has run again after it was stored"
            journal += seen
        assert connection.execute("SELECT state, result FROM watchbill.job").fetchall() == [("succeeded", result)]
        names = [name for (name,) in connection.execute("SELECT name FROM watchbill.step ORDER BY seq")]
    assert names == (["charge", "ship", "sleep"] if task == "fulfil" else ["ship", "sleep"])
