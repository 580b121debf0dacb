"""The usage guide of JobSync on Watchbill: each heading by its own names."""

from __future__ import annotations

import inspect
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import fields
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compat.guide_001 import TABLES, TOKENS, Surroundings, make_config, make_database
from tests.compat.psql import Psql
from tests.compat.walk import Document, Statement, covers, shows
from tests.role_logins import make_logins
from tests.servers import Server
from tests.waiting import until
from watchbill.cluster.membership import Memberships
from watchbill.cluster.options import Intervals
from watchbill.compat.jobsync import (
    CoordinationConfig,
    Job,
    Task,
    TaskTaken,
    compute_minimal_move_distribution,
    matches_pattern,
    task_to_token,
)
from watchbill.errors import WatchbillError
from watchbill.maintenance.survey import Survey
from watchbill.worker.notifications import Listener

GUIDE = Document.load("001")
ME = sys.modules[__name__]
BASIC = "Basic Job Creation / "
CONFIG = "Coordination Configuration / "
LOCKS = "Task Locking and Pinning / "
PATTERNS = "Task Processing Patterns / "
HEALTH = "Health Monitoring / "
QUERIES = "Database Queries / "
BEST = "Best Practices / "

db: Any = make_database()
Enter = Callable[..., Job]


@pytest.fixture
def config(psql: Psql) -> Any:
    return make_config(psql.url, total_tokens=TOKENS)


@pytest.fixture
def enter(config: Any) -> Iterator[Enter]:
    """Enters Jobs of the site `production`, and leaves them at the end."""
    with ExitStack() as stack:

        def enter(name: str, site: str = "production", **options: Any) -> Job:
            return stack.enter_context(Job(name, site, options.pop("config", config), **options))

        yield enter


class SqlNode:
    """A node that is only a row: it never looks, beats or passes on what it has."""

    def __init__(self, psql: Psql, name: str, lease: str = "1 day", site: str = "production") -> None:
        self.psql, self.name, self.site = psql, name, site
        self.epoch = psql.one(
            "SELECT watchbill.register(%s, %s, labels => jsonb_build_object('site', %s::text), queues => '{}')",
            name, lease, site,
        )  # fmt: skip
        psql("SELECT watchbill.join_group(%s, %s)", self.epoch, site)

    def is_given_tokens(self) -> bool:
        return bool(self.psql("SELECT node FROM sync_token WHERE node = %s", self.name))

    def claim(self, day: date, *ids: object) -> None:
        rows = self.psql(
            "SELECT fence FROM watchbill.claim_items(%s, %s, %s::text[], %s)",
            self.epoch, self.site, [str(each) for each in ids], day.isoformat(),
        )  # fmt: skip
        assert all(row.fence for row in rows)

    def pass_tokens(self) -> None:
        self.psql("SELECT watchbill.pass_tokens(%s, %s)", self.epoch, self.site)

    def die(self) -> None:
        self.psql("SELECT watchbill.expire_node(epoch, n) FROM watchbill.beats WHERE epoch = %s", self.epoch)


def shares(psql: Psql) -> dict[str, int]:
    return Counter(row.node for row in psql("SELECT node FROM sync_token WHERE token_id < %s", TOKENS))


def owned_by(job: Job, ids: range = range(1000)) -> list[int]:
    return [each for each in ids if job.can_claim_task(Task(each))]


# -- the walk


@pytest.mark.timeout(600)  # it enters thirty Jobs
def test_every_block_of_the_guide_runs(psql: Psql, config: Any, caplog: pytest.LogCaptureFixture) -> None:
    """SQL on a live site of three nodes, Python in a program that has what the guide takes for granted."""
    statements = GUIDE.to_run()
    caplog.set_level("INFO", "guide")
    program = Surroundings(psql.url, psql.connection)
    seen: dict[str, list[dict[str, Any]]] = {}
    during: dict[str, Callable[[Job], object]] = {
        BEST + "1. Always Use Graceful Shutdown": lambda _: signal.raise_signal(signal.SIGTERM),
        BEST + "8. Implement Health Checks": lambda job: job.__exit__(),
    }
    psql(TABLES)
    with ExitStack() as site, program.installed():

        def run(statement: Statement) -> Any:
            if statement.language != "sql":
                site.close()
                program.during = during.get(statement.heading, lambda _: None)
                called = program.run(statement)
                seen.setdefault(statement.heading, []).extend(program.seen)
                return called
            if not psql("SELECT name FROM sync_node WHERE site = 'production'"):
                for name in ("worker-01", "worker-02", "worker-03"):
                    site.enter_context(Job(name, "production", config))
            return psql(statement.text)

        results = GUIDE.walk(run)
        not_ready = program.names["app"].ask("/health/ready")
    called = {name for s, names in results.items() if s.language == "python" for name in names}
    assert len(statements) == len(results)
    assert {"process_daily_tasks", "process_with_recovery", "continuous_processing", "main", "exit"} <= called
    assert len(called) >= 30
    (asked,) = seen[HEALTH + "Load Balancer Health Check"]
    assert asked["ready"] == (200, {"status": "ready", "node": "worker-01", "token_count": asked["tokens"]})
    assert asked["live"] == (200, {"status": "alive"})
    assert not_ready == (503, {"status": "not_ready"}), "its Job has left"
    assert [each["healthy"] for each in seen[BEST + "8. Implement Health Checks"]] == [True, True]
    assert "Node unhealthy, exiting" in caplog.text
    assert "Received signal 15, shutting down gracefully" in caplog.text
    assert "High rebalance frequency: " in caplog.text, "each Job was one"


def test_every_heading_is_covered() -> None:
    GUIDE.check_headings(ME)
    GUIDE.check_reasons()


def test_every_parameter_has_an_effect() -> None:
    functions = {
        **{name: f for name, f in inspect.getmembers(Job, callable) if not name.startswith("_")},
        **{f.__name__: f for f in (compute_minimal_move_distribution, matches_pattern, task_to_token, Job, Task)},
    }
    found = {f"{name}.{p}" for name, function in functions.items() for p in inspect.signature(function).parameters}
    found |= {f"CoordinationConfig.{each.name}" for each in fields(CoordinationConfig)}
    aliases = {name for name in found if name.split(".")[0] in ("register_lock", "register_locks_bulk")}
    GUIDE.check_parameters({name for name in found - aliases if not name.endswith(".self")}, ME)
    assert Job.register_lock is Job.register_task_lock
    assert Job.register_locks_bulk is Job.register_task_locks_bulk


# -- Overview, Basic Job Creation


@covers("Overview", BASIC + "Simple Job Without Locks", PATTERNS + "Basic Task Loop")
@shows("Job.node_name", "Job.site", "Job.config", "can_claim_task.task", "add_task.task", "Task.id")
def test_two_nodes_divide_the_tasks_and_audit_them(enter: Enter, psql: Psql) -> None:
    jobs = [enter("worker-01"), enter("worker-02")]
    assert [job.am_i_leader() for job in jobs] == [True, False]
    assert [len(job.my_tokens) for job in jobs] == [TOKENS // 2, TOKENS // 2]
    done: list[int] = []
    for job in jobs:
        for each in range(30):
            if job.can_claim_task(Task(each)):
                job.add_task(Task(each))
                done.append(each)
        assert job.write_audit() == len(job.get_audit()) - sum(a["node"] != job.node_name for a in job.get_audit())
    assert sorted(done) == list(range(30))
    audit = jobs[0].get_audit()
    assert {(row["item"], row["date"]) for row in audit} == {(str(each), jobs[0].date) for each in range(30)}
    assert {row["node"] for row in audit} == {"worker-01", "worker-02"}
    assert jobs[0].write_audit() == 0  # nothing was added since


def test_a_job_of_another_site_shares_nothing(enter: Enter) -> None:
    first, second = enter("worker-01"), enter("worker-02", site="staging")
    assert len(owned_by(first)) == len(owned_by(second)) == 1000
    first.add_task(Task(1))
    second.add_task(Task(1))
    assert [node["name"] for node in second.get_active_nodes()] == ["worker-02"]
    first.write_audit()
    assert second.get_audit() == []
    assert second._cn.execute(f"SELECT node FROM {second._tables['Claim']}".encode()).fetchall() == [("worker-02",)]


@pytest.mark.long  # it waits for the lease, in case the first node is dead
@pytest.mark.timeout(300)
def test_a_second_node_of_the_same_name_is_refused(enter: Enter) -> None:
    """Otherwise both would own the tokens of that name."""
    first = enter("worker-01")
    with pytest.raises(WatchbillError, match="worker-01"):
        enter("worker-01")
    until(lambda: len(first.my_tokens) == TOKENS)


@shows("Task.name")
def test_tasks_are_equal_and_in_order_by_their_ids() -> None:
    assert Task(1, "one") == Task(1)
    assert {Task(1), Task(1, "again")} == {Task(1)}
    assert sorted([Task(2), Task(1, "z"), Task(3)]) == [Task(1), Task(2), Task(3)]
    assert Task(1, "one").name == "one"


def test_a_job_needs_names() -> None:
    """An empty node name would become another one, and an empty site an error about labels."""
    with pytest.raises(ValueError, match="node_name='' is invalid: give a name"):
        Job("", "production")
    with pytest.raises(ValueError, match="site='' is invalid: give a name"):
        Job("worker-01", "")


@covers(BASIC + "Job with Date-Based Processing")
@shows("Job.date")
def test_each_date_has_claims_and_an_audit_of_its_own(enter: Enter) -> None:
    past = datetime(2024, 1, 18, 9, 30, tzinfo=UTC)
    historical, current = enter("worker-01", date=past), Job("worker-02", "production")
    assert historical.date == past.date()
    historical.add_task(Task("a"))
    historical.write_audit()
    assert [row["date"] for row in historical.get_audit()] == [past.date()]
    today = enter("worker-03")
    assert today.date > past.date()
    assert today.get_audit() == []
    assert current.node_name == "worker-02"
    with pytest.raises(TypeError, match="date='today' is invalid: give a date or a datetime"):
        Job("worker-04", "production", date="today")  # type: ignore[arg-type]


# -- Coordination Configuration


@covers(CONFIG + "Using CoordinationConfig", CONFIG + "Configuration via Config Module")
@shows("Job.coordination_config", "CoordinationConfig.total_tokens")
def test_the_argument_wins_over_the_config_module_and_that_over_the_defaults(psql: Psql) -> None:
    config = make_config(psql.url, total_tokens=5000, heartbeat_timeout_sec=30, minimum_nodes=SimpleNamespace())
    configured = Job("worker-01", "production", config)
    assert configured._options == CoordinationConfig(total_tokens=5000, heartbeat_timeout_sec=30)
    given = Job("worker-01", "production", config, coordination_config=CoordinationConfig(total_tokens=7))
    assert given._options == CoordinationConfig(total_tokens=7)
    assert Job("worker-01", "production")._options == CoordinationConfig()
    with given:
        assert given.my_tokens == set(range(7))


@covers(CONFIG + "CoordinationConfig Parameters Reference", CONFIG + "Performance Tuning for Different Scenarios")
def test_the_defaults_are_those_of_the_guide() -> None:
    expected = {
        "enabled": True, "total_tokens": 10_000, "heartbeat_interval_sec": 5, "heartbeat_timeout_sec": 15,
        "rebalance_check_interval_sec": 30, "dead_node_check_interval_sec": 10,
        "token_refresh_initial_interval_sec": 5, "token_refresh_steady_interval_sec": 30, "locks_enabled": True,
        "leader_lock_timeout_sec": 30, "health_check_interval_sec": 30,
    }  # fmt: skip
    found = {each.name: each.default for each in fields(CoordinationConfig)}
    assert found == expected | {"minimum_nodes": 1, "hash_function": "md5"}


def test_the_table_of_parameters_in_the_guide_is_that_of_the_class() -> None:
    [table] = GUIDE.tables(CONFIG + "CoordinationConfig Parameters Reference")
    theirs = {row["Parameter"]: row["Default"] for row in table}
    ours = {each.name: str(each.default) for each in fields(CoordinationConfig)}
    assert theirs.items() <= ours.items()
    assert set(ours) - set(theirs) == {"minimum_nodes", "hash_function"}


@covers(CONFIG + "Basic Customization")
@shows("CoordinationConfig.heartbeat_timeout_sec", "CoordinationConfig.hash_function")
def test_the_timeout_is_the_lease_and_the_hash_is_that_of_the_site(enter: Enter, psql: Psql) -> None:
    options = CoordinationConfig(total_tokens=64, heartbeat_timeout_sec=30, hash_function="sha256")
    job = enter("worker-01", coordination_config=options)
    assert psql.one("SELECT lease FROM watchbill.node") == timedelta(seconds=30)
    assert psql("SELECT total, hash FROM watchbill.group_list()") == [(64, "sha256")]
    assert len(job.my_tokens) == 64


@covers(CONFIG + "Disabling Coordination")
@shows("CoordinationConfig.enabled")
def test_without_coordination_one_node_owns_all_and_needs_no_database() -> None:
    alone = CoordinationConfig(enabled=False)
    config = make_config("host=/nowhere dbname=none user=none")
    with Job("worker-01", "production", config, coordination_config=alone) as job:
        assert not job._coordination_enabled
        for each in range(5):
            assert job.can_claim_task(Task(each))
            job.add_task(Task(each))
        job.add_task(Task(0))
        job.set_claim([7, 8])
        assert job.write_audit() == 5
        assert [row["item"] for row in job.get_audit()] == list("01234")
        assert (job.am_i_healthy(), job.am_i_leader(), job.nodes) == (True, True, [{"name": "worker-01"}])
        assert (job.list_locks(), job.get_active_nodes(), job.incomplete_tasks()) == ([], [], [])
        assert job._last_heartbeat_sent is None


@shows("CoordinationConfig.minimum_nodes", "Job.wait_on_enter")
def test_no_tokens_are_given_out_before_enough_nodes_are_there(enter: Enter, caplog: pytest.LogCaptureFixture) -> None:
    two = CoordinationConfig(total_tokens=TOKENS, minimum_nodes=2)
    first = enter("worker-01", coordination_config=two, wait_on_enter=0)
    assert "has no tokens after 0 s" in caplog.text
    assert (first.my_tokens, first.am_i_healthy()) == (set(), False)
    second = enter("worker-02", coordination_config=two)
    until(first.am_i_healthy)
    assert first.my_tokens | second.my_tokens == set(range(TOKENS))


@pytest.fixture
def bell_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """No notification arrives, as behind a pooler: the intervals decide."""

    async def open_nothing(self: Listener) -> None:
        self.is_unavailable = True

    monkeypatch.setattr(Listener, "open", open_nothing)


def record_pauses(monkeypatch: pytest.MonkeyPatch, chore: type[Memberships | Survey]) -> list[float]:
    """The seconds that the chore of each node wants to wait."""
    pauses: list[float] = []
    run = chore.run

    async def run_and_record(self: Any) -> float:
        pauses.append(await run(self))
        return pauses[-1]

    monkeypatch.setattr(chore, "run", run_and_record)
    return pauses


@pytest.mark.usefixtures("bell_off")
@pytest.mark.parametrize("seconds", [0.3, 0.4])
@shows("CoordinationConfig.token_refresh_initial_interval_sec", "CoordinationConfig.rebalance_check_interval_sec")
def test_a_new_node_looks_for_its_tokens_in_the_initial_interval(
    enter: Enter, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    pauses = record_pauses(monkeypatch, Memberships)
    options = CoordinationConfig(
        total_tokens=TOKENS, token_refresh_initial_interval_sec=4, rebalance_check_interval_sec=seconds
    )
    enter("worker-01", coordination_config=options)
    until(lambda: pauses[-1:] == [seconds])  # it leads
    options.token_refresh_initial_interval_sec = seconds / 2
    enter("worker-02", coordination_config=options)
    until(lambda: seconds / 2 in pauses)


@shows("CoordinationConfig.token_refresh_steady_interval_sec")
def test_after_five_minutes_the_steady_interval_counts() -> None:
    intervals = CoordinationConfig(token_refresh_initial_interval_sec=2, token_refresh_steady_interval_sec=60)
    between_looks = intervals.make_intervals().between_looks
    assert [between_looks(age, is_leader=False) for age in (0, 299, 301)] == [2, 2, 60]
    assert [between_looks(age, is_leader=True) for age in (0, 301)] == [2, 30]
    assert Intervals().between_looks(0, is_leader=True) == float("inf")


@pytest.mark.usefixtures("bell_off")
@pytest.mark.parametrize("seconds", [0.6, 0.7])
@shows("CoordinationConfig.dead_node_check_interval_sec")
def test_dead_nodes_are_looked_for_in_the_interval(
    enter: Enter, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    pauses = record_pauses(monkeypatch, Survey)
    options = CoordinationConfig(total_tokens=TOKENS, dead_node_check_interval_sec=seconds)
    enter("worker-01", coordination_config=options)
    until(lambda: seconds in pauses)


@shows("CoordinationConfig.heartbeat_interval_sec")
@covers(HEALTH + "Manual Health Check")
def test_heartbeats_have_their_interval_and_the_clock_of_the_database(enter: Enter, psql: Psql) -> None:
    """In the original the clock of each client stamped its heartbeats. The lease alone would mean 200 s."""
    options = CoordinationConfig(total_tokens=TOKENS, heartbeat_interval_sec=0.1, heartbeat_timeout_sec=600)
    job = enter("worker-01", coordination_config=options)
    psql.pass_time("5 minutes")
    until(lambda: psql("SELECT name FROM sync_node WHERE last_heartbeat > created_on + interval '4 minutes'"))
    sent = job._last_heartbeat_sent
    assert sent is not None
    assert abs(sent - datetime.now(UTC)) < timedelta(minutes=4)
    health = {
        "node_name": job.node_name, "is_healthy": job.am_i_healthy(), "is_leader": job.am_i_leader(),
        "token_count": len(job._my_tokens), "active_nodes": len(job.get_active_nodes()),
        "coordination_enabled": job._coordination_enabled,
    }  # fmt: skip
    assert health == {
        "node_name": "worker-01", "is_healthy": True, "is_leader": True, "token_count": TOKENS, "active_nodes": 1,
        "coordination_enabled": True,
    }  # fmt: skip
    assert job._token_version == job.token_version == psql.one("SELECT max(version) FROM sync_token")


# -- Task Locking and Pinning


@covers(LOCKS + "Single Lock Registration")
@shows(
    "Job.lock_provider", "register_task_lock.task_id", "register_task_lock.node_pattern", "register_task_lock.reason",
    "register_task_lock.expires_in_days",
)  # fmt: skip
def test_a_lock_is_registered_before_the_tokens_are_distributed(enter: Enter) -> None:
    def register_locks(job: Job) -> None:
        job.register_task_lock(12345, "worker-01", reason="high_memory_required", expires_in_days=7)

    first = enter("worker-01", lock_provider=register_locks)
    assert first.can_claim_task(Task(12345))  # at once, because the lock was there before
    second = enter("worker-02")
    assert [job.can_claim_task(Task(12345)) for job in (first, second)] == [True, False]
    (lock,) = second.list_locks()
    assert (lock["token_id"], lock["task_id"], lock["created_by"]) == (TOKENS, "12345", "worker-01")
    assert (lock["node_pattern"], lock["reason"]) == ("worker-01", "high_memory_required")
    assert lock["expires_at"] - lock["created_at"] == timedelta(days=7)


@covers(LOCKS + "Bulk Lock Registration", BEST + "4. Use Bulk Lock Registration")
@shows("register_task_locks_bulk.locks")
def test_many_locks_are_registered_together_and_several_nodes_of_one_task_are_alternatives(enter: Enter) -> None:
    locks = [(task, node, "resource") for task in (1, 2, 3) for node in ("worker-02", "worker-01")]
    first = enter("worker-01")
    assert first.register_task_locks_bulk(locks) == 3
    until(lambda: {lock["node_pattern"] for lock in first.list_locks()} == {"worker-01"})
    assert all(lock["node_patterns"] == ["worker-02", "worker-01"] for lock in first.list_locks())
    assert all(first.can_claim_task(Task(task)) for task in (1, 2, 3))
    second = enter("worker-02")
    until(lambda: all(second.can_claim_task(Task(task)) for task in (1, 2, 3)))
    assert {lock["node_pattern"] for lock in second.list_locks()} == {"worker-02"}
    assert second.register_task_locks_bulk([]) == 0


@covers(LOCKS + "Pattern-Based Locks", LOCKS + "Resource-Based Lock Example", BEST + "7. Document Lock Reasons")
def test_patterns_are_those_of_like(enter: Enter, psql: Psql) -> None:
    nodes = [enter("prod-node-01"), enter("prod-2-gpu"), enter("my-special-one")]
    wanted = {100: "prod-node-01", 200: "prod-%", 300: "%-gpu", 400: "%special%"}
    reasons = {100: "exact_node", 200: "any_prod_node", 300: "requires_nvidia_v100", 400: "special_nodes_only"}
    for task, pattern in wanted.items():
        nodes[0].register_task_lock(task_id=task, node_pattern=pattern, reason=reasons[task])

    def owners(task: int) -> list[str]:
        return [job.node_name for job in nodes if job.can_claim_task(Task(task))]

    def is_settled() -> bool:
        return all([matches_pattern(name, wanted[task]) for name in owners(task)] == [True] for task in wanted)

    wrong = "SELECT node FROM sync_lock JOIN sync_token USING (token_id) WHERE NOT node LIKE node_pattern"
    until(lambda: is_settled() and psql(wrong) == [])
    assert {int(lock["task_id"]): lock["reason"] for lock in nodes[0].list_locks()} == reasons


@covers(
    LOCKS + "Lock Lifecycle Management",
    BEST + "8. Manage Lock Lifecycle",
    BEST + "10. Use clear_existing_locks for Dynamic Locks",
)
@shows("Job.clear_existing_locks", "clear_locks_by_creator.name")
def test_locks_stay_from_run_to_run_unless_they_are_cleared(config: Any) -> None:
    def run(name: str, tasks: list[int], *, clear: bool) -> list[tuple[str, str]]:
        def register(job: Job) -> None:
            job.register_task_locks_bulk([(task, "high-mem-%", "heavy_query") for task in tasks])

        with Job(name, "production", config, lock_provider=register, clear_existing_locks=clear) as job:
            return [(lock["task_id"], lock["created_by"]) for lock in job.list_locks()]

    assert run("worker-01", [1, 2], clear=False) == [("1", "worker-01"), ("2", "worker-01")]
    assert run("worker-02", [3], clear=True) == [("1", "worker-01"), ("2", "worker-01"), ("3", "worker-02")]
    assert run("worker-01", [2, 4], clear=True) == [("2", "worker-01"), ("3", "worker-02"), ("4", "worker-01")]
    with Job("admin", "production", config) as job:
        assert job.clear_locks_by_creator("worker-01") == 2
        assert [lock["task_id"] for lock in job.list_locks()] == ["3"]
        assert job.clear_all_locks() == 1
        assert job.list_locks() == []


@shows("CoordinationConfig.locks_enabled")
def test_a_node_without_locks_registers_none(enter: Enter) -> None:
    options = CoordinationConfig(total_tokens=TOKENS, locks_enabled=False)
    job = enter("worker-01", coordination_config=options, lock_provider=lambda job: pytest.fail("must not be called"))
    assert job.register_task_locks_bulk([(1, "worker-02", None)]) == 0
    assert job.list_locks() == []


def test_locks_can_be_registered_before_any_node_has_entered(config: Any, psql: Psql, enter: Enter) -> None:
    outside = Job("admin", "production", config)
    try:
        assert (outside.list_locks(), outside.clear_all_locks(), outside.clear_locks_by_creator("x")) == ([], 0, 0)
        assert (outside.get_active_nodes(), outside.get_dead_nodes()) == ([], [])
        assert (outside.get_audit(), outside.incomplete_tasks()) == ([], [])
        assert psql.one("SELECT count(*) FROM watchbill.token_groups") == 0, "reading makes no site"
        outside.register_task_lock(5, "worker-02", "first")
        assert outside.register_task_locks_bulk([(6, "worker-02"), (7, ["gone", "worker-02"], "why")]) == 2
        assert [lock["task_id"] for lock in outside.list_locks()] == ["5", "6", "7"]
        enter("worker-01")
        job = enter("worker-02")
        until(lambda: all(job.can_claim_task(task) for task in (5, 6, 7)))
        assert outside.clear_locks_by_creator("admin") == 3
    finally:
        outside.__exit__()


def test_a_lock_is_not_listed_after_its_time_although_no_leader_has_removed_it(psql: Psql, config: Any) -> None:
    outside = Job("admin", "production", config)
    try:
        outside.register_task_lock(5, "worker-02", expires_in_days=7)
        outside.register_task_lock(6, "worker-02")
        psql.pass_time("8 days")
        assert [lock["task_id"] for lock in outside.list_locks()] == ["6"]
        assert psql.one("SELECT count(*) FROM watchbill.pins WHERE state = 'active'") == 2
    finally:
        outside.__exit__()


class Row(NamedTuple):
    id: str
    size: int


def test_a_task_and_its_id_are_taken_alike_everywhere(enter: Enter, psql: Psql) -> None:
    job = enter("worker-01")
    assert job.can_claim_task("a") is job.can_claim_task(Task("a")) is True
    job.add_task("a")
    job.add_task(Task("b"))
    job.set_claim(Task("c"))
    job.set_claim([Task("d"), "e", 6])
    job.add_task(Row("x", 5))
    job.set_claim(Row("y", 5))
    assert job.can_claim_task(Row("z", 5))
    assert job.write_audit() == 3
    items = psql("SELECT item FROM sync_claim ORDER BY item")
    assert [row.item for row in items] == ["6", "a", "b", "c", "d", "e", "x", "y"]
    job.register_task_lock(Task("f"), "worker-%")
    job.register_task_locks_bulk([(Task("g"), "worker-%"), ("h", "worker-%", None)])
    assert [lock["task_id"] for lock in job.list_locks()] == ["f", "g", "h"]
    assert task_to_token(Task("a", "name"), 100) == task_to_token("a", 100)


@pytest.mark.parametrize("id", [[1], {"a": 1}, {1}])
def test_an_id_that_is_not_hashable_is_refused(id: Any) -> None:
    alone = Job("worker-01", "production", coordination_config=CoordinationConfig(enabled=False))
    calls: list[Callable[[], object]] = [
        lambda: Task(id),
        lambda: alone.can_claim_task(id),
        lambda: alone.add_task(id),
        lambda: alone.set_claim([id]),
        lambda: task_to_token(id, 10),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="is invalid: give a value that is hashable"):
            call()


@covers(LOCKS + "Lock Lifecycle Management")
def test_a_lock_expires_by_itself(enter: Enter, psql: Psql) -> None:
    """Its task goes to the owner of its token; before, it had no owner."""
    often = CoordinationConfig(total_tokens=TOKENS, token_refresh_initial_interval_sec=0.2)
    job = enter("worker-01", coordination_config=often)
    job.register_task_lock(5, "elsewhere", expires_in_days=7)
    until(lambda: not job.can_claim_task(Task(5)))
    psql.pass_time("8 days")
    until(lambda: job.can_claim_task(Task(5)))
    assert job.list_locks() == []


# -- Task Processing Patterns


GET_INCOMPLETE = """
    SELECT DISTINCT c.item
    FROM {Claim} c
    LEFT JOIN {Audit} a ON c.item = a.item AND a.date = %s
    WHERE a.item IS NULL AND c.created_on < %s
"""


@covers(PATTERNS + "With Incomplete Task Recovery")
@shows("incomplete_tasks.older_than", "Job.skip_db_init")
def test_what_a_dead_node_has_claimed_is_recovered(enter: Enter, psql: Psql, config: Any) -> None:
    """In the original, cleaning up a dead node deleted the rows that recovery needs."""
    job, dead = enter("worker-01"), SqlNode(psql, "worker-02")
    until(lambda: not owned_by(job, range(50)) or dead.is_given_tokens())
    until(lambda: len(job.my_tokens) == TOKENS // 2)
    theirs = [each for each in range(50) if not job.can_claim_task(Task(each))][:3]
    dead.claim(job.date, *theirs)
    mine = owned_by(job, range(50))[0]
    job.add_task(Task(mine))
    job.write_audit()
    dead.die()
    assert job.get_dead_nodes() == ["worker-02"]
    psql("DELETE FROM sync_node WHERE name = 'worker-02'")
    assert job.get_dead_nodes() == []
    assert {task.id for task in job.incomplete_tasks(timedelta(0))} == {str(each) for each in theirs}
    assert job.incomplete_tasks() == []  # not five minutes ago
    psql("UPDATE watchbill.item_claims SET claimed_at = claimed_at - interval '6 minutes'")
    incomplete = db.select(
        job._cn,
        GET_INCOMPLETE.format(**job._tables),
        job.date,
        datetime.now() - timedelta(minutes=5),  # noqa: DTZ005
    )
    assert {row["item"] for row in incomplete} == {task.id for task in job.incomplete_tasks()}
    assert len(incomplete) == 3
    for task in job.incomplete_tasks():
        until(lambda task=task: job.can_claim_task(task))  # type: ignore[misc]
        job.add_task(task)
    assert job.write_audit() == 3
    assert job.incomplete_tasks() == []
    assert Job("worker-03", "production", config, skip_db_init=True)._tables["Claim"] == '"sync_claim"'
    assert job._tables["Claim"] == '"public"."sync_claim"'


@covers(PATTERNS + "Idempotent Task Processing", BEST + "3. Implement Idempotent Processing")
def test_the_connection_of_a_job_has_transactions(enter: Enter, psql: Psql) -> None:
    psql("CREATE TABLE results (task_id int UNIQUE)")
    job = enter("worker-01")
    for _ in range(2):
        if db.select_scalar(job._cn, "SELECT count(*) FROM results WHERE task_id = %s", 7) == 0:
            with job._cn.transaction():
                db.execute(job._cn, "INSERT INTO results VALUES (%s) ON CONFLICT DO NOTHING", 7)
    with pytest.raises(psycopg.errors.DivisionByZero), job._cn.transaction():
        db.execute(job._cn, "INSERT INTO results VALUES (8); SELECT 1 / 0")
    assert psql("SELECT task_id FROM results") == [(7,)]


@shows("Job.db_connection")
def test_a_given_connection_is_used_and_stays_open(psql: Psql, config: Any) -> None:
    with psycopg.connect(psql.url) as connection:
        with Job("worker-01", "production", db_connection=connection) as job:
            assert job._cn is connection
            assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
            assert job._cn.execute("SELECT count(*) FROM sync_node").fetchone() == (1,)
        assert not connection.closed
        connection.rollback()
        assert connection.execute("SHOW watchbill.site").fetchone() == ("production",)


@covers(PATTERNS + "Batch Processing Pattern", PATTERNS + "Continuous Processing Loop")
@shows("set_claim.items")
def test_tasks_are_audited_in_rounds_and_claims_alone_are_not(enter: Enter, psql: Psql) -> None:
    job, rounds = enter("worker-01"), []
    todo = list(range(7))
    while batch := todo[:3]:
        for each in batch:
            job.add_task(Task(each))
            job.add_task(Task(each))  # a task that this Job has is no obstacle
        rounds.append(job.write_audit())
        todo = todo[3:]
    assert rounds == [3, 3, 1]
    job.set_claim([100, 101])
    job.set_claim("one")
    assert job.write_audit() == 0
    assert {row.item for row in psql("SELECT item FROM sync_claim")} >= {"100", "101", "one"}
    assert len(job.get_audit()) == 7
    job.add_task(Task(0))  # it may be processed again
    assert job.write_audit() == 1


# -- Health Monitoring


@covers(HEALTH + "Load Balancer Health Check", BEST + "8. Implement Health Checks")
def test_a_node_is_healthy_while_it_is_entered_and_its_lease_lasts(psql: Psql, config: Any) -> None:
    often = CoordinationConfig(total_tokens=TOKENS, heartbeat_interval_sec=0.2)
    with Job("worker-01", "production", config, coordination_config=often) as job:
        assert job.am_i_healthy()
        epoch = job.member.epoch
        psql("SELECT watchbill.expire_node(epoch, n) FROM watchbill.beats")
        until(lambda: job.member.epoch != epoch and job.am_i_healthy())  # it has returned
    assert not job.am_i_healthy()
    assert not job.am_i_leader()
    assert not job.can_claim_task(Task(1))
    assert job.my_tokens == set()


@covers(BEST + "9. Log Meaningful Information", BEST + "6. Use Descriptive Node Names")
def test_names_tokens_and_versions_are_there_to_be_logged(enter: Enter) -> None:
    job = enter("prod-worker-east-7")
    assert job.nodes == job.get_active_nodes()
    assert [node["name"] for node in job.nodes] == ["prod-worker-east-7"]
    before = job.token_version
    enter("prod-worker-east-8")
    until(lambda: job.token_version > before)
    assert len(job._my_tokens) == TOKENS // 2


@shows("Job.on_rebalance")
def test_on_rebalance_is_called_with_or_without_the_event(enter: Enter) -> None:
    events: list[Any] = []
    calls: list[str] = []
    enter("worker-01", on_rebalance=events.append)
    until(lambda: sum(len(event.gained) for event in events) == TOKENS)
    enter("worker-02", on_rebalance=lambda: calls.append("called"))
    until(lambda: calls)
    until(lambda: sum(len(event.lost) for event in events) == TOKENS // 2)


# -- Database Queries


def columns(psql: Psql, relation: str) -> list[str]:
    return [
        row.column_name
        for row in psql(
            "SELECT column_name FROM information_schema.columns WHERE table_name = %s ORDER BY ordinal_position",
            relation,
        )
    ]


@covers(QUERIES + "Cluster State Queries")
def test_the_state_of_the_cluster(enter: Enter, psql: Psql) -> None:
    job = enter("worker-01")
    others = [SqlNode(psql, "worker-02"), SqlNode(psql, "worker-03")]
    until(lambda: set(shares(psql).values()) == {6, 7})
    assert columns(psql, "sync_node") == ["name", "created_on", "last_heartbeat", "site"]
    active = "last_heartbeat > NOW() - INTERVAL '1 hour'"  # the guide has 15 seconds, in which a test may be stopped
    nodes = psql(f"SELECT name, {active} AS is_active FROM sync_node ORDER BY created_on")
    assert [tuple(row) for row in nodes] == [("worker-01", True), ("worker-02", True), ("worker-03", True)]
    leader = psql.one(f"SELECT name FROM sync_node WHERE {active} ORDER BY created_on LIMIT 1")
    assert (leader, job.am_i_leader()) == ("worker-01", True)
    assert sum(shares(psql).values()) == TOKENS
    others[0].die()
    until(lambda: set(shares(psql)) == {"worker-01", "worker-03"})
    assert psql("SELECT name FROM sync_node WHERE NOT " + active + " OR last_heartbeat < created_on") == [
        ("worker-02",)
    ]
    SqlNode(psql, "worker-02")  # it has returned
    assert psql.one("SELECT count(*) FROM sync_node WHERE name = 'worker-02' AND last_heartbeat >= created_on") == 1
    assert psql.one("SELECT count(*) FROM sync_node") == 3


@covers(QUERIES + "Lock Queries")
def test_locks_whose_creator_is_gone_and_locks_in_the_wrong_place_are_found(enter: Enter, psql: Psql) -> None:
    job, other = enter("worker-01"), SqlNode(psql, "worker-02")
    until(other.is_given_tokens)
    job.register_task_locks_bulk([(1, "worker-01", "mine"), (2, "elsewhere", "none"), (3, "worker-02", "theirs")])
    psql('SELECT watchbill.pin(\'production\', \'[{"key": "4", "labels": {"site": "production"}}]\', \'gone\')')
    assert columns(psql, "sync_lock") == [
        "token_id", "task_id", "node_pattern", "reason", "created_by", "created_at", "expires_at", "site",
    ]  # fmt: skip
    wrong = (
        "SELECT l.task_id FROM sync_lock l JOIN sync_token t ON l.token_id = t.token_id "
        "WHERE NOT (t.node LIKE l.node_pattern)"
    )

    def has_moved() -> bool:
        other.pass_tokens()
        return psql("SELECT task_id FROM sync_lock JOIN sync_token USING (token_id) WHERE node IS NULL") == [("2",)]

    until(lambda: has_moved() and psql(wrong) == [])
    orphaned = "SELECT l.task_id FROM sync_lock l LEFT JOIN sync_node n ON l.created_by = n.name WHERE n.name IS NULL"
    assert psql(orphaned) == [("4",)]
    reasons = psql(
        "SELECT reason, count(*), string_agg(DISTINCT created_by, ',') FROM sync_lock GROUP BY reason ORDER BY 1"
    )
    assert [tuple(row) for row in reasons] == [
        ("mine", 1, "worker-01"), ("none", 1, "worker-01"), ("theirs", 1, "worker-01"), (None, 1, "gone"),
    ]  # fmt: skip


@covers(QUERIES + "Rebalance History", BEST + "5. Monitor Rebalance Frequency")
def test_a_rebalance_moves_only_the_share_of_the_newcomer(enter: Enter, psql: Psql) -> None:
    """In the original every rebalance rewrote all tokens."""
    enter("worker-01")
    versions = dict(psql("SELECT token, xmin::text FROM watchbill.tokens"))
    SqlNode(psql, "worker-02")
    until(lambda: shares(psql) == {"worker-01": 10, "worker-02": 10})
    rows = psql(
        "SELECT trigger_reason, leader_node, nodes_before, nodes_after, tokens_moved, duration_ms >= 0 AS is_measured "
        "FROM sync_rebalance WHERE triggered_at > NOW() - INTERVAL '1 hour' ORDER BY triggered_at DESC LIMIT 10"
    )
    assert [tuple(row) for row in rows] == [
        ("nodes joined", "worker-01", 1, 2, TOKENS // 2, True),
        ("first assignment", "worker-01", 0, 1, TOKENS, True),
    ]
    kept = psql(
        "SELECT x.token, x.xmin::text FROM watchbill.tokens x JOIN watchbill.nodes n USING (epoch) "
        "WHERE n.name = 'worker-01'"
    )
    assert len(kept) == TOKENS // 2
    assert all(versions[row.token] == row.xmin for row in kept)
    assert db.select_scalar(psql.connection, "SELECT count(*) FROM sync_rebalance") == 2


@covers(QUERIES + "Task Processing Queries")
def test_tasks_by_node_incomplete_tasks_and_the_rate_of_completion(enter: Enter, psql: Psql) -> None:
    job = enter("worker-01")
    yesterday = job.date - timedelta(days=1)
    for each in range(4):
        job.add_task(Task(each))
    job.write_audit()
    job.add_task(Task("open"))
    by_node = "SELECT node, count(*) FROM sync_claim WHERE created_on::date = CURRENT_DATE GROUP BY node"
    incomplete = (
        "SELECT c.item FROM sync_claim c LEFT JOIN sync_audit a ON c.item = a.item AND a.date = CURRENT_DATE "
        "WHERE a.item IS NULL"
    )
    assert psql(by_node) == [("worker-01", 5)]
    assert psql(incomplete) == [("open",)]
    assert psql.one("SELECT count(DISTINCT item) FROM sync_audit WHERE date = CURRENT_DATE") == 4
    psql(
        "UPDATE watchbill.item_claims SET scope = %s, claimed_at = claimed_at - interval '1 day'", yesterday.isoformat()
    )
    assert psql(incomplete) == [("open",)]  # what was complete yesterday is not incomplete today
    assert psql.one("SELECT DISTINCT date FROM sync_audit") == yesterday
    psql("UPDATE watchbill.item_claims SET scope = '2023-02-31' WHERE key = '1'")
    psql("UPDATE watchbill.item_claims SET scope = 'some-scope' WHERE key = '2'")
    assert psql("SELECT date FROM sync_audit WHERE item IN ('1', '2') ORDER BY item") == [
        (date(2023, 3, 3),),
        (job.date,),
    ]


@covers(QUERIES + "Maintenance Queries")
def test_the_maintenance_of_the_guide(enter: Enter, psql: Psql) -> None:
    job, stale, dead = enter("worker-01"), SqlNode(psql, "stale", lease="1 second"), SqlNode(psql, "dead")
    until(lambda: len(shares(psql)) == 3)
    dead.die()
    with pytest.raises(psycopg.Error, match="node 'worker-01' is alive: only lost nodes can be deleted"):
        psql("DELETE FROM sync_node WHERE name = 'worker-01'")
    until(lambda: set(shares(psql)) == {"worker-01", "stale"})
    psql("DELETE FROM sync_node WHERE name IN ('dead', 'stale') AND last_heartbeat < NOW() - INTERVAL '1 second'")
    until(lambda: not psql("SELECT name FROM sync_node WHERE name = 'dead'"))
    psql("DELETE FROM sync_token WHERE node NOT IN (SELECT name FROM sync_node)")
    assert psql.one("SELECT count(*) FROM watchbill.tokens") == TOKENS
    psql("DELETE FROM sync_rebalance WHERE triggered_at < NOW() - INTERVAL '30 days'")
    before = psql.one("SELECT count(*) FROM sync_rebalance")
    assert before > 0
    psql("DELETE FROM sync_rebalance WHERE nodes_before = 0")
    assert psql.one("SELECT count(*) FROM sync_rebalance") == before - 1
    psql('SELECT watchbill.pin(\'production\', \'[{"key": "1", "pattern": "x"}]\', \'gone\')')
    job.register_task_locks_bulk([(2, "worker-01", None), (3, "worker-01", None)])
    psql("UPDATE watchbill.pins SET expires_at = now() - interval '1 day' WHERE key = '3'")
    psql("DELETE FROM sync_lock WHERE expires_at < NOW()")
    psql(
        "DELETE FROM sync_lock WHERE created_by IN (SELECT l.created_by FROM sync_lock l "
        "LEFT JOIN sync_node n ON l.created_by = n.name WHERE n.name IS NULL)"
    )
    assert psql("SELECT task_id FROM sync_lock") == [("2",)]
    assert stale.epoch > 0


def test_a_claim_that_a_living_node_holds_stays_and_old_rows_can_be_deleted(enter: Enter, psql: Psql) -> None:
    """Otherwise another node could claim the task beside it."""
    job = enter("worker-01")
    job.add_task(Task("done"))
    job.write_audit()
    job.add_task(Task("held"))
    with pytest.raises(psycopg.Error, match="task held is held by node worker-01, which is alive"):
        psql("DELETE FROM sync_claim")
    for name in ("claim", "audit", "rebalance"):
        with pytest.raises(psycopg.Error, match=f"sync_{name} cannot be changed"):
            psql(f"UPDATE sync_{name} SET site = 'other'")
    psql("DELETE FROM sync_audit WHERE item = 'done'")
    assert job.get_audit() == []
    job.__exit__()
    psql("DELETE FROM sync_claim")
    assert psql("SELECT item FROM sync_claim") == []


# -- Best Practices


@covers(BEST + "1. Always Use Graceful Shutdown")
def test_a_signal_handler_may_leave_and_the_block_leaves_again(config: Any, psql: Psql) -> None:
    entered: list[Job] = []

    def handle(number: int, frame: object) -> None:
        entered[0].__exit__(None, None, None)
        assert psql.one("SELECT count(*) FROM sync_node") == 0  # it has left
        sys.exit(0)

    before = signal.signal(signal.SIGTERM, handle)
    job = Job("worker-01", "production", config)

    def work() -> None:
        with job:
            entered.append(job)
            signal.raise_signal(signal.SIGTERM)

    try:
        with pytest.raises(SystemExit):
            work()
    finally:
        signal.signal(signal.SIGTERM, before)
    with job:  # and it may enter again
        assert job.am_i_healthy()


def test_a_job_that_is_interrupted_while_it_waits_leaves(config: Any, psql: Psql) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    def raise_when_joined() -> None:
        with Psql(psql.url) as other:
            until(lambda: other("SELECT epoch FROM watchbill.members"))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    three = CoordinationConfig(total_tokens=TOKENS, minimum_nodes=3)
    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=raise_when_joined)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt), Job("worker-01", "production", config, coordination_config=three):
            pytest.fail("there are not enough nodes")
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert psql.one("SELECT count(*) FROM sync_node") == 0


@shows("Job.wait_on_exit")
def test_a_node_stays_after_the_block_until_it_is_asked_again(
    enter: Enter, config: Any, psql: Psql, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "watchbill.compat.jobsync")
    job = Job("worker-01", "production", config, wait_on_exit=3600)

    def work() -> None:
        with job:
            pass

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: "worker-01 stays in production for 3600 s more" in caplog.text)
    assert shares(psql) == {"worker-01": TOKENS}
    assert job.am_i_healthy()
    job.__exit__()
    thread.join()
    assert psql("SELECT name FROM sync_node") == []
    other = CoordinationConfig(total_tokens=TOKENS + 1)
    enter("worker-02")
    with pytest.raises(WatchbillError, match="Group 'production' has 20 tokens"):  # and waits for nothing
        enter("worker-03", coordination_config=other, wait_on_exit=3600)


@covers(BEST + "2. Use Appropriate Wait Times")
def test_the_wait_ends_as_soon_as_the_tokens_have_arrived(config: Any) -> None:
    """The original slept for the whole time, which is longer than this test may take."""
    with Job("worker-01", "production", config, wait_on_enter=3600) as job:
        assert len(job.my_tokens) == TOKENS


@covers(BEST + "11. Test in Staging First")
def test_a_site_refuses_a_node_with_other_settings(enter: Enter) -> None:
    """Two nodes that count different tokens would both own a task."""
    enter("staging-worker-01", site="staging")
    with pytest.raises(WatchbillError, match="Group 'staging' has 20 tokens"):
        enter("staging-worker-02", site="staging", coordination_config=CoordinationConfig(total_tokens=10))


@shows("Job.skip_db_init")
def test_a_job_names_the_command_if_its_views_are_not_there(psql: Psql, caplog: pytest.LogCaptureFixture) -> None:
    config = make_config(psql.url, total_tokens=TOKENS)
    config.sync.sql.appname = "mine_"
    with Job("worker-01", "production", config, skip_db_init=True) as job:
        assert job._tables["Lock"] == '"mine_lock"'
    assert caplog.text == ""
    with Job("worker-01", "production", config):
        assert "Run `watchbill db install jobsync --prefix mine_`" in caplog.text


def test_a_job_runs_as_a_worker_and_an_operator_maintains_its_site(server: Server, psql: Psql) -> None:
    psql("GRANT SELECT, DELETE ON sync_node, sync_token, sync_lock, sync_rebalance TO PUBLIC")
    psql("GRANT SELECT ON sync_claim, sync_audit TO PUBLIC")
    with make_logins(server, psql.url) as logins:
        config = make_config(logins.url("worker"), total_tokens=TOKENS)
        with Job("worker-01", "production", config, lock_provider=lambda job: job.register_task_lock(1, "w%")) as job:
            job.add_task(Task(1))
            assert job.write_audit() == 1
            assert db.select_scalar(job._cn, f"SELECT count(*) FROM {job._tables['Token']}") == TOKENS + 1
            assert [node["name"] for node in job.get_active_nodes()] == ["worker-01"]
        with Psql(logins.url("operator")) as operator:
            SqlNode(psql, "worker-02").die()
            operator("DELETE FROM sync_node WHERE name = 'worker-02'")
            operator("DELETE FROM sync_token")
            operator("DELETE FROM sync_lock")
            operator("DELETE FROM sync_rebalance")
            counts = [operator.one(f"SELECT count(*) FROM sync_{name}") for name in ("node", "lock", "rebalance")]
            assert counts == [0, 0, 0]
            assert operator("SELECT node, item FROM sync_audit") == [("worker-01", "1")]
        with Psql(logins.url("producer")) as producer, pytest.raises(psycopg.errors.InsufficientPrivilege):
            producer("SELECT name FROM sync_node")


# -- what the original did wrong


def test_a_leader_that_leaves_does_not_strand_its_tokens(enter: Enter, config: Any, psql: Psql) -> None:
    with Job("worker-01", "production", config) as leader:
        other = enter("worker-02")
        assert leader.am_i_leader()
    until(lambda: len(other.my_tokens) == TOKENS)
    until(other.am_i_leader)
    assert shares(psql) == {"worker-02": TOKENS}


def test_a_leave_and_a_join_at_the_same_moment_are_noticed(enter: Enter, psql: Psql) -> None:
    enter("worker-01")
    leaving = SqlNode(psql, "worker-02")
    until(lambda: shares(psql) == {"worker-01": 10, "worker-02": 10})
    with psql.connection.transaction():
        psql("SELECT watchbill.leave(%s)", leaving.epoch)
        SqlNode(psql, "worker-03")
    until(lambda: shares(psql) == {"worker-01": 10, "worker-03": 10})


def test_a_claim_excludes_the_other_nodes(enter: Enter, psql: Psql) -> None:
    first, second = enter("worker-01"), enter("worker-02")
    mine = owned_by(first)[0]
    first.add_task(Task(mine))
    with pytest.raises(TaskTaken, match=f"Task {mine} is not owned"):
        second.add_task(Task(mine))
    first.register_task_lock(mine, "worker-02")  # its token stays as long as the task is held
    with pytest.raises(TaskTaken):
        second.add_task(Task(mine))
    assert first.write_audit() == 1
    until(lambda: second.can_claim_task(Task(mine)))
    second.add_task(Task(mine))
    assert second.write_audit() == 1


def test_the_audit_leaves_out_what_was_taken_away(enter: Enter, psql: Psql, caplog: pytest.LogCaptureFixture) -> None:
    job = enter("worker-01")
    job.add_task(Task(1))
    job.add_task(Task(2))
    psql("UPDATE watchbill.item_claims SET fence = fence + 1000 WHERE key = '2'")  # as another node's claim does
    assert job.write_audit() == 1
    assert "1 tasks of worker-01 are not recorded as done, because other nodes have taken them over" in caplog.text
    assert "the first are: 2" in caplog.text
    assert [row["item"] for row in job.get_audit()] == ["1"]


def test_a_lock_moves_its_task_alone_and_more_nodes_than_tokens_are_no_fault(enter: Enter) -> None:
    one = CoordinationConfig(total_tokens=1)
    jobs = [enter(f"worker-{number}", coordination_config=one) for number in range(3)]
    assert all(job.am_i_healthy() for job in jobs)
    assert len(owned_by(jobs[0])) == 1000
    jobs[0].register_task_lock(5, "worker-2")
    until(lambda: owned_by(jobs[2]) == [5])
    assert len(owned_by(jobs[0])) == 999
    assert owned_by(jobs[1]) == []


# -- pure functions


@shows("task_to_token.task_id", "task_to_token.total_tokens", "task_to_token.hash_function")
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), st.integers(1, 10_000_000)
        ),
        min_size=1,
        max_size=50,
    )
)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_python_and_sql_give_every_task_the_same_token(psql: Psql, cases: list[tuple[str, int]]) -> None:
    for name in ("md5", "sha256", "double_sha256"):
        found = psql(
            "SELECT watchbill._token_of(k, t, %s) FROM unnest(%s::text[], %s::int[]) WITH ORDINALITY u(k, t, n) "
            "ORDER BY n",
            name, [task for task, _ in cases], [total for _, total in cases],
        )  # fmt: skip
        assert [row[0] for row in found] == [task_to_token(task, total, name) for task, total in cases]
    assert task_to_token(7, 10_000) == task_to_token("7", 10_000)


@shows("matches_pattern.node_name", "matches_pattern.pattern")
@given(
    st.lists(st.tuples(st.text("ab-%_\\.\n", max_size=6), st.text("ab-%_\\.\n", max_size=6)), min_size=1, max_size=60)
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_patterns_match_as_in_postgresql(psql: Psql, cases: list[tuple[str, str]]) -> None:
    cases = [(name, pattern.rstrip("\\")) for name, pattern in cases]
    found = psql(
        "SELECT n LIKE p FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY u(n, p, place) ORDER BY place",
        [name for name, _ in cases], [pattern for _, pattern in cases],
    )  # fmt: skip
    assert [row[0] for row in found] == [matches_pattern(name, pattern) for name, pattern in cases]


NODES = ["east-1", "east-2", "west-1", "west-2"]
distributions = st.tuples(
    st.integers(0, 60),
    st.lists(st.sampled_from(NODES), unique=True),
    st.dictionaries(st.integers(0, 59), st.sampled_from([*NODES, "gone"])),
    st.dictionaries(st.integers(0, 59), st.sampled_from(["east-%", "west-1", "nowhere", ["nowhere", "%-2"]])),
)


@shows(
    *[
        f"compute_minimal_move_distribution.{name}"
        for name in ("total_tokens", "active_nodes", "current_assignments", "locked_tokens", "pattern_matcher")
    ]
)
@given(distributions)
@settings(max_examples=80, deadline=None)
def test_a_distribution_is_even_keeps_to_the_locks_and_is_stable(case: Any) -> None:
    total, nodes, current, locked = case
    found, moved = compute_minimal_move_distribution(total, nodes, current, locked, matches_pattern)
    assert moved == sum(current.get(token) != node for token, node in found.items())
    assert set(found.values()) <= set(nodes)
    free = [found[token] for token in found if token not in locked]
    assert len(free) == (len([t for t in range(total) if t not in locked]) if nodes else 0)
    if nodes:
        counts = Counter(free)
        assert max(counts[node] for node in nodes) - min(counts[node] for node in nodes) <= 1
    for token, patterns in locked.items():
        every = [patterns] if isinstance(patterns, str) else patterns
        wanted = next((p for p in every if any(matches_pattern(node, p) for node in nodes)), None)
        assert (token in found) == (token < total and wanted is not None)
        if token in found:
            assert matches_pattern(found[token], str(wanted))
    assert compute_minimal_move_distribution(total, nodes, found, locked, matches_pattern) == (found, 0)
    exact, _ = compute_minimal_move_distribution(total, nodes, current, locked, lambda node, pattern: node == pattern)
    assert all(found_node == "west-1" for token, found_node in exact.items() if locked.get(token) == "west-1")


@pytest.mark.parametrize(
    ("total", "nodes", "current", "locked", "counts", "moved"),
    [
        (100, [], {}, {}, {}, 0),
        (100, ["a"], {}, {}, {"a": 100}, 100),
        (100, ["a", "b"], {}, {}, {"a": 50, "b": 50}, 100),
        (100, ["a", "b", "c"], {}, {}, {"a": 34, "b": 33, "c": 33}, 100),
        (100, ["a", "b"], {n: "ab"[n % 2] for n in range(100)}, {}, {"a": 50, "b": 50}, 0),
        (100, ["a", "b"], {n: "a" if n < 60 else "b" for n in range(100)}, {}, {"a": 50, "b": 50}, 10),
        (100, ["a", "b"], {n: "gone" if n < 50 else "a" for n in range(100)}, {}, {"a": 50, "b": 50}, 50),
        (100, ["a", "b", "c"], {n: "ab"[n % 2] for n in range(100)}, {}, {"a": 34, "b": 33, "c": 33}, 33),
        (5, list("abcdef"), {}, {}, dict.fromkeys("abcde", 1), 5),
        (1, ["a", "b"], {}, {}, {"a": 1}, 1),
        (10, ["a", "b"], {}, {0: "a", 1: "b"}, {"a": 5, "b": 5}, 10),
        (10, ["a", "b"], {}, dict.fromkeys(range(3), "a"), {"a": 7, "b": 3}, 10),
        (10, ["a", "b"], {}, {0: "elsewhere"}, {"a": 5, "b": 4}, 9),
        (10, ["a", "b"], {}, {n: "ab"[n % 2] for n in range(10)}, {"a": 5, "b": 5}, 10),
        (20, ["a-1", "a-2", "b"], {}, {n: ["c-%", "a-%"] for n in range(20)}, {"a-1": 10, "a-2": 10}, 20),
        (10_000, [f"node{n}" for n in range(10)], {}, {}, {f"node{n}": 1000 for n in range(10)}, 10_000),
        (1000, [f"node{n}" for n in range(100)], {}, {}, {f"node{n}": 10 for n in range(100)}, 1000),
    ],
)
def test_the_cases_of_jobsync(
    total: int, nodes: list[str], current: dict[int, str], locked: Any, counts: dict[str, int], moved: int
) -> None:
    found, number = compute_minimal_move_distribution(total, nodes, current, locked)
    assert Counter(found.values()) == counts
    assert number == moved
