"""docs/migrate: our half of each page runs here, theirs and the bridges in an environment that has the others."""

from __future__ import annotations

import inspect
import re
import subprocess
from pathlib import Path

import pytest

from tests.docs.programs import DOCS, blocks, environment, run_program
from tests.environments import environment as virtual_environment

OTHERS = ("celery>=5.4,<6", "apscheduler>=3.10,<4", "procrastinate>=3,<4", "rq>=2,<3", "fakeredis")
PAGES = sorted(page.stem for page in (DOCS / "migrate").glob("*.md"))


def files_of(page: str) -> dict[str, str]:
    """Its Python blocks by the name in their first line."""
    found = {}
    for text in blocks(f"migrate/{page}.md"):
        named = re.match(r"# (\w+\.py)\n", text)
        assert named, f"{page}: a block does not say which file it is:\n{text}"
        found[named[1]] = text
    return found


_OURS = {
    "apscheduler": """
names = {declared.name for declared in shop.app.declared}
assert names == {"report", "report-eu", "restock"}, names
""",
    "rq": "assert shop.place(7).id\n",
}
_CHARGES = """
job = shop.charge.enqueue(7)
with shop.app.node(poll_interval=0.01):
    assert job.result(timeout=60) == "charged 7"
"""


_REFRESHES = """
from refresh import app, refresh

first, second = refresh.enqueue(7, "bought"), refresh.enqueue(7, "sold")
assert second.id == first.id and not second.created
with app.node(poll_interval=0.01):
    first.result(timeout=60)
assert refresh.enqueue(7, "moved").created
"""


def test_queueing_lock_of_the_guide_lets_one_job_wait(schema_database: str, tmp_path: Path) -> None:
    (tmp_path / "refresh.py").write_text(files_of("procrastinate")["refresh.py"])
    said = run_program(_REFRESHES, tmp_path, {"DATABASE_URL": schema_database})
    assert said.splitlines() == ["refreshing account 7"]


@pytest.mark.parametrize("page", PAGES)
def test_watchbill_code_of_each_migration_page_runs(page: str, schema_database: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(files_of(page)["shop.py"])
    program = "import shop\n" + _OURS.get(page, "") + ("" if page == "apscheduler" else _CHARGES)
    run_program(program, tmp_path, {"DATABASE_URL": schema_database})


_THEIRS = {
    "celery": """
import celery_shop
from celery.contrib.testing.worker import start_worker

celery_shop.app.conf.update(broker_url="memory://", result_backend="cache+memory://")
assert celery_shop.app.conf.beat_schedule["report"]["task"] in celery_shop.app.tasks

with start_worker(celery_shop.app, perform_ping_check=False):
    assert celery_shop.charge.delay(7).get(timeout=30) == "charged 7"

del celery_shop.app.tasks["celery_shop.charge"]
import celery_bridge, shop

with start_worker(celery_shop.app, perform_ping_check=False), shop.app.node(poll_interval=0.01):
    sent = celery_bridge.charge.delay(8)
    sent.get(timeout=30)
    celery_bridge.charge.apply_async((8,), task_id=sent.id).get(timeout=30)
    [job] = shop.app.jobs.list()
    assert job.idempotency_key == f"celery-{sent.id}", job

import celery_flows, flows

assert len(celery_flows.flow.tasks) == 2
with shop.app.node(poll_interval=0.01):
    assert flows.flow.enqueue()[-1].result(timeout=30) == "Rows: 11"
""",
    "apscheduler": """
import datetime
from apscheduler.triggers.cron import CronTrigger

monday = datetime.datetime(2026, 11, 16, tzinfo=datetime.timezone.utc)
fires = CronTrigger.from_crontab("0 9 * * 1", timezone="UTC").get_next_fire_time(None, monday)
assert fires.strftime("%A") == "Tuesday", fires
import process

assert {job.id for job in process.scheduler.get_jobs()} <= {"restock"}
""",
    "procrastinate": """
import os, psycopg, procrastinate_shop, shop

app = procrastinate_shop.app
with app.open():
    app.schema_manager.apply_schema()
    for order in (1, 2):
        procrastinate_shop.charge.defer(order=order)
app.run_worker(wait=False, install_signal_handlers=False)
with app.open():
    waiting = procrastinate_shop.charge.configure(schedule_in={"hours": 1}, priority=5).defer(order=3)
    later = procrastinate_shop.charge.defer(order=4)
with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
    done = connection.execute("SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'").fetchone()
    assert done == (2,), done
    for _ in range(2):
        connection.execute(open("move.sql").read())
    left = connection.execute("SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo'").fetchone()
    assert left == (0,), left
moved = {job.idempotency_key: job for job in shop.app.jobs.list()}
assert set(moved) == {f"procrastinate-{waiting}", f"procrastinate-{later}"}, moved
assert (moved[f"procrastinate-{waiting}"].priority, moved[f"procrastinate-{waiting}"].queue) == (5, "money")
assert moved[f"procrastinate-{waiting}"].wait == "delayed"
with shop.app.node(poll_interval=0.01):
    import time
    deadline = time.monotonic() + 60
    while (job := shop.app.jobs.get(moved[f"procrastinate-{later}"].id)).state != "succeeded":
        assert time.monotonic() < deadline, job
        time.sleep(0.01)
assert shop.app.jobs.get(moved[f"procrastinate-{later}"].id).result == "charged 4"
""",
    "rq": """
import fakeredis, redis
redis.Redis = fakeredis.FakeRedis
import rq, rq_shop, shop

first = rq_shop.place(7)
rq.SimpleWorker([rq_shop.queue], connection=rq_shop.queue.connection).work(burst=True)
assert first.return_value() == "charged 7", first.get_status()

import rq_bridge
rq_shop.charge = rq_bridge.charge
rq_bridge.charge.__module__ = "rq_shop"
second = rq_shop.place(8)
for _ in range(2):
    rq.SimpleWorker([rq_shop.queue], connection=rq_shop.queue.connection).work(burst=True)
    second.refresh()
    second.requeue() if second.is_failed else rq_shop.queue.enqueue_job(second)
[job] = shop.app.jobs.list()
assert (job.idempotency_key, job.payload) == (f"rq-{second.id}", {"order": 8}), job
""",
}


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_code_of_the_other_library_runs_and_hands_over_its_jobs(
    page: str, schema_database: str, tmp_path: Path
) -> None:
    python = virtual_environment("migrate", *OTHERS)
    for name, text in files_of(page).items():
        (tmp_path / name).write_text(text)
    for text in blocks(f"migrate/{page}.md", "sql"):
        (tmp_path / "move.sql").write_text(text)
    (tmp_path / "program.py").write_text(_THEIRS[page])
    done = subprocess.run(
        [str(python), "program.py"],
        env=environment({"DATABASE_URL": schema_database}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_migration_pages_name_only_existing_options_and_methods() -> None:
    """The right-hand column: options of tasks and schedules, methods and events."""
    from watchbill import App, Limit, Rate, Retry, Unique, current_job
    from watchbill.app.job_options import JobOptionsDict
    from watchbill.app.schedule_definition import Rule
    from watchbill.telemetry.events import EVENTS

    known = {
        *JobOptionsDict.__annotations__,
        *Rule.__annotations__,
        "version",
        "aliases",
        "executor",
        "type",
        "name",
        *Retry.__dataclass_fields__,
        *Unique.__dataclass_fields__,
        *Limit.__dataclass_fields__,
        *Rate.__dataclass_fields__,
        "limits",
        *inspect.signature(App().jobs.cancel).parameters,
    }
    for page in PAGES:
        for line in (DOCS / "migrate" / f"{page}.md").read_text().splitlines():
            right = re.sub(r"timedelta\(.*?\)", "", line.split(" | ")[-1]) if line.startswith("| ") else ""
            assert set(re.findall(r"(?:[(`, ])(\w+)=", right)) <= known, line
            assert set(re.findall(r'@app\.on\("(\w+)"', right)) <= EVENTS, line
            for owner, name in re.findall(r"app\.(jobs|schedules|queues)\.(\w+)", right):
                assert hasattr(getattr(App(), owner), name), line
            for name in re.findall(r"current_job\(\)\.(\w+)", right):
                assert hasattr(current_job.__globals__["Run"], name), line
