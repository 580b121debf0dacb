"""The guide of s3db's SchedulerPlugin on Watchbill: each heading by its own names, in Python."""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from tests.compat.walk import Document, covers, shows
from tests.waiting import until
from watchbill import App, JobFailed
from watchbill.client.schedule_operations import NoSuchSchedule
from watchbill.compat.naming import Record, to_snake
from watchbill.compat.s3db import JobExists, SchedulerPlugin
from watchbill.cron import Cron
from watchbill.store.refusals import AlreadyRunning

pytestmark = pytest.mark.asyncio

GUIDE = Document.load("002")
ME = sys.modules[__name__]
TLDR, CORE, TECHNICAL = (GUIDE.headings[place] for place in (0, 2, 3))
METHODS = "API Reference / Plugin Methods / "
PATIENCE = 30.0
EACH_SECOND = "* * * * * *"
NEVER = "0 0 30 2 *"

Make = Callable[..., SchedulerPlugin]


@pytest_asyncio.fixture
async def make(schema_database: str) -> AsyncIterator[Make]:
    """Makes plugins, each with an App of its own, as instances of one program have."""
    async with AsyncExitStack() as stack:

        def make(app_name: str = "shop", **options: Any) -> SchedulerPlugin:
            app = App(schema_database, name=app_name, lease=5)
            plugin = SchedulerPlugin(app=app, **options)
            stack.push_async_callback(app.aclose)
            stack.push_async_callback(plugin.stop)
            return plugin

        yield make


async def nothing(database: Any, context: Record) -> None: ...


class Heard:
    """What a plugin told, and a way to wait for it."""

    def __init__(self, plugin: SchedulerPlugin, *events: str) -> None:
        self.all: list[tuple[str, Record]] = []
        self._changed = asyncio.Event()
        for event in events:
            plugin.on(event, partial(self._note, event))

    def _note(self, event: str, data: Record) -> None:
        self.all.append((event, data))
        self._changed.set()

    def of(self, event: str) -> list[Record]:
        return [data for name, data in self.all if name == event]

    async def wait_for(self, event: str, count: int = 1) -> Record:
        async with asyncio.timeout(PATIENCE):
            while len(self.of(event)) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.of(event)[count - 1]


def query(plugin: SchedulerPlugin, statement: str, *params: Any) -> list[Any]:
    with psycopg.connect(plugin.app.database_url) as connection:
        return connection.execute(statement.encode(), params).fetchall()


def jobs_of(action: Any = nothing, **options: Any) -> dict[str, Any]:
    return {"job": {"schedule": NEVER, "action": action, **options}}


# -- the walk


async def test_every_statement_of_the_guide_is_listed_with_a_reason() -> None:
    GUIDE.check_reasons()
    GUIDE.check_complete([])


async def test_every_heading_is_covered() -> None:
    GUIDE.check_headings(ME)


async def test_every_parameter_has_an_effect_or_a_reason() -> None:
    methods = (
        "add_job", "remove_job", "update_job", "run_job", "list_jobs", "get_job_history", "get_job_stats",
        "health_check", "define_chain", "run_chain", "on",
    )  # fmt: skip
    found = {
        f"{name}.{each}" for name in methods for each in inspect.signature(getattr(SchedulerPlugin, name)).parameters
    }
    found |= {f"SchedulerPlugin.{name}" for name in inspect.signature(SchedulerPlugin).parameters}
    found |= {f"config.{name}" for name in CONFIG}
    GUIDE.check_parameters({name for name in found if not name.endswith((".self", ".camel_case"))}, ME)


CONFIG = (
    "schedule", "description", "action", "enabled", "timezone", "retries", "timeout", "run_on_start", "context",
)  # fmt: skip


@covers("Configuration Options / Plugin Configuration")
async def test_options_and_defaults_are_those_of_the_guide() -> None:
    (table,) = GUIDE.tables("Configuration Options / Plugin Configuration")
    parameters = inspect.signature(SchedulerPlugin).parameters
    for each in table:
        default = parameters[to_snake(each["Parameter"])].default
        shown = {True: "true", None: "{}"}.get(default, f"'{default}'" if isinstance(default, str) else str(default))
        assert shown == each["Default"].strip("`"), each


async def test_the_documented_job_options_are_those_of_the_guide() -> None:
    (block,) = [b for b in GUIDE.blocks if b.heading == "Configuration Options / Job Configuration"]
    assert {to_snake(name) for name in re.findall(r"^    (\w+)\??:", block.text, re.MULTILINE)} == set(CONFIG)


# -- TLDR, Overview, Key Features


@covers(TLDR, "Overview / How It Works", CORE)
@shows("SchedulerPlugin.jobs", "SchedulerPlugin.app", "SchedulerPlugin.database", "config.schedule", "config.action")
async def test_a_job_runs_by_its_schedule_with_the_database_and_its_result_is_kept(make: Make) -> None:
    given: list[Any] = []

    async def clean_up(database: Any, context: Record) -> dict[str, int]:
        given.append((database, context["jobName"]))
        return {"deleted": 3}

    plugin = make(jobs={"daily_cleanup": {"schedule": EACH_SECOND, "action": clean_up}}, database="the database")
    heard = Heard(plugin, "job_completed")
    async with plugin:
        done = await heard.wait_for("job_completed")
    assert (done["jobName"], done["result"]) == ("daily_cleanup", {"deleted": 3})
    assert given[0] == ("the database", "daily_cleanup")
    (first, *_) = await plugin.get_job_history("daily_cleanup")
    assert (first["status"], first["result"], first["retryCount"]) == ("success", {"deleted": 3}, 0)


@covers(TECHNICAL, "Installation & Setup / Plugin Resources")
async def test_definitions_and_history_are_in_the_database_and_need_no_setup(make: Make) -> None:
    plugin = make(jobs=jobs_of(description="Clean up"))
    async with plugin:
        await plugin.run_job("job")
        assert query(plugin, "SELECT type, description FROM watchbill.schedules") == [("s3db.job", "Clean up")]
        assert query(plugin, "SELECT outcome FROM watchbill.slot WHERE name = 'job'") == [("succeeded",)]


@covers("Installation & Setup / Plugin Resources")
async def test_a_database_without_the_schema_names_the_command(database: str) -> None:
    plugin = SchedulerPlugin(app=App(database, name="shop"))
    with pytest.raises(Exception, match="watchbill db migrate"):
        await plugin.start()
    await plugin.app.aclose()


# -- options of the plugin


@covers("Installation & Setup / Basic Setup")
@shows("SchedulerPlugin.timezone", "config.timezone", "config.enabled")
async def test_a_plugin_has_a_zone_and_a_job_may_have_another(make: Make) -> None:
    zones: dict[str, dict[str, Any]] = {"plain": {}, "own": {"timezone": "America/New_York"}, "off": {"enabled": False}}
    jobs = {name: {"schedule": "0 9 * * *", "action": nothing, **more} for name, more in zones.items()}
    async with make(timezone="America/Sao_Paulo", jobs=jobs) as plugin:
        found = {job["name"]: job for job in await plugin.list_jobs()}
    assert {name: job["timezone"] for name, job in found.items()} == {
        "plain": "America/Sao_Paulo", "own": "America/New_York", "off": "America/Sao_Paulo",
    }  # fmt: skip
    assert {name: job["enabled"] for name, job in found.items()} == {"plain": True, "own": True, "off": False}
    assert found["plain"]["nextRun"].astimezone(UTC).hour == 12
    assert found["own"]["nextRun"].astimezone(UTC).hour in (13, 14)
    assert found["off"]["nextRun"] is None


@shows("SchedulerPlugin.enabled")
async def test_a_disabled_plugin_fires_no_schedule_and_runs_jobs_by_name(make: Make) -> None:
    plugin = make(enabled=False, jobs={"job": {"schedule": EACH_SECOND, "action": nothing}})
    heard = Heard(plugin, "scheduler_started")
    async with plugin:
        await plugin.run_job("job")
        due = "SELECT FROM watchbill.timers WHERE next_run < clock_timestamp()"
        await asyncio.to_thread(until, lambda: bool(query(plugin, due)), PATIENCE)
        await plugin.run_job("job")
    assert heard.all == []
    assert query(plugin, "SELECT kind FROM watchbill.slot") == [("hand",), ("hand",)]


@shows("SchedulerPlugin.max_concurrent_jobs")
@pytest.mark.parametrize("most", [1, 3])
async def test_at_most_so_many_jobs_run_at_once(make: Make, most: int) -> None:
    running, peak, reached = 0, 0, asyncio.Event()

    async def work() -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        if peak == most:
            reached.set()
        await reached.wait()
        await asyncio.sleep(0.02)
        running -= 1

    jobs = {f"job-{n}": {"schedule": None, "action": work} for n in range(6)}
    async with make(maxConcurrentJobs=most, jobs=jobs) as plugin:
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(plugin.run_job(name) for name in jobs))
    assert peak == most


@shows("SchedulerPlugin.history_retention")
async def test_history_is_shown_for_as_long_as_it_is_retained(make: Make) -> None:
    async with make(jobs=jobs_of()) as plugin:
        await plugin.run_job("job")
        assert len(await plugin.get_job_history("job")) == 1
        plugin.history_retention = 0
        assert await plugin.get_job_history("job") == []


async def test_camel_case_and_snake_case_are_the_same(make: Make) -> None:
    plugin = make(maxConcurrentJobs=2, historyRetention=1000, jobs=jobs_of(runOnStart=True, timeout=500))
    assert (plugin.max_concurrent_jobs, plugin.history_retention) == (2, 1000)
    assert plugin.addJob == plugin.add_job
    assert plugin.getJobHistory == plugin.get_job_history
    async with plugin:
        (found,) = await plugin.listJobs()
    assert found["runOnStart"] is found["run_on_start"] is found.get("run_on_start") is True
    assert "run_on_start" in found
    assert "nothing" not in found
    with pytest.raises(KeyError):
        found["nothing"]


async def test_a_misspelt_option_is_refused_with_the_right_one(make: Make) -> None:
    with pytest.raises(TypeError, match="max_concurrent_jobs"):
        make(maxConcurentJobs=3)
    with pytest.raises(TypeError, match="'shedule'; did you mean schedule"):
        make(jobs={"job": {"shedule": EACH_SECOND, "action": nothing}})
    with pytest.raises(TypeError, match="needs an action"):
        make(jobs={"job": {"schedule": EACH_SECOND}})
    with pytest.raises(TypeError, match="twice"):
        make(jobs=jobs_of(runOnStart=True, run_on_start=True))


# -- options of a job


@covers("Configuration Options / Job Configuration")
@shows("config.retries")
@pytest.mark.parametrize("retries", [0, 2])
async def test_retries_come_after_the_first_attempt(make: Make, retries: int) -> None:
    attempts: list[int] = []

    async def fail(database: Any, context: Record) -> None:
        attempts.append(context["attempt"])
        raise ConnectionError("down")

    plugin = make(jobs=jobs_of(fail, retries=retries))
    heard = Heard(plugin, "job_retry", "job_failed")
    async with plugin:
        with pytest.raises(JobFailed, match="down"):
            await plugin.run_job("job")
        await heard.wait_for("job_failed")
    assert attempts == list(range(1, retries + 2))
    assert [data["attempt"] for data in heard.of("job_retry")] == attempts[:-1]
    assert [data["error"] for data in heard.of("job_failed")] == ["down"], "it failed once, after its last attempt"
    (found,) = await plugin.get_job_history("job")
    assert (found["status"], found["error"], found["retryCount"]) == ("failed", "down", retries)


async def test_retries_wait_for_1_2_4_and_then_5_seconds(make: Make) -> None:
    async with make(jobs=jobs_of(retries=5)) as plugin:
        (stored,) = query(plugin, "SELECT max_attempts, retry FROM watchbill.schedules")
    assert stored == (6, {"kind": "exponential", "base": 1.0, "factor": 2.0, "cap": 5.0, "jitter": 0.0})


@shows("config.timeout")
async def test_an_action_is_stopped_when_its_time_is_over(make: Make) -> None:
    """In the original it went on beside its retry."""
    stopped: list[str] = []
    running = 0

    async def hang(database: Any, context: Record) -> None:
        nonlocal running
        running += 1
        assert running == 1, "two attempts run at the same time"
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            stopped.append("stopped")
            raise
        finally:
            running -= 1

    async with make(jobs=jobs_of(hang, timeout=50, retries=1)) as plugin:
        with pytest.raises(JobFailed, match=r"timed out after 0\.05 s"):
            await plugin.run_job("job")
        assert stopped == ["stopped", "stopped"]
        (found,) = await plugin.get_job_history("job", status="timeout")
        assert found["status"] == "timeout"
        (listed,) = await plugin.list_jobs()
        assert (listed["timeout"], listed["retries"]) == (50, 1)


@shows("config.run_on_start", "config.description")
async def test_a_job_may_run_when_the_cluster_starts(make: Make) -> None:
    plugin = make(jobs=jobs_of(run_on_start=True, description="first of all"))
    heard = Heard(plugin, "job_completed")
    async with plugin:
        await heard.wait_for("job_completed")
        (listed,) = await plugin.list_jobs()
        assert listed["description"] == "first of all"


@covers("API Reference / Job Action Function")
@shows("config.context")
async def test_an_action_gets_the_context_with_name_and_start_time(make: Make) -> None:
    given: list[Record] = []

    async def look(database: Any, context: Record) -> None:
        given.append(context)

    async with make(jobs=jobs_of(look, context={"region": "eu"})) as plugin:
        await plugin.run_job("job")
        await plugin.update_job("job", {"context": {"region": "us"}})
        await plugin.run_job("job")
    first, second = given
    assert (first["region"], first["jobName"], first["attempt"]) == ("eu", "job", 1)
    assert abs(first["startTime"] - datetime.now(UTC)) < timedelta(minutes=5)
    assert second["region"] == "us"


async def test_an_action_may_take_less_or_be_a_plain_function(make: Make) -> None:
    jobs = {
        "none": {"schedule": None, "action": lambda: 0},
        "one": {"schedule": None, "action": lambda database: database},
        "both": {"schedule": None, "action": lambda database, context: context["jobName"]},
        "any": {"schedule": None, "action": lambda *given: len(given)},
    }
    async with make(jobs=jobs, database=1) as plugin:
        assert [await plugin.run_job(name) for name in jobs] == [0, 1, "both", 2]


@covers("Configuration Options / Cron Expression Formats", "Best Practices / 1. Use Appropriate Cron Expressions")
@pytest.mark.parametrize(
    ("pattern", "next_two"),
    [
        ("0 0 12 * * *", ["2026-03-04 12:00:00", "2026-03-05 12:00:00"]),
        ("0 30 9 * * 1-5", ["2026-03-05 09:30:00", "2026-03-06 09:30:00"]),
        ("0 0 0 1 * *", ["2026-04-01 00:00:00", "2026-05-01 00:00:00"]),
        ("@yearly", ["2027-01-01 00:00:00", "2028-01-01 00:00:00"]),
        ("@monthly", ["2026-04-01 00:00:00", "2026-05-01 00:00:00"]),
        ("@weekly", ["2026-03-08 00:00:00", "2026-03-15 00:00:00"]),
        ("@daily", ["2026-03-05 00:00:00", "2026-03-06 00:00:00"]),
        ("@hourly", ["2026-03-04 11:00:00", "2026-03-04 12:00:00"]),
        ("*/15 * * * *", ["2026-03-04 10:30:00", "2026-03-04 10:45:00"]),
        ("0 0 */2 * *", ["2026-03-05 00:00:00", "2026-03-07 00:00:00"]),
        ("0 0 9-17 * * 1-5", ["2026-03-04 11:00:00", "2026-03-04 12:00:00"]),
        ("0 30 3 * * 0", ["2026-03-08 03:30:00", "2026-03-15 03:30:00"]),
    ],
)
async def test_every_field_of_a_pattern_counts(make: Make, pattern: str, next_two: list[str]) -> None:
    """In the original only minute and hour were read, so monthly jobs ran daily."""
    instants = Cron(pattern).upcoming(2, datetime(2026, 3, 4, 10, 20, tzinfo=UTC))
    assert [f"{each:%Y-%m-%d %H:%M:%S}" for each in instants] == next_two
    plugin = make(jobs={"job": {"schedule": pattern, "action": nothing}})
    assert next(iter(plugin.app.declared)).definition["pattern"] == pattern


async def test_a_timer_beyond_25_days_does_not_fire_at_once(make: Make) -> None:
    """In the original a timer of more than 24.8 days overflowed."""
    far = datetime.now(UTC) + timedelta(days=40)
    async with make(jobs={"job": {"schedule": f"0 0 {far.day} {far.month} *", "action": nothing}}) as plugin:
        (found,) = await plugin.list_jobs()
        assert found["nextRun"] > datetime.now(UTC) + timedelta(days=30)
        assert await plugin.get_job_history("job") == []


# -- usage examples


@covers("Usage Examples / Data Maintenance Jobs", "Advanced Patterns / Resource-Aware Scheduling")
async def test_jobs_have_their_own_time_outs_and_retries_and_decide_what_to_do(make: Make) -> None:
    async def adapt(database: dict[str, list[int]], context: Record) -> dict[str, Any]:
        level = "aggressive" if len(database["temp"]) > 2 else "light"
        cleaned = len(database["temp"]) if level == "aggressive" else 0
        del database["temp"][:cleaned]
        return {"level": level, "cleaned": cleaned}

    jobs = {
        "cleanup": {"schedule": "0 2 * * *", "timeout": 300_000, "retries": 2, "action": adapt},
        "optimize": {"schedule": "0 3 * * 0", "timeout": 600_000, "action": nothing},
    }
    async with make(jobs=jobs, max_concurrent_jobs=3, database={"temp": [1, 2, 3]}) as plugin:
        found = {job["name"]: (job["timeout"], job["retries"]) for job in await plugin.list_jobs()}
        assert found == {"cleanup": (300_000, 2), "optimize": (600_000, 0)}
        assert await plugin.run_job("cleanup") == {"level": "aggressive", "cleaned": 3}
        assert await plugin.run_job("cleanup") == {"level": "light", "cleaned": 0}


@covers("Usage Examples / Business Process Automation", "Best Practices / 4. Use Timezone-Aware Scheduling")
async def test_business_hours_are_those_of_new_york(make: Make) -> None:
    patterns = {"reports": "0 8 * * 1-5", "billing": "0 9 1 * *", "reminders": "0 10 * * 1"}
    jobs = {name: {"schedule": pattern, "action": nothing} for name, pattern in patterns.items()}
    async with make(timezone="America/New_York", jobs=jobs) as plugin:
        for job in await plugin.list_jobs():
            following = await plugin.app.schedules.apreview(job["name"], 3)
            expected = Cron(patterns[job["name"]], "America/New_York").upcoming(3, datetime.now(UTC))
            assert following == list(expected)
            assert {each.hour for each in following} == {int(patterns[job["name"]].split()[1])}


@covers("Usage Examples / Dynamic Job Management", "Best Practices / 3. Monitor Job Performance")
@shows("get_job_stats.name")
async def test_statistics_and_health(make: Make) -> None:
    outcomes = iter([True] * 4 + [False])

    async def work() -> dict[str, bool]:
        if not next(outcomes):
            raise ValueError("no")
        return {"ok": True}

    async with make(jobs=jobs_of(work)) as plugin:
        await plugin.add_job("other", {"schedule": None, "action": nothing, "enabled": False})
        assert (await plugin.health_check())["job_status"]["job"]["health"] == "unknown"
        for _ in range(4):
            await plugin.run_job("job")
        with pytest.raises(JobFailed):
            await plugin.run_job("job")
        stats = await plugin.get_job_stats("job")
        assert (stats["total_executions"], stats["successful"], stats["failed"]) == (5, 4, 1)
        assert stats["success_rate"] == "80.00%"
        assert stats["avg_duration"] >= 0
        (latest, *_) = await plugin.get_job_history("job", limit=1)
        assert stats["last_execution"] == latest["startTime"]
        assert (await plugin.get_job_stats("other"))["success_rate"] == "N/A"
        health = await plugin.health_check()
        assert (health["total_jobs"], health["enabled_jobs"]) == (2, 1)
        assert health["job_status"]["job"]["health"] == "warning"


# -- methods


@covers(f"{METHODS}`addJob(jobName, jobConfig)`")
@shows("add_job.name", "add_job.config")
async def test_a_job_is_added_while_the_scheduler_runs(make: Make) -> None:
    plugin = make()
    heard = Heard(plugin, "job_completed")
    async with plugin:
        await plugin.add_job("new_job", {"schedule": EACH_SECOND, "action": lambda: {"success": True}})
        (found,) = await plugin.list_jobs()
        assert (found["name"], found["schedule"]) == ("new_job", EACH_SECOND)
        assert found["nextRun"] is not None
        assert (await heard.wait_for("job_completed"))["result"] == {"success": True}
        with pytest.raises(JobExists):
            await plugin.add_job("new_job", {"schedule": None, "action": nothing})
        with pytest.raises(Exception, match="61"):
            await plugin.add_job("bad", {"schedule": "61 * * * *", "action": nothing})
        assert [job["name"] for job in await plugin.list_jobs()] == ["new_job"]


@covers(f"{METHODS}`removeJob(jobName)`")
@shows("remove_job.name")
async def test_a_removed_job_is_gone_and_may_be_added_again(make: Make) -> None:
    async with make(jobs=jobs_of()) as plugin:
        await plugin.remove_job("job")
        assert await plugin.list_jobs() == []
        assert query(plugin, "SELECT name FROM watchbill.schedules") == []
        with pytest.raises(NoSuchSchedule, match="There is no job 'job'"):
            await plugin.remove_job("job")
        await plugin.add_job("job", {"schedule": None, "action": lambda: "again"})
        assert await plugin.run_job("job") == "again"


@covers(f"{METHODS}`updateJob(jobName, updates)`")
@shows("update_job.name", "update_job.updates")
async def test_updates_change_what_they_name_and_leave_the_rest(make: Make) -> None:
    async with make(jobs=jobs_of(lambda: "old", description="kept", retries=1)) as plugin:
        await plugin.update_job("job", {"schedule": "0 4 * * *", "enabled": False})
        (found,) = await plugin.list_jobs()
        assert (found["schedule"], found["enabled"]) == ("0 4 * * *", False)
        assert (found["description"], found["retries"], found["timeout"]) == ("kept", 1, 60_000)
        await plugin.update_job("job", {"retries": 4, "timeout": 1000, "timezone": "Europe/Paris", "enabled": True})
        await plugin.update_job("job", {"action": lambda: "new"})
        (found,) = await plugin.list_jobs()
        assert (found["retries"], found["timeout"], found["timezone"]) == (4, 1000, "Europe/Paris")
        assert found["enabled"] is True
        assert await plugin.run_job("job") == "new"
        with pytest.raises(NoSuchSchedule):
            await plugin.update_job("other", {})


async def test_an_update_outlives_the_restart_of_an_instance(make: Make) -> None:
    async with make(jobs=jobs_of()) as plugin:
        await plugin.update_job("job", {"schedule": "0 4 * * *"})
    async with make(jobs=jobs_of()) as plugin:
        (found,) = await plugin.list_jobs()
        assert found["schedule"] == "0 4 * * *"


@covers(f"{METHODS}`runJob(jobName)`", "Troubleshooting / Issue: Concurrent job execution conflicts")
@shows("run_job.name")
async def test_a_job_that_runs_cannot_be_run_beside_itself(make: Make) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        started.set()
        await go_on.wait()
        return "done"

    async with make(jobs=jobs_of(work)) as plugin:
        running = asyncio.ensure_future(plugin.run_job("job"))
        await started.wait()
        with pytest.raises(AlreadyRunning):
            await plugin.run_job("job")
        go_on.set()
        assert await running == "done"
        with pytest.raises(NoSuchSchedule):
            await plugin.run_job("other")


@covers(f"{METHODS}`listJobs()`")
async def test_jobs_are_listed_with_their_times(make: Make) -> None:
    jobs = {"a": {"schedule": "0 3 * * *", "action": nothing}, "b": {"schedule": None, "action": nothing}}
    plugin = make(jobs=jobs)
    assert [job["name"] for job in await plugin.list_jobs()] == ["a", "b"], "before the start too"
    async with plugin:
        await plugin.run_job("b")
        a, b = await plugin.list_jobs()
    assert (a["schedule"], a["nextRun"].astimezone(UTC).hour, a["lastRun"]) == ("0 3 * * *", 3, None)
    assert (b["schedule"], b["nextRun"]) == (None, None)
    assert b["lastRun"] is not None


@covers(f"{METHODS}`getJobHistory(jobName, options?)`")
@shows("get_job_history.name", "get_job_history.options", "get_job_history.limit", "get_job_history.status")
async def test_history_has_a_limit_and_a_filter(make: Make) -> None:
    fails = iter([False, True, False, True, False])

    async def work() -> int:
        if next(fails):
            raise ValueError("no")
        return 1

    async with make(jobs=jobs_of(work)) as plugin:
        await plugin.add_job("other", {"schedule": None, "action": nothing})
        for _ in range(5):
            try:
                await plugin.run_job("job")
            except JobFailed:
                continue
        words = ["success", "failed", "success", "failed", "success"]
        history = await plugin.get_job_history("job")
        assert [each["status"] for each in history] == words
        assert all(each["endTime"] >= each["startTime"] and each["duration"] >= 0 for each in history)
        assert [each["status"] for each in await plugin.get_job_history("job", {"limit": 2})] == words[:2]
        assert len(await plugin.get_job_history("job", limit=3)) == 3
        for status, count in (("failed", 2), ("success", 3), ("completed", 3), ("timeout", 0)):
            assert len(await plugin.get_job_history("job", status=status)) == count
        assert len(await plugin.getJobHistory("job", {"status": "failed", "limit": 1})) == 1
        assert await plugin.get_job_history("other") == []
        with pytest.raises(ValueError, match="success, completed, failed"):
            await plugin.get_job_history("job", status="done")


# -- events


@covers("API Reference / Event System")
@shows("on.event", "on.observer")
async def test_events_tell_what_happens(make: Make) -> None:
    plugin = make(jobs=jobs_of(lambda: "done"))
    names = ("scheduler_started", "job_started", "job_completed", "scheduler_stopped")
    heard = Heard(plugin, *names)
    asynchronous: list[str] = []

    async def later(data: Record) -> None:
        await asyncio.sleep(0)
        asynchronous.append(data["job_name"])

    def broken(data: Record) -> None:
        raise ValueError("an observer that fails disturbs nobody")

    plugin.on("job_completed", broken)
    plugin.on("job_completed", later)
    async with plugin:
        await plugin.run_job("job")
        await heard.wait_for("job_completed")
    assert [name for name, _ in heard.all] == list(names)
    (started,), (completed,) = heard.of("job_started"), heard.of("job_completed")
    assert started["jobName"] == completed["jobName"] == "job"
    assert abs(started["startTime"] - datetime.now(UTC)) < timedelta(minutes=5)
    assert completed["duration"] >= 0
    assert completed["result"] == "done"
    assert asynchronous == ["job"]
    with pytest.raises(ValueError, match="there is no event 'job_done'"):
        plugin.on("job_done", print)


@covers("Troubleshooting / Issue: Jobs failing silently", "Best Practices / 2. Implement Proper Error Handling")
async def test_a_failure_is_told_kept_and_raised(make: Make) -> None:
    async def refuse(database: Any, context: Record) -> dict[str, Any]:
        if context["attempt"] == 1:
            raise ConnectionError("temporary")
        return {"success": False, "error": "permanent"}

    plugin = make(jobs=jobs_of(refuse, retries=3))
    heard = Heard(plugin, "job_retry", "job_failed")
    async with plugin:
        assert await plugin.run_job("job") == {"success": False, "error": "permanent"}
        (found,) = await plugin.get_job_history("job")
    assert [data["error"] for data in heard.of("job_retry")] == ["temporary"]
    assert heard.of("job_failed") == []
    assert (found["status"], found["retryCount"]) == ("success", 1)


# -- advanced patterns


@covers("Advanced Patterns / Conditional Job Execution")
async def test_a_job_may_say_that_it_skipped_and_why(make: Make) -> None:
    answer = {"skipped": True, "reason": "no_changes"}
    async with make(jobs=jobs_of(lambda: answer)) as plugin:
        assert await plugin.run_job("job") == answer
        (found,) = await plugin.get_job_history("job", status="skipped")
    assert (found["status"], found["reason"], found["result"], found["error"]) == (
        "skipped", "no_changes", answer, None,
    )  # fmt: skip


@covers("Advanced Patterns / Job Chains and Dependencies")
@shows("define_chain.name", "define_chain.jobs", "run_chain.name")
async def test_a_chain_runs_its_jobs_in_order_and_returns_the_result_of_the_last(make: Make) -> None:
    order: list[str] = []

    def step(name: str, result: int) -> dict[str, Any]:
        async def work(database: Any, context: Record) -> dict[str, int]:
            order.append(context["jobName"])
            return {"records": result}

        return {"name": name, "config": {"description": name, "action": work}}

    jobs = [step("extract", 1000), step("transform", 950), step("load", 940)]
    jobs[0]["config"]["schedule"] = "0 1 * * *"
    plugin = make()
    plugin.define_chain("daily_processing", jobs)
    async with plugin:
        found = {job["name"]: job["schedule"] for job in await plugin.list_jobs()}
        assert found == {"extract": "0 1 * * *", "transform": None, "load": None}
        async with asyncio.timeout(PATIENCE):
            assert await plugin.run_chain("daily_processing") == {"records": 940}
        assert order == ["extract", "transform", "load"]
        (run,) = await plugin.get_job_history("transform")
        assert (run["status"], run["result"]) == ("success", {"records": 950})
        assert await plugin.run_job("load") == {"records": 940}
        assert len(await plugin.get_job_history("load", limit=5)) == 2
        await plugin.update_job("extract", {"schedule": "0 5 * * *"})
        (pattern,) = query(plugin, "SELECT pattern FROM watchbill.schedules WHERE name = 'daily_processing'")
        assert pattern == ("0 5 * * *",)
        with pytest.raises(NoSuchSchedule, match="no chain 'other'"):
            await plugin.run_chain("other")
        with pytest.raises(JobExists):
            plugin.define_chain("daily_processing", jobs)


@covers("Advanced Patterns / Job Chains and Dependencies")
async def test_a_chain_fires_by_the_schedule_of_its_first_job_and_stops_at_a_failure(make: Make) -> None:
    order: list[str] = []

    def fail() -> None:
        order.append("fail")
        raise ValueError("no")

    plugin = make()
    plugin.define_chain(
        "chain",
        [
            {"name": "first", "config": {"schedule": EACH_SECOND, "action": lambda: order.append("first")}},
            {"name": "fail", "config": {"action": fail}},
            {"name": "never", "config": {"action": lambda: order.append("never")}},
        ],
    )
    heard = Heard(plugin, "job_failed")
    async with plugin:
        await heard.wait_for("job_failed")
    assert order[:2] == ["first", "fail"]
    assert "never" not in order


# -- several instances


@covers("Best Practices / 5. Multi-Instance Deployment")
async def test_each_slot_runs_on_one_instance_and_every_instance_keeps_working(make: Make) -> None:
    """In the original the instance that lost the lock never ran that job again."""
    ran: list[str] = []

    def instance(name: str) -> SchedulerPlugin:
        return make(jobs={"job": {"schedule": EACH_SECOND, "action": lambda: ran.append(name)}})

    one, two = instance("one"), instance("two")
    async with one, two:
        await asyncio.to_thread(until, lambda: len(ran) >= 3, PATIENCE)
    slots = query(one, "SELECT slot, count(*) FROM watchbill.slot WHERE job_id IS NOT NULL GROUP BY 1")
    assert {count for _, count in slots} == {1}
    assert len(ran) == len(slots)
    async with instance("three") as three:
        await Heard(three, "job_completed").wait_for("job_completed")


async def test_retries_survive_the_end_of_the_instance(make: Make) -> None:
    """In the original they lived in memory."""

    def fail() -> None:
        raise ConnectionError("down")

    plugin = make(jobs=jobs_of(fail, retries=1))
    heard = Heard(plugin, "job_retry")
    async with plugin:
        running = asyncio.ensure_future(plugin.run_job("job"))
        await heard.wait_for("job_retry")
        running.cancel()
    other = make(jobs=jobs_of(lambda: "second attempt", retries=1))
    done = Heard(other, "job_completed")
    async with other:
        assert (await done.wait_for("job_completed"))["result"] == "second attempt"


_INSTANCE = """
import asyncio, os, sys
from watchbill import App
from watchbill.compat.s3db import SchedulerPlugin

async def work(database, context):
    print("started", context["attempt"], flush=True)
    if context["attempt"] == 1:
        await asyncio.Event().wait()
    return {"pid": os.getpid()}

async def main():
    app = App(sys.argv[1], name="shop", lease=3)
    jobs = {"job": {"schedule": None, "action": work, "retries": 1, "run_on_start": True}}
    async with SchedulerPlugin(app=app, jobs=jobs):
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@covers("Best Practices / 5. Multi-Instance Deployment")
async def test_the_job_of_an_instance_that_is_killed_runs_on_another(schema_database: str, make: Make) -> None:
    async def start() -> asyncio.subprocess.Process:
        command = (sys.executable, "-c", _INSTANCE, schema_database)
        return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)

    async def read(process: asyncio.subprocess.Process, word: bytes) -> None:
        assert process.stdout is not None
        while word not in (line := await process.stdout.readline()):
            assert line, "the instance has ended"

    async with asyncio.timeout(4 * PATIENCE):
        first = await start()
        await read(first, b"started 1")
        second = await start()
        try:
            await read(second, b"ready")
            first.kill()
            await read(second, b"started")
            looking = make()
            ended = "SELECT outcome FROM watchbill.attempt WHERE type = 's3db.job'"
            await asyncio.to_thread(until, lambda: ("lost",) in query(looking, ended), PATIENCE)
        finally:
            second.kill()
            await asyncio.gather(first.wait(), second.wait())


@covers("Best Practices / 6. Graceful Shutdown")
async def test_stop_waits_for_jobs_that_run(make: Make) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    async def work() -> None:
        started.set()
        await go_on.wait()
        ended.append("ended")

    plugin = make(jobs=jobs_of(work))
    await plugin.start()
    running = asyncio.ensure_future(plugin.run_job("job"))
    await started.wait()
    stopping = asyncio.ensure_future(plugin.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    go_on.set()
    await asyncio.gather(stopping, running)
    assert ended == ["ended"]
    await plugin.stop()


_STOPPED_BY_SIGNAL = """
import asyncio, signal, sys
from watchbill import App
from watchbill.compat.s3db import SchedulerPlugin

async def main():
    asked, running = asyncio.Event(), set()

    async def work():
        print("started", flush=True)
        await asked.wait()
        return "ended after the signal"

    scheduler = SchedulerPlugin(app=App(sys.argv[1], name="shop"), jobs={"job": {"schedule": None, "action": work}})
    scheduler.on("job_started", lambda data: running.add(data["jobName"]))
    scheduler.on("job_completed", lambda data: running.discard(data["jobName"]))
    await scheduler.start()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    run = asyncio.ensure_future(scheduler.run_job("job"))
    await asked.wait()
    await scheduler.stop()
    print(await run, len(running), flush=True)
    await scheduler.app.aclose()

asyncio.run(main())
"""


@covers("Best Practices / 6. Graceful Shutdown")
async def test_a_program_that_is_asked_to_end_lets_its_jobs_end(schema_database: str, make: Make) -> None:
    command = (sys.executable, "-c", _STOPPED_BY_SIGNAL, schema_database)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(4 * PATIENCE):
            assert process.stdout is not None
            assert await process.stdout.readline() == b"started\n"
            process.terminate()
            assert await process.stdout.read() == b"ended after the signal 0\n"
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert query(make(), "SELECT outcome FROM watchbill.slot") == [("succeeded",)]


# -- several programs in one database


async def test_a_program_whose_job_has_the_name_of_another_program_s_job_does_not_start(make: Make) -> None:
    ran: list[str] = []
    shop = make("shop", jobs=jobs_of(lambda: ran.append("shop")))
    bank = make("bank", jobs=jobs_of(lambda: ran.append("bank")) | {"own": {"action": nothing}})
    bank.define_chain("links", [{"name": "first", "config": {"action": nothing}}])
    async with shop:
        with pytest.raises(JobExists, match=r"'job' belongs to the App 'shop', and this is the App 'bank'"):
            await bank.start()
        assert query(shop, "SELECT name, owner FROM watchbill.schedules") == [("job", "shop")], "nothing was written"
        await shop.run_job("job")
    assert ran == ["shop"]
    assert query(shop, "SELECT count(*) FROM watchbill.nodes WHERE app = 'bank'") == [(0,)]


async def test_the_job_of_another_program_cannot_be_run_changed_or_removed(make: Make) -> None:
    ran: list[str] = []
    shop = make(
        "shop", jobs=jobs_of(lambda: ran.append("shop")) | {"late": {"schedule": "0 3 * * *", "action": nothing}}
    )
    bank = make("bank", jobs=jobs_of(lambda: ran.append("bank")) | {"late": {"action": nothing}})  # never started
    async with shop, make("mill") as mill:
        for call in (
            bank.run_job("job"),
            bank.update_job("job", {"schedule": EACH_SECOND}),
            bank.remove_job("job"),
            bank.get_job_history("job"),
            bank.get_job_stats("job"),
            mill.add_job("job", {"action": nothing}),
        ):
            with pytest.raises(JobExists, match="belongs to the App 'shop'"):
                await call
        with pytest.raises(NoSuchSchedule):  # the job that was refused is gone, and its name is free
            await mill.run_job("job")
        assert [job["nextRun"] for job in await bank.list_jobs()] == [None, None]
        assert [job["schedule"] for job in await shop.list_jobs()] == [NEVER, "0 3 * * *"]
        await shop.run_job("job")
    assert ran == ["shop"]


async def test_a_job_that_waits_is_not_run_by_a_program_with_a_job_of_that_name(make: Make) -> None:
    ran: list[str] = []

    def fail() -> None:
        ran.append("shop")
        raise ConnectionError("down")

    shop = make("shop", jobs=jobs_of(fail, retries=1))
    heard = Heard(shop, "job_retry")
    async with shop:
        running = asyncio.ensure_future(shop.run_job("job"))
        await heard.wait_for("job_retry")
        running.cancel()
        await shop.remove_job("job")
    async with make("bank", jobs=jobs_of(lambda: ran.append("bank"))) as bank:
        query(bank, "UPDATE watchbill.jobs SET run_at = clock_timestamp() - interval '1 minute' RETURNING id")
        query(bank, "SELECT watchbill.promote()")
        await bank.run_job("job")
    assert ran == ["shop", "bank"]


async def test_without_an_app_the_program_is_the_app(schema_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHBILL_DATABASE_URL", schema_database)
    assert SchedulerPlugin().app.name == __name__
    made: dict[str, Any] = {"__name__": "bakery.schedules"}
    exec("from watchbill.compat.s3db import SchedulerPlugin\nplugin = SchedulerPlugin()", made)
    assert made["plugin"].app.name == "bakery.schedules"


# -- troubleshooting


@covers(
    "Troubleshooting / Issue: Jobs not executing at scheduled times",
    "Troubleshooting / Issue: Jobs timing out frequently",
    "Troubleshooting / Issue: High memory usage during job execution",
)
async def test_a_schedule_says_why_it_does_not_fire(make: Make) -> None:
    async with make(jobs=jobs_of(enabled=False)) as plugin:
        (reason, *_) = await plugin.app.schedules.awhy("job")
        assert reason.reason.startswith("it is disabled")
        await plugin.update_job("job", {"enabled": True, "timeout": 120_000})
        (listed,) = await plugin.list_jobs()
        assert listed["timeout"] == 120_000
