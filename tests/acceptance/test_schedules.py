"""Schedules as a person meets them: four `watchbill worker` fire each slot once; the commands, and what they say."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import psycopg
import pytest

from tests.acceptance.command import Watchbill
from tests.waiting import until

TASKS = """
from watchbill import App, Retry

app = App(name="shop")


@app.schedule(every=1, name="ticking", overlap="allow")
@app.schedule("* * * * * *", name="each-second", overlap="allow", missed="catch_up")
@app.task(type="tick")
async def tick() -> None: ...


@app.schedule("0 3 * * *", tz="Europe/Paris", name="nightly")
@app.task(type="report", retry=Retry(max_attempts=2))
def report(region: str = "eu") -> str:
    return region
"""
SLOTS = 4


@pytest.fixture
def shop(tmp_path: Path, schema_database: str) -> Watchbill:
    (tmp_path / "tasks.py").write_text(TASKS)
    return Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": schema_database, "WATCHBILL_LEASE": "2"})


@contextmanager
def workers(shop: Watchbill, *words: str, count: int = 1) -> Iterator[list[subprocess.Popen[bytes]]]:
    with (shop.directory / "log").open("ab") as log:
        started = [
            subprocess.Popen(
                shop.command("worker", "tasks:app", *words),
                cwd=shop.directory,
                env=shop.environment(),
                stdout=log,
                stderr=log,
            )
            for _ in range(count)
        ]
        try:
            yield started
        finally:
            for worker in started:
                worker.terminate()
            for worker in started:
                worker.wait(60)


def test_four_processes_fire_each_slot_once(shop: Watchbill, schema_database: str) -> None:
    """One of them is killed meanwhile. What each pattern asks for is there, each slot once, and nothing else."""
    with psycopg.connect(schema_database, autocommit=True) as connection:

        def fired(name: str) -> int:
            query = "SELECT count(*) FROM watchbill.slot WHERE name = %s AND job_id IS NOT NULL"
            row = connection.execute(query, (name,)).fetchone()
            return 0 if row is None else int(row[0])

        with workers(shop, count=4) as started:
            until(lambda: fired("ticking") >= 1 and _alive(connection) == 4, 60)
            started[0].kill()
            goal = {name: fired(name) + SLOTS for name in ("ticking", "each-second")}
            until(lambda: all(fired(name) >= count for name, count in goal.items()), 60)
        for name in goal:
            rows = connection.execute(
                "SELECT j.slot FROM watchbill.job j JOIN watchbill.schedules s ON s.id = j.schedule_id "
                "WHERE s.name = %s"
                " ORDER BY 1",
                (name,),
            ).fetchall()
            slots = [slot for (slot,) in rows]
            assert len(slots) == len(set(slots)) == fired(name)
            gaps = {(later - earlier).total_seconds() for earlier, later in pairwise(slots)}
            assert gaps == {1.0}, f"{name}: a slot was left out"


def _alive(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT count(*) FROM watchbill.nodes WHERE state = 'active'").fetchone()
    return 0 if row is None else int(row[0])


def test_worker_with_no_scheduler_lists_schedules_but_fires_none(shop: Watchbill, schema_database: str) -> None:
    query = "SELECT name, runs FROM watchbill.schedule WHERE status = 'due' ORDER BY name"
    with workers(shop, "--no-scheduler", "--lines"), psycopg.connect(schema_database, autocommit=True) as connection:
        until(lambda: connection.execute(query).fetchall() == [("each-second", 0), ("ticking", 0)], 60)
    said = (shop.directory / "log").read_text()
    assert "2 tasks  1 queue (default)  3 schedules" in said
    assert "at 03:00 every day, Paris time" in said
    why = shop.here("schedules", "why", "ticking")
    assert (why.returncode, "no node is alive" in why.stdout) == (1, True)


def test_schedule_commands_add_update_run_and_remove(shop: Watchbill) -> None:
    said = shop.here("schedules", "add", "mails", "0 9 * * MON", "--task", "tasks.mail")
    assert (said.returncode, "No live node handles" in said.stderr, "--unchecked" in said.stderr) == (2, True, True)
    add = ["--unchecked", "--task", "tasks.mail", "--arguments", '{"to": "ada"}', "--tz", "Asia/Tokyo", "--tag", "a"]
    said = shop.here("schedules", "add", "mails", "0 9 * * MON", *add, "--max-attempts", "3", "--timeout", "1m30s")
    assert said.stdout.startswith("mails added; next ")
    [found] = json.loads(shop.here("schedules", "list", "--json").stdout)
    assert found["health"] == "unknown"
    assert (found["payload"], found["tags"], found["max_attempts"], found["timeout"]) == ({"to": "ada"}, ["a"], 3, 90)
    assert "mails  0 9 * * MON Asia/Tokyo  tasks.mail" in shop.here("schedules").stdout
    assert shop.here("schedules", "update", "mails", "--priority", "5", "--end", "2040-01-01T09:00").returncode == 0
    shown = json.loads(shop.here("schedules", "show", "mails", "--json").stdout)
    assert (shown["priority"], shown["tags"], shown["slots"]) == (5, ["a"], [])
    assert shown["end"] == "2040-01-01T00:00:00Z", "nine o'clock in Tokyo"
    job = shop.here("schedules", "run", "mails", "--arguments", '{"to": "bob"}').stdout.strip()
    assert re.search("schedule +mails", shop.here("jobs", "show", job).stdout)
    assert job in shop.here("schedules", "history", "mails").stdout
    again = shop.here("schedules", "run", "mails", "--overlap", "skip")
    assert (again.returncode, again.stdout) == (1, ""), "the first one has not ended"
    assert f"job {job} has not ended" in again.stderr
    assert shop.here("schedules", "history", "mails", "--outcome", "failed").stdout == "no slot of mails is failed\n"
    dry = shop.here("schedules", "remove", "mails", "--dry-run").stdout
    assert dry.startswith("1 schedule: mails (0 9 * * MON Asia/Tokyo; tasks.mail; jobs so far: 1)")
    assert shop.here("schedules", "remove", "mails", "--yes").stdout == "mails removed\n"


def test_schedules_add_uses_the_options_of_the_local_task(shop: Watchbill) -> None:
    said = shop.here("schedules", "add", "west", "@daily", "--task", "report", "--arguments", '{"region": "us"}')
    assert said.stdout.startswith("west added; next "), "no worker runs, but here is the task"
    [found] = json.loads(shop.here("schedules", "list", "--json").stdout)
    assert (found["payload"], found["max_attempts"]) == ({"region": "us"}, 2)
    for verb in ("update", "run"):
        said = shop.here("schedules", verb, "west", "--arguments", '{"reason": "us"}')
        assert (said.returncode, "report: reason" in said.stderr) == (2, True)
    assert shop.here("schedules", "update", "west", "--pattern", "0 0 30 2 *").stdout == (
        "west updated; it is ended: watchbill schedules why west\n"
    )


@pytest.mark.parametrize(
    ("words", "code", "what", "way_out"),
    [
        (["add", "x", "0 25 * * *", "--command", "SELECT 1"], 2, "'25' is not in 0 to 23", "^^"),
        (["add", "x", "@daily", "--tz", "Mars", "--command", "SELECT 1"], 2, "neither an IANA zone", "^^^^"),
        (["add", "x", "@daily", "--command", "SELEC 1"], 2, "does not parse", "SELEC"),
        (["add", "x", "@daily"], 2, "needs a task or a SQL command", "--command"),
        (["add", "x", "@daily", "--task", "report", "--arguments", '{"m": 1}'], 2, "report: m", "It takes ("),
        (["add", "x", "--every", "soon", "--command", "SELECT 1"], 2, "every='soon' is invalid", "1h30m"),
        (["add", "x", "--at", "soon", "--command", "SELECT 1"], 2, "The instant 'soon' is invalid", "2026-03-29"),
        (["add", "x", "--end", "2020-01-01", "--start", "2021-01-01", "--command", "x"], 2, "it ends", "Swap"),
        (["add", "x", "--task", "t", "--arguments", "{to", "--unchecked"], 2, "Invalid JSON in arguments", "quote it"),
        (["why", "x"], 1, "no schedule 'x'", "watchbill schedules"),
        (["list", "--status", "broken"], 2, "The status 'broken' is invalid", "orphaned"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_schedule_errors_name_the_fault_and_the_fix(
    shop: Watchbill, words: list[str], code: int, what: str, way_out: str
) -> None:
    done = shop.here("schedules", *words)
    assert done.returncode == code, done.stderr
    assert what in done.stderr
    assert way_out in done.stderr
    assert "Traceback" not in done.stderr


def test_times_are_shown_in_the_zone_of_the_schedule_and_each_once(shop: Watchbill) -> None:
    zone, command = ("--tz", "America/New_York"), ("--command", "SELECT 1")
    with psycopg.connect(shop.environ["WATCHBILL_DATABASE_URL"], autocommit=True) as connection:
        connection.execute("SELECT watchbill.register('a')")
    assert re.search(
        r"next .* 09:00:00\S* \(", shop.here("schedules", "add", "ny", "0 9 * * *", *zone, *command).stdout
    )
    assert re.search(r"New_York +SQL: SELECT 1 +\S+ 09:00:00", shop.here("schedules").stdout)
    assert re.search(r"next_run +\S+ 09:00:00-0[45]:00\n", shop.here("schedules", "show", "ny").stdout)
    assert re.fullmatch(r"\S+ 09:00:00-0[45]:00  \w{3}\n", shop.here("schedules", "preview", "ny", "-n", "1").stdout)
    assert re.fullmatch(r"ny fires \w{3} \S+ 09:00:00-0[45]:00 \(in .*\)\n", shop.here("schedules", "why", "ny").stdout)
    job = shop.here("schedules", "run", "ny").stdout.strip()
    slot = json.loads(shop.here("schedules", "history", "ny", "--json").stdout)[0]["slot"]
    there = datetime.fromisoformat(slot).astimezone(ZoneInfo("America/New_York"))
    assert re.search(
        rf"{there:%Y-%m-%d %H:%M:%S}\S* \(by hand\) .*{job}", shop.here("schedules", "history", "ny").stdout
    )


def test_add_uses_the_zone_of_the_app(shop: Watchbill) -> None:
    (shop.directory / "tasks.py").write_text(TASKS.replace('name="shop"', 'name="shop", tz="Asia/Tokyo"'))
    for words in (["0 9 * * *"], ["0 9 * * *", "--tz", "Europe/Paris"], ["--at", "2099-01-01 09:00"]):
        shop.here("schedules", "add", f"s{len(words)}{words[0][:1]}", *words, "--command", "SELECT 1")
    found = {each["name"]: each for each in json.loads(shop.here("schedules", "list", "--json").stdout)}
    assert found["s10"]["tz"] == "Asia/Tokyo"
    assert found["s30"]["tz"] == "Europe/Paris"
    assert found["s2-"]["at"].startswith("2099-01-01T00:00:00")
