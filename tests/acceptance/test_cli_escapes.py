"""What jobs, schedules and nodes are called cannot command the terminal of whoever looks at them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.command import Watchbill

EVIL = "x\x1b]0;owned\x07\x9b2J\nforged"
SHOWN = "x\\x1b]0;owned\\x07\\u009b2J\\nforged"
CLI = Path(__file__).parents[2] / "src/watchbill/cli"


@pytest.fixture
def watchbill(tmp_path: Path, schema_database: str) -> Watchbill:
    """A database in which every name and text is hostile."""
    error = json.dumps({"type": EVIL, "message": EVIL, "kind": "permanent", "traceback": EVIL})
    with psycopg.connect(schema_database, autocommit=True) as connection:
        for _ in range(2):
            connection.execute(
                "SELECT watchbill.enqueue(%s, jsonb_build_object('a', %s::text), %s)", (EVIL, EVIL, EVIL)
            )
        connection.execute("SELECT watchbill.register(%s, app => %s)", (EVIL, EVIL))
        connection.execute(
            """SELECT watchbill.settle(n.epoch, ARRAY[c.id], ARRAY[c.fence], ARRAY['failed'], ARRAY[0.1],
                 errors => ARRAY[%s::jsonb])
               FROM watchbill.node n, LATERAL watchbill.claim(n.epoch, ARRAY[%s]) c""",
            (error, EVIL),
        )
        connection.execute("SELECT watchbill.pause(queue => %s, reason => %s)", (EVIL, EVIL))
        connection.execute("SELECT watchbill.pause(type => %s)", (EVIL,))
        connection.execute("SELECT watchbill.add_schedule(%s, '@daily', type => %s)", (EVIL, EVIL))
        connection.execute("SELECT watchbill.run_schedule(%s)", (EVIL,))
    return Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": schema_database})


@pytest.mark.parametrize(
    "words",
    [
        "jobs", "jobs --json", "jobs show", "jobs show --json", "jobs tree", "dead", "dead groups", "queues", "stats",
        "nodes", "schedules", "schedules show", "schedules show --json", "schedules history", "schedules why",
        "schedules disable", "schedules remove --dry-run", "nodes drain", "queues resume", "doctor",
    ],
)  # fmt: skip
def test_hostile_names_are_printed_with_visible_escapes(watchbill: Watchbill, words: str) -> None:
    noun, *rest = words.split()
    subject = []
    if words.startswith(("jobs show", "jobs tree")):
        subject = [json.loads(watchbill.here("dead", "--json").stdout)[0]["id"]]
    elif rest and rest[0] in ("show", "history", "why", "disable", "remove", "drain", "resume"):
        subject = [EVIL]
    done = watchbill.here(noun, *rest[:1], *subject, *rest[1:])
    said = done.stdout + done.stderr
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", said), said
    assert not re.search(r"^forged", said, re.MULTILINE), said
    if words not in ("doctor", "schedules history"):
        assert SHOWN in said or json.dumps(EVIL, ensure_ascii=False)[1:-1].replace("\x9b", "\\u009b") in said


def test_commands_print_only_through_the_module_that_escapes() -> None:
    printing = re.compile(r"\btyper\.(echo|secho|style)\(|\bprint\(|\.write\(")
    others = {path.name for path in CLI.glob("*.py") if printing.search(path.read_text())}
    assert others == {"screen.py"}
