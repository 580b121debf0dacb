"""The SQL reference: its blocks run from top to bottom, and it leaves out no function that users may call."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "sql.md"
INTERNAL = {
    "adopt_server",
    "backoff",
    "cancel_error",
    "check_active",
    "check_isolation",
    "id_horizon",
    "new_job_fault",
    "refuse_job",
    "check_outcomes",
    "clock",
    "end_one",
    "ending_of",
    "finish",
    "finish_canceled",
    "history_from",
    "insert_jobs",
    "insert_jobs_one_by_one",
    "lose",
    "next_fence",
    "note",
    "park_paused",
    "pick_above",
    "pick_alone",
    "pick_once",
    "pick_ready",
    "pick_unsupported",
    "policy",
    "put_back",
    "record_runs",
    "release_claims",
    "revive",
    "seq_of",
    "server_timeline",
    "settle_each",
    "take_back",
    "take_key",
    "undo_if_finished",
    "unpaused",
    "uuid_time",
    "wake",
    "wake_channel",
    "wake_key",
}


def test_every_block_runs(schema_database: str) -> None:
    blocks = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) > 15
    with psycopg.connect(schema_database, autocommit=True) as connection:
        for block in blocks:
            for statement in block.split(";\n"):
                if statement.strip():
                    connection.execute(statement.encode())
        outcomes = connection.execute("SELECT DISTINCT outcome FROM foliot.attempt").fetchall()
    assert {"succeeded", "failed"} <= {word for (word,) in outcomes}, "the examples did not do what they show"


def test_every_public_function_is_described(schema_database: str) -> None:
    with psycopg.connect(schema_database) as connection:
        names = connection.execute(
            "SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'foliot'::regnamespace"
        ).fetchall()
    page = PAGE.read_text()
    missing = sorted(name for (name,) in names if name not in INTERNAL and f"{name}(" not in page)
    assert not missing


def test_every_error_code_is_listed() -> None:
    sources = Path(__file__).parents[2].joinpath("src/foliot/store/sql").glob("*.sql")
    raised = {code for file in sources for code in re.findall(r"FO\d{3}", file.read_text())}
    assert raised == set(re.findall(r"FO\d{3}", PAGE.read_text()))
