"""What `watchbill worker` prints when it starts."""

from __future__ import annotations

import psycopg

from tests.acceptance.command import Watchbill

TASKS = """
from watchbill import App, Limit
app = App(name="shop")

@app.schedule("0 9 * * *")
@app.task(type="charge", queue="mail", limits=[Limit(10, name="crm")])
def charge() -> None: ...

@app.schedule("0 10 * * *")
@app.task(type="report")
def report() -> None: ...
"""


def test_worker_says_what_operators_have_changed_and_which_queues_nothing_uses(
    watchbill: Watchbill, schema_database: str
) -> None:
    (watchbill.directory / "tasks.py").write_text(TASKS)
    first = start(watchbill, schema_database)
    assert "2 queues (default, mail)" in first
    assert not any(word in first for word in ("paused", "changed by an operator", "disabled", "Did you mean"))
    with psycopg.connect(schema_database, autocommit=True) as connection:
        for change in (
            "pause('mail', reason => 'the gateway is down')",
            "pause(type => 'elsewhere')",
            "set_limit('crm', max => 5)",
            "set_limit('queue:mail', max => 7)",
            "set_limit('other', max => 5)",
            "disable_schedule('charge')",
            "update_schedule('report', '{\"priority\": 3}')",
        ):
            connection.execute(f"SELECT watchbill.{change}")
    second = start(watchbill, schema_database, "--queues", "mail:3,mial,mail:b")
    assert "3 queues (mail:3, mial:1, mail:b:1)" in second
    lines = [line.strip() for line in second.splitlines()]
    assert any(line.startswith("paused: queue mail, by ") and line.endswith(": the gateway is down") for line in lines)
    assert lines[-6:] == [
        "limit crm: at most 5 at once; changed by an operator",
        "limit queue:mail: at most 7 at once; changed by an operator",
        "schedule charge: disabled by an operator",
        "schedule report: changed by an operator",
        "No task of tasks:app uses queue mial, and nothing else does. Did you mean mail?",
        "No task of tasks:app uses queue mail:b, and nothing else does. A weight is a number, as in mail:3.",
    ]


def start(watchbill: Watchbill, url: str, *options: str) -> str:
    done = watchbill("worker", "--once", *options, WATCHBILL_DATABASE_URL=url)
    assert done.returncode == 0, done.stderr
    return done.stdout
