"""`watchbill worker` as a process: its signals, its supervisor, its children, and a server that goes away."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.chaos import handlers
from tests.chaos.server import ChaosServer
from tests.chaos.workers import Worker, Workers
from tests.servers import find_servers
from tests.waiting import until
from watchbill import App, Retry
from watchbill.postgres.embedded import Binaries

SETTINGS = {"lease": "2", "drain_timeout": "30", "poll_interval": "20ms", "poll_max_interval": "100ms"}
KINDS = ("hold", "hold_thread", "hold_process")
WEDGED = 70
ENQUEUE = """SELECT watchbill.enqueue(%s, %s, id => %s, max_attempts => %s, timeout => make_interval(secs => %s),
    retry => %s)"""

LISTENERS = """SELECT count(*) FROM pg_stat_activity
    WHERE application_name = 'watchbill listener' AND datname = current_database()"""
PORTERS = """SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND granted
    AND application_name = 'watchbill listener' AND datname = current_database()"""


class Ward:
    """A database, the workers on it, and a directory through which handlers are watched and let go."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url, self.directory = url, directory / "handlers"
        self.directory.mkdir()
        self._workers = Workers(directory, self.directory, SETTINGS, application="tests.chaos.handlers:app")
        self.app: App = handlers.app

    def start(self, *words: str, **settings: str) -> Worker:
        return self._workers.start(self.url, *words, **settings)

    def close(self) -> None:
        self._workers.kill_all()

    def enqueue(self, type: str, *, retry: Retry | None = None, **payload: Any) -> str:
        task = handlers.app.tasks[type]
        task = task if retry is None else task.using(retry=retry)
        job = task.new_job(task.check(payload))
        policy = None if job.retry is None else Jsonb(job.retry)
        self.sql(ENQUEUE, type, job.payload.decode(), job.id, job.max_attempts, job.timeout, policy)
        return str(job.id)

    def hold(self, type: str = "hold", retry: Retry | None = None) -> str:
        return self.enqueue(type, retry=retry, directory=str(self.directory))

    def held(self, job: str, times: int = 1) -> bool:
        return len(list(self.directory.glob(f"held-{job}-*"))) >= times

    def let_go(self) -> None:
        (self.directory / "go-on").touch()

    def sql(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(query.encode(), params or None)
            return cursor.fetchall() if cursor.description else []

    def job(self, job: str, columns: str = "state, attempt, lost") -> tuple[Any, ...]:
        return self.sql(f"SELECT {columns} FROM watchbill.job WHERE id = %s", job)[0]

    def until_state(self, job: str, state: str = "succeeded") -> None:
        until(lambda: self.job(job, "state") == (state,), patience=60)

    def nodes(self) -> list[str]:
        return [state for (state,) in self.sql("SELECT state FROM watchbill.nodes ORDER BY epoch")]

    def outcomes(self, job: str) -> list[str]:
        return [
            row[0] for row in self.sql("SELECT outcome FROM watchbill.attempts WHERE job_id = %s ORDER BY run", job)
        ]


@pytest.fixture
def ward(schema_database: str, tmp_path: Path) -> Iterator[Ward]:
    ward = Ward(schema_database, tmp_path)
    yield ward
    ward.close()


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    return find_servers()[0]


def _terminate(worker: Worker) -> None:
    """Returns when the signal was heard: a second one sent before that would be the same one."""
    worker.signal(signal.SIGTERM)
    until(lambda: "Draining" in worker.text())


def _is(wanted: object, what: Callable[[], object]) -> bool:
    return what() == wanted


def _alive(pid: int) -> bool:
    """A zombie that nobody has fetched yet is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _descendants(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*children, *(each for child in children for each in _descendants(child))]


# -- signals


def test_sigterm_finishes_running_jobs_and_releases_waiting_ones(ward: Ward) -> None:
    worker = ward.start(concurrency="8")
    processes = min(8, os.cpu_count() or 1)
    running = [ward.hold("hold_process") for _ in range(processes)]
    until(lambda: all(ward.held(job) for job in running))
    waiting = [ward.hold("hold_process") for _ in range(3)]
    until(lambda: processes == 8 or all(ward.job(job, "state") == ("running",) for job in waiting))
    _terminate(worker)
    ward.let_go()
    assert worker.process.wait(60) == 0, worker.text()
    assert {ward.job(job) for job in running} == {("succeeded", 1, 0)}
    assert [ward.job(job) for job in waiting] == [("queued", 0, 0)] * 3
    assert ward.nodes() == ["left"]
    assert ward.sql("SELECT count(*) FROM watchbill.claims") == [(0,)]


def test_second_sigterm_releases_running_jobs_at_once(ward: Ward) -> None:
    worker = ward.start(drain_timeout="1h")
    jobs = [ward.hold(kind) for kind in KINDS]
    until(lambda: all(ward.held(job) for job in jobs))
    _terminate(worker)
    worker.signal(signal.SIGTERM)
    assert worker.process.wait(60) == 0, worker.text()
    assert [ward.job(job) for job in jobs] == [("queued", 0, 0)] * len(KINDS)
    assert ward.nodes() == ["left"]


def test_drain_timeout_releases_running_jobs(ward: Ward) -> None:
    worker = ward.start(drain_timeout="500ms")
    jobs = [ward.hold(kind) for kind in KINDS]
    until(lambda: all(ward.held(job) for job in jobs))
    worker.signal(signal.SIGTERM)
    assert worker.process.wait(60) == 0, worker.text()
    assert [ward.job(job) for job in jobs] == [("queued", 0, 0)] * len(KINDS)
    assert ward.nodes() == ["left"]


def test_stopped_one_attempt_job_is_dead(ward: Ward) -> None:
    """Whether it hears that it should stop, or not."""
    worker = ward.start(drain_timeout="500ms")
    jobs = [ward.hold(kind, Retry(max_attempts=1)) for kind in (*KINDS, "deaf")]
    until(lambda: all(ward.held(job) for job in jobs))
    worker.signal(signal.SIGTERM)
    assert worker.process.wait(60) == 0, worker.text()
    ends = [ward.job(job, "state, attempt, lost, error->>'message'") for job in jobs]
    assert ends == [("dead", 1, 0, "the node stopped while the job ran, and the job has one attempt only")] * len(jobs)
    assert ward.nodes() == ["left"]


def test_handler_that_ignores_cancellation_does_not_block_the_exit(ward: Ward) -> None:
    worker, job = ward.start(drain_timeout="500ms"), ward.hold("deaf")
    until(lambda: ward.held(job))
    worker.signal(signal.SIGTERM)
    assert worker.process.wait(60) == 0, worker.text()
    assert f"The handler of deaf {job} does not stop" in worker.text()
    assert ward.job(job) == ("queued", 0, 0)
    assert ward.nodes() == ["left"]


def test_handler_that_ignores_its_timeout_ends_the_process(ward: Ward) -> None:
    worker, job = ward.start(drain_timeout="500ms", stuck_after="1s"), ward.hold("deaf_to_its_timeout")
    assert worker.process.wait(60) == WEDGED, worker.text()
    assert ward.outcomes(job) == ["timed_out"]
    ward.start()
    ward.until_state(job)


def test_thread_started_by_a_handler_does_not_block_the_exit(ward: Ward) -> None:
    worker, job = ward.start(), ward.hold("hold_beside")
    until(lambda: ward.held(job))
    _terminate(worker)
    assert "for 1 running job;" in worker.text()
    worker.signal(signal.SIGTERM)
    assert worker.process.wait(60) == 0, worker.text()
    assert "ending the process without" in worker.text()
    assert ward.job(job) == ("queued", 0, 0)


def test_sys_exit_in_an_asyncio_task_ends_the_worker_with_1(ward: Ward) -> None:
    """For a supervisor, or for whoever starts a service again that has failed."""
    worker, job = ward.start(), ward.enqueue("exit_in_task")
    assert worker.process.wait(60) == 1, worker.text()
    assert "has raised SystemExit; the worker ends" in worker.text()
    assert ward.nodes() == ["active"], "it leaves its job to be found as lost, as a killed process does"
    ward.start()
    until(lambda: ward.job(job, "lost") == (1,))


@pytest.mark.parametrize("words", [(), ("--processes", "2")])
def test_sigterm_to_every_process_of_the_service_drains_it(ward: Ward, words: tuple[str, ...]) -> None:
    worker, jobs = ward.start(*words), [ward.hold(kind) for kind in ("hold", "hold_process")]
    until(lambda: all(ward.held(job) for job in jobs))
    _terminate(worker)
    for pid in _descendants(worker.process.pid):
        os.kill(pid, signal.SIGTERM)
    ward.let_go()
    assert worker.process.wait(60) == 0, worker.text()
    assert [ward.job(job) for job in jobs] == [("succeeded", 1, 0)] * 2
    assert [ward.outcomes(job) for job in jobs] == [[], []]


def test_a_second_sigterm_stops_all_processes_at_once(ward: Ward) -> None:
    supervisor, job = ward.start("--processes", "2"), ward.hold()
    until(lambda: ward.held(job))
    _terminate(supervisor)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.process.wait(60) == 0, supervisor.text()
    assert ward.job(job) == ("queued", 0, 0)


def test_sighup_drains_the_worker(ward: Ward) -> None:
    worker, job = ward.start("--processes", "2", drain_timeout="500ms"), ward.hold()
    until(lambda: ward.held(job) and ward.nodes() == ["active", "active"])
    worker.signal(signal.SIGHUP)
    assert worker.process.wait(60) == 0, worker.text()
    assert ward.job(job) == ("queued", 0, 0)
    assert ward.nodes() == ["left", "left"]


def test_processes_with_one_name_get_numbered_node_names(ward: Ward) -> None:
    worker = ward.start("--processes", "2", "--name", "mine")
    until(lambda: len(ward.nodes()) == 2)
    assert ward.sql("SELECT name FROM watchbill.nodes ORDER BY name") == [("mine/1",), ("mine/2",)]
    worker.signal(signal.SIGTERM)
    assert worker.process.wait(60) == 0, worker.text()


def test_drain_by_an_operator_ends_the_process(ward: Ward) -> None:
    worker, job = ward.start(node_name="mine"), ward.enqueue("nothing")
    ward.until_state(job)
    assert ward.sql("SELECT watchbill.drain('mine')") == [(True,)]
    assert worker.process.wait(60) == 0, worker.text()
    assert ward.nodes() == ["left"]


def test_sigterm_stops_a_worker_without_a_database(binaries: Binaries, tmp_path: Path) -> None:
    with ChaosServer(binaries) as server:
        ward = Ward(server.url, tmp_path)
        try:
            worker, job = ward.start(drain_timeout="1h"), ward.hold()
            until(lambda: ward.held(job))
            server.stop(signal.SIGQUIT)
            _terminate(worker)
            worker.signal(signal.SIGTERM)
            assert worker.process.wait(60) == 0, worker.text()
            server.start()
        finally:
            ward.close()


# -- ways to end


def test_once_option_exits_when_the_queue_is_empty(ward: Ward) -> None:
    jobs = [ward.enqueue("nothing") for _ in range(20)]
    worker = ward.start("--once")
    assert worker.process.wait(60) == 0, worker.text()
    assert {ward.job(job, "state") for job in jobs} == {("succeeded",)}
    assert ward.nodes() == ["left"]


def test_each_process_is_woken_by_notifications(ward: Ward) -> None:
    """Each of the jobs wakes them by the bell: nobody looks by himself within this test."""
    supervisor = ward.start("--processes", "2", poll_interval="1000", poll_max_interval="1000")
    until(lambda: ward.nodes() == ["active", "active"])
    for _ in range(5):
        until(lambda: ward.sql(PORTERS) == [(1,)])
        ward.until_state(ward.enqueue("nothing"))
    assert ward.sql(LISTENERS) == [(2,)]
    supervisor.signal(signal.SIGTERM)
    assert supervisor.process.wait(60) == 0, supervisor.text()
    assert ward.nodes() == ["left", "left"]


def test_a_killed_process_is_replaced(ward: Ward) -> None:
    supervisor = ward.start("--processes", "2")
    until(lambda: ward.nodes() == ["active", "active"])
    ((pid,),) = ward.sql("SELECT pid FROM watchbill.nodes ORDER BY epoch LIMIT 1")
    os.kill(pid, signal.SIGKILL)
    until(lambda: ward.nodes() == ["lost", "active", "active"], patience=60)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.process.wait(60) == 0, supervisor.text()
    assert ward.nodes() == ["lost", "left", "left"]


def test_supervisor_replaces_a_process_after_max_jobs(ward: Ward) -> None:
    supervisor = ward.start("--max-jobs", "5")
    until(lambda: ward.nodes() == ["active"])
    for replaced in range(2):
        jobs = [ward.enqueue("nothing") for _ in range(5)]
        for job in jobs:
            ward.until_state(job)
        wanted = [*["left"] * (replaced + 1), "active"]
        until(partial(_is, wanted, ward.nodes), patience=60)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.process.wait(60) == 0, supervisor.text()
    assert set(ward.nodes()) == {"left"}


def test_supervisor_replaces_a_process_above_max_memory(ward: Ward) -> None:
    """Any Python has more than one MiB."""
    supervisor = ward.start("--max-memory", "1")
    until(lambda: ward.nodes().count("left") >= 2, patience=60)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.process.wait(60) == 0, supervisor.text()
    assert set(ward.nodes()) == {"left"}


def test_supervisor_still_replaces_processes_after_one_drained(ward: Ward) -> None:
    supervisor = ward.start("--processes", "2")
    until(lambda: ward.nodes() == ["active", "active"])
    (first, _), (_, second) = ward.sql("SELECT name, pid FROM watchbill.nodes ORDER BY epoch")
    ward.sql("SELECT watchbill.drain(%s)", first)
    until(lambda: ward.nodes() == ["left", "active"])
    os.kill(second, signal.SIGKILL)
    until(lambda: ward.nodes() == ["left", "lost", "active"], patience=60)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.process.wait(60) == 0, supervisor.text()


def test_workers_exit_when_their_supervisor_is_killed(ward: Ward) -> None:
    supervisor = ward.start("--processes", "2")
    until(lambda: ward.nodes() == ["active", "active"])
    pids = [pid for (pid,) in ward.sql("SELECT pid FROM watchbill.nodes")]
    supervisor.kill()
    until(lambda: not any(_alive(pid) for pid in pids), patience=60)
    assert ward.nodes() == ["left", "left"]


# -- a server that goes away


@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGQUIT])
def test_a_worker_survives_the_restart_of_its_server(binaries: Binaries, tmp_path: Path, way: signal.Signals) -> None:
    with ChaosServer(binaries) as server:
        ward = Ward(server.url, tmp_path)
        try:
            worker, running = ward.start(), ward.hold()
            until(lambda: ward.held(running))
            for _ in range(2):
                server.stop(way)
                server.start()
                ward.until_state(ward.enqueue("nothing"))
            ward.let_go()
            ward.until_state(running)
            worker.signal(signal.SIGTERM)
            assert worker.process.wait(60) == 0, worker.text()
            assert ward.nodes()[-1] == "left"
        finally:
            ward.close()


# -- handlers that cannot be stopped


@pytest.mark.parametrize(
    "suspend", [pytest.param(False, id="at once", marks=pytest.mark.long), pytest.param(True, id="after a suspension")]
)
def test_handler_that_blocks_the_loop_ends_the_process(ward: Ward, suspend: bool) -> None:
    worker = ward.start(stuck_after="6")
    job = ward.enqueue("block_loop", directory=str(ward.directory), suspend=suspend)
    until(lambda: ward.held(job))
    other = ward.start()
    assert worker.process.wait(60) == WEDGED, worker.text()
    assert job in worker.text()
    assert "time.sleep" in worker.text() or "handlers.py" in worker.text()
    ward.until_state(job)
    assert ward.outcomes(job) == ["lost"]
    assert other.alive


def test_thread_that_ignores_its_timeout_ends_the_process(ward: Ward) -> None:
    worker = ward.start(stuck_after="1", drain_timeout="1")
    job = ward.enqueue("deaf_thread", directory=str(ward.directory))
    until(lambda: ward.held(job))
    assert worker.process.wait(60) == WEDGED, worker.text()
    assert ward.nodes() == ["left"]
    assert ward.outcomes(job) == ["timed_out"]
    ward.start()
    ward.until_state(job)


# -- child processes


def test_timeout_kills_a_child_process_and_its_children(ward: Ward) -> None:
    ward.start()
    job = ward.enqueue("grandchildren", directory=str(ward.directory))
    until(lambda: ward.held(job))
    grandchild = int((ward.directory / "grandchild").read_text())
    ward.until_state(job, "dead")
    assert ward.outcomes(job) == ["timed_out"]
    until(lambda: not _alive(grandchild))


def test_timeout_counts_while_the_child_process_starts(ward: Ward) -> None:
    ward.start()
    job = ward.enqueue("too_slow_to_start")
    ward.until_state(job, "dead")
    assert ward.outcomes(job) == ["timed_out"]


def test_killed_child_process_does_not_affect_other_jobs(ward: Ward) -> None:
    ward.start(concurrency="4")
    running = ward.hold("hold_process")
    until(lambda: ward.held(running))
    victim = ward.enqueue("suicide")
    ward.until_state(victim, "dead")
    assert "SIGKILL" in ward.job(victim, "error->>'message'")[0]
    ward.let_go()
    ward.until_state(running)
    assert ward.job(running) == ("succeeded", 1, 0)


def test_killed_idle_child_process_costs_no_attempt(ward: Ward) -> None:
    ward.start()
    first = ward.enqueue("where")
    ward.until_state(first)
    (pid,) = ward.job(first, "result")
    os.kill(pid, signal.SIGKILL)
    until(lambda: not _alive(pid))
    second = ward.enqueue("where")
    ward.until_state(second)
    assert ward.job(second) == ("succeeded", 1, 0)


def test_child_process_reports_every_outcome(ward: Ward) -> None:
    ward.start()
    ways = {"snooze": "snoozed", "retry": "failed", "skip": "skipped", "fail": "failed"}
    jobs = {ward.enqueue("say", word=word): outcome for word, outcome in ways.items()}
    for job, outcome in jobs.items():
        ward.until_state(job)
        assert ward.outcomes(job) == [outcome]


def test_child_processes_exit_when_the_worker_is_killed(ward: Ward) -> None:
    worker, job = ward.start(), ward.hold("hold_process")
    until(lambda: ward.held(job))
    (mark,) = ward.directory.glob(f"held-{job}-*")
    until(mark.read_text)  # it is made first, and then written
    child = int(mark.read_text())
    worker.kill()
    until(lambda: not _alive(child))


@pytest.mark.parametrize(
    ("limit", "children"), [({"jobs_per_child": "2", "memory_per_child": "4000"}, 2), ({"memory_per_child": "1"}, 4)]
)
def test_worker_replaces_child_processes_at_their_limits(ward: Ward, limit: dict[str, str], children: int) -> None:
    ward.start(concurrency="1", **limit)
    used = []
    for _ in range(4):
        job = ward.enqueue("where")
        ward.until_state(job)
        used.append(ward.job(job, "result")[0])
    assert len(set(used)) == children


def test_killed_named_node_restarts_before_its_lease_expires(ward: Ward) -> None:
    settings = {"node_name": "mine", "lease": "1h"}
    first, job = ward.start(**settings), ward.hold()
    until(lambda: ward.held(job))
    first.kill()
    ward.let_go()
    second = ward.start(**settings)
    ward.until_state(job)
    assert ward.nodes() == ["lost", "active"]
    assert "Node mine" in second.text()


def test_worker_waits_until_its_node_name_is_free(ward: Ward) -> None:
    first = ward.start(node_name="mine", lease="1h")
    until(lambda: ward.nodes() == ["active"])
    second, job = ward.start(node_name="mine", lease="1h"), ward.enqueue("nothing")
    until(lambda: "Could not register" in second.text())
    ward.until_state(job)
    assert ward.nodes() == ["active"]
    first.signal(signal.SIGTERM)
    until(lambda: ward.nodes() == ["left", "active"], patience=60)


def test_hours_equal_history_after_every_node_was_killed(ward: Ward) -> None:
    """What a killed process did not report is counted from history. Heartbeats are so far apart that nothing is."""
    for name in ("a", "b"):
        worker = ward.start("--name", name, lease="60")
        jobs = [ward.enqueue("nothing") for _ in range(7)]
        for job in jobs:
            ward.until_state(job)
        worker.kill()
    (ended,) = ward.sql("SELECT count(*) FROM watchbill.attempt WHERE outcome = 'succeeded'")
    assert ended == (14,)
    assert ward.sql("SELECT coalesce(sum(succeeded), 0) FROM watchbill.figure_list()") == [(0,)]
    next_hours = "date_trunc('hour', clock_timestamp(), 'UTC') + interval '1 hour' + make_interval(secs => %s)"
    for seconds in range(1, 400):
        ward.sql(f"SELECT watchbill._observe({next_hours})", seconds)
        figures = ward.sql("SELECT sum(succeeded), bool_and(is_counted) FROM watchbill.figure_list()")
        if figures == [(14, True)]:
            break
    assert figures == [(14, True)]
