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


# What is stored, and what must not be called again after that.
SAVED = {
    "charge": "after save charge done", "ship": "after save ship done", "book": "after acall book",
    "pay": "in pay", "cancel 2": "after save undo/reserve#2 done",
}  # fmt: skip


@pytest.mark.parametrize(
    ("task", "points", "result"),
    [
        pytest.param("fulfil", ASYNC_POINTS, 3, id="async"),
        pytest.param("report", THREAD_POINTS, 2, id="thread"),
        pytest.param(
            "write", ["in book_in_thread", "before acall book", "in book", "after acall book"], 1,
            id="transactional", marks=pytest.mark.long,
        ),
        pytest.param("pay_once", ["before save pay begun", "in pay"], "unknown", id="once", marks=pytest.mark.long),
        pytest.param("try_again", ["in unsteady"], 1, id="tries", marks=pytest.mark.long),
        pytest.param(
            "ask",
            [
                "before acall call_many", "after acall call_many",
                "before collect call_many", "after collect call_many",
                "before receive receive", "after receive receive",
            ],
            [10, 7], id="waits", marks=pytest.mark.long,
        ),
        pytest.param(
            "travel",
            [
                "in cancel 2", "before save undo/reserve#2 done", "after save undo/reserve#2 done", "in cancel 1",
                "after save undo/ done",
            ],
            None, id="undo", marks=pytest.mark.long,
        ),
    ],
)  # fmt: skip
def test_a_killed_worker_loses_no_stored_step(
    schema_database: str, tmp_path: Path, task: str, points: list[str], result: object
) -> None:
    """One job, and a process per point: each is killed there, and the last one is not."""
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE entries (number int)")
        payload = '{"order": 1}'
        attempts = 1 if task == "travel" else 1000
        row = connection.execute(
            "SELECT id FROM watchbill.enqueue(%s, %s, max_attempts => %s)", [task, payload, attempts]
        ).fetchone()
        assert row is not None
        connection.execute("SELECT watchbill.signal(%s, 'approval', '7')", row)
        journal: list[str] = []
        for point in [*points, "never"]:
            file = tmp_path / "journal"
            file.write_text("")
            command = [sys.executable, str(PROGRAM), point, str(file), task]
            done = subprocess.run(
                command, env=environment({"DATABASE_URL": schema_database}), capture_output=True, text=True,
                timeout=60, check=False,
            )  # fmt: skip
            seen = file.read_text().splitlines()
            assert done.returncode == (0 if point == "never" else -9), done.stderr
            for name, saved in SAVED.items():
                assert not (saved in journal and f"in {name}" in seen), f"{name} has run again after it was stored"
            journal += seen
        job = connection.execute("SELECT state, result FROM watchbill.job WHERE type = %s", [task]).fetchall()
        names = [name for (name,) in connection.execute("SELECT name FROM watchbill.step ORDER BY seq")]
        entries = connection.execute("SELECT count(*) FROM entries").fetchone()
    assert job == [("dead" if task == "travel" else "succeeded", result)]
    assert names == NAMES[task]
    assert entries == (2 if task == "write" else 0,)


NAMES = {
    "fulfil": ["charge", "ship", "sleep"],
    "report": ["ship", "sleep"],
    "write": ["book_in_thread", "book"],
    "pay_once": ["pay"],
    "try_again": ["unsteady"],
    "ask": ["call_many", "receive"],
    "travel": ["reserve", "reserve#2", "undo/reserve#2", "undo/reserve", "undo/"],
}
