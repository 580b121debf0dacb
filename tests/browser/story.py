"""One hour of a shop, for pages and pictures: mail.send fails since a deploy, its queue is paused, a report is late.

The clock of the database stands still, so that every page shows the same.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from tests.store.harness import Db, End

NOW = datetime(2031, 3, 25, 14, 40, 53, tzinfo=UTC)
DEPLOY = NOW - timedelta(minutes=16)
BIG = 2**53 + 1
HOSTILE = "<script>alert(1)</script>\u202eevil"
TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/.venv/lib/python3.12/site-packages/watchbill/worker/run.py", line 88, in call
    return await function(**arguments)
  File "/srv/shop/mail.py", line 71, in send
    await deliver(message, host=settings.mail_host)
  File "/srv/shop/smtp.py", line 33, in deliver
    async with Connection(host, port=587, timeout=30) as smtp:
  File "/usr/lib/python3.12/asyncio/streams.py", line 48, in open_connection
    transport, _ = await loop.create_connection(
ConnectionError: mail.example refused
"""
REFUSED = {"type": "ConnectionError", "message": "mail.example refused", "kind": "error", "traceback": TRACEBACK}
SLOW = {"type": "TimeoutError", "message": "no answer from mail.example within 30 s", "kind": "error"}
DECLINED = {"type": "CardDeclined", "message": "insufficient funds for order 71", "kind": "permanent"}


class Story:
    """What the tests look for: `jobs`, and `groups` of failures, by names that the story gives them."""

    def __init__(self, db: Db) -> None:
        self.db, self.jobs, self.groups = db, dict[str, UUID](), dict[str, int]()

    def at(self, minutes_ago: float) -> None:
        self.db.now = NOW - timedelta(minutes=minutes_ago)

    def add(self, name: str, type: str, payload: dict[str, Any], **more: Any) -> UUID:
        options: dict[str, Any] = {"queue": "default", "tenant": "acme", "created_by": "checkout"}
        job = self.db.enqueue(type, payload=payload, **(options | more))
        self.jobs[name] = job
        return job

    def run(self, node: int, queue: str, outcome: str = "succeeded", seconds: float = 1.0, **more: Any) -> None:
        """Runs the next job of this queue."""
        job = self.db.claim_one(node, queues=[queue])
        self.db.tick(seconds)
        self.db.settle(node, End(job, outcome, age=seconds, **more))
        while self.db.call("unblock"):
            pass


def tell(db: Db) -> Story:
    story = Story(db)
    story.at(300)
    nodes = _start_nodes(db)
    _make_flow(story, nodes)
    _make_history(story, nodes)
    _fail_mail(story, nodes)
    _wait(story, nodes)
    _make_slots(story)
    _make_figures(story)
    _make_cluster(story, nodes)
    _make_control(story)
    db.now = NOW
    for node in nodes:
        db.call("heartbeat", epoch=node)
    _stop_clock(db)
    return story


SCHEDULES: tuple[dict[str, Any], ...] = (
    {
        "name": "nightly-report", "pattern": "0 2 * * *", "tz": "Europe/Paris", "type": "report.build",
        "deadline": 3600, "payload": {"kind": "sales"}, "description": "Sales of the day before",
    },
    {"name": "sync-crm", "pattern": "*/5 * * * *", "tz": "UTC", "type": "sync.crm"},
    {"name": "monthly-bill", "pattern": "0 9 LW * *", "tz": "America/New_York", "type": "billing.run"},
    {"name": "warm-cache", "every": 900, "type": "cache.warm"},
    {"name": "partner-feed", "pattern": "0 5 * * *", "tz": "UTC", "type": "feed.send", "enabled": False},
)  # fmt: skip


def _start_nodes(db: Db) -> list[int]:
    types = ["mail.send", "orders.charge", "orders.close", "invoice.render", "ship.label", "sync.contact",
             "report.build", "sync.crm", "billing.run", "cache.warm", "feed.send", "search.index"]  # fmt: skip
    return [
        db.node(
            f"w{number}", app="shop", host=f"host-{number}", pid=4000 + number, capacity=capacity,
            types=dict.fromkeys(types, 1), queues=queues, lease=timedelta(hours=6), labels={"zone": zone},
            watchbill_version="0.9",
        )
        for number, capacity, zone, queues in (
            (1, 120, "eu-1", ["default", "mail", "orders", "sync"]),
            (2, 120, "eu-2", ["default", "mail", "orders"]),
            (3, 80, "eu-1", ["default", "orders"]),
        )
    ]  # fmt: skip


def _make_flow(story: Story, nodes: list[int]) -> None:
    """An order: charge, then an invoice and a label, then a mail, and the end of the order."""
    story.at(11)
    charge = story.add("charge", "orders.charge", {"order": BIG, "amount": 4990, "user": {"id": 42}}, queue="orders")
    invoice = story.add("invoice", "invoice.render", {"order": 77, "user": {"id": 42}}, depends_on=[charge])
    label = story.add("label", "ship.label", {"order": 77}, depends_on=[charge])
    mail = story.add(
        "mail", "mail.send",
        {"to": "a.meyer@example.com", "template": "invoice", "order": BIG, "user": {"id": 42, "locale": "fr"},
         "token": "secret-4711"},
        queue="mail", depends_on=[invoice], max_attempts=5, idempotency_key="order-77-mail",
        timeout=timedelta(seconds=30), meta={"request": "a7"},
    )  # fmt: skip
    story.add("close", "orders.close", {"order": 77, "user": {"id": 42}}, queue="orders", depends_on=[mail, label])
    story.run(nodes[0], "orders", seconds=0.8)
    story.run(nodes[1], "default", seconds=2.1, result={"file": "invoice-77.pdf", "pages": 2})
    story.run(nodes[2], "default", seconds=0.4)


def _make_history(story: Story, nodes: list[int]) -> None:
    for number in range(6):
        story.at(10.5 - number / 10)
        story.add(f"index-{number}", "search.index", {"kind": "order", "id": number, "user": {"id": 42}})
        story.run(nodes[number % 3], "default", seconds=0.09)
    story.at(18)
    story.add("declined", "orders.charge", {"order": 71, "amount": 219900, "user": {"id": 42}}, queue="orders",
              max_attempts=1)  # fmt: skip
    story.run(nodes[0], "orders", "failed", 1.1, error=DECLINED)
    story.at(17)
    story.add("canceled", "search.index", {"kind": "cart", "id": 5512}, tenant="globex")
    story.db.call("cancel", id=story.jobs["canceled"], reason="cart is gone")


def _fail_mail(story: Story, nodes: list[int]) -> None:
    """Since the deploy, mails fail; then ann pauses their queue."""
    story.at(16)
    story.db.call("add_chart_mark", text="deploy v41", at=DEPLOY)
    for number in range(3):
        story.at(9.6 - number / 10)
        story.add(f"mail-{number}", "mail.send", {"to": f"user{number}@example.com", "user": {"id": 42 + number}},
                  queue="mail", max_attempts=5)  # fmt: skip
    for attempt in range(2):
        story.at(9.2 - attempt)
        for number in range(4):
            job = story.db.claim(nodes[number % 2], 1, queues=["mail"])
            if not job:
                break
            story.db.tick(1.3)
            error = SLOW if number == 3 else REFUSED
            delay = timedelta(seconds=20) if attempt == 0 else timedelta(minutes=9, seconds=20 + 3 * number)
            story.db.settle(nodes[number % 2], End(job[0], "failed", age=1.3, error=error, delay=delay))
        story.db.tick(22)
        story.db.value("promote")
    story.at(7)
    story.db.configure(**{"watchbill.actor": "ann"})
    story.db.call("pause", queue="mail", reason="provider down")
    story.db.configure(**{"watchbill.actor": ""})
    for number in range(5):
        story.at(6 - number / 10)
        story.add(
            f"paused-{number}", "mail.send", {"to": f"late{number}@example.com", "user": {"id": 42}}, queue="mail"
        )


def _wait(story: Story, nodes: list[int]) -> None:
    story.at(3)
    story.add("scheduled", "report.build", {"kind": "weekly"}, run_at=NOW + timedelta(hours=3))
    story.add("hostile", "search.index", {"name": HOSTILE, "__proto__": {"a": [BIG, -1.5, None, True]}},
              queue="imports", tenant=HOSTILE[:60], created_by=HOSTILE, idempotency_key=HOSTILE)  # fmt: skip
    story.at(1)
    story.add("running", "orders.charge", {"order": 78, "amount": 12900, "user": {"id": 42}}, queue="orders")
    story.db.claim(nodes[0], 1, queues=["orders"])
    _ask_for_approval(story, nodes)
    story.at(0.5)
    story.add("ready", "search.index", {"kind": "order", "id": 79})
    story.add("large", "search.index", {"text": "x" * 70_000}, queue="imports")


def _ask_for_approval(story: Story, nodes: list[int]) -> None:
    """A refund in steps, which waits for a person."""
    story.at(2.5)
    job = story.add("refund", "orders.refund", {"order": 77, "amount": 12900}, queue="orders")
    claimed = story.db.claim_one(nodes[0], queues=["orders"])
    for seq, (name, result) in enumerate((("load_order", {"total": 129}), ("score_risk", 0.71)), 1):
        story.db.tick(4)
        story.db.call("save_step", id=job, fence=claimed.fence, name=name, result=result, seq=seq, age=3.0)
    ask = {"refund": 129, "risk": 0.71}
    story.db.call("receive", id=job, fence=claimed.fence, step="approval", seq=3, names=["approval"], ask=ask,
                  timeout=timedelta(days=2))  # fmt: skip
    story.db.settle(nodes[0], End(claimed, "suspended", age=9.0))


def _make_slots(story: Story) -> None:
    """The last slots of the schedules, as if they had run for a month. The last report has not ended."""
    story.at(0.5)
    for schedule in SCHEDULES:
        story.db.call("add_schedule_from", definition=schedule)
    story.at(0)
    story.db.change(
        """
        INSERT INTO {schema}.slots (
          schedule_id, slot, kind, outcome, job_id, fired_at, started_at, finished_at, due_by, overdue_at)
        SELECT s.id, n.at, 'clock',
          CASE
            WHEN s.name = 'sync-crm' AND n.number = 4 THEN 'failed'
            WHEN s.name = 'sync-crm' OR n.number > 0 THEN 'succeeded'
          END,
          {schema}.uuid7(n.at), n.at, n.at,
          CASE
            WHEN s.name = 'sync-crm' THEN n.at + interval '4 seconds'
            WHEN n.number > 0 THEN n.at + interval '1 second' * (1080 + 40 * sin(n.number * 2.1))
          END,
          CASE WHEN s.name <> 'sync-crm' AND n.number = 0 THEN n.at + interval '1 hour' END,
          CASE WHEN s.name <> 'sync-crm' AND n.number = 0 THEN n.at + interval '1 hour' END
        FROM {schema}.schedules s
        CROSS JOIN LATERAL (
          SELECT g.number, CASE s.name
              WHEN 'sync-crm' THEN date_bin('5 minutes', %s, timestamptz '2031-01-01') - g.number * interval '5 minutes'
              ELSE date_trunc('day', %s::timestamptz) + interval '1 hour' - g.number * interval '1 day'
            END
          FROM generate_series(0, 29) g(number)) n(number, at)
        WHERE s.name IN ('nightly-report', 'sync-crm')
        ON CONFLICT DO NOTHING""",
        NOW, NOW,
    )  # fmt: skip

    story.db.change("UPDATE {schema}.timers SET runs = 30")


def _make_figures(story: Story) -> None:
    """An hour and six of figures: how much waited, how much ended, and the groups of failures."""
    db = story.db
    story.at(0)
    db.change(
        """
        INSERT INTO {schema}.samples (
          grain, dimension, at, name, tenant, running, ready, scheduled, retrying, limited, paused, unsupported,
          unmatched, blocked, oldest, is_estimate)
        SELECT 'minute', d.dimension, %s::timestamptz - (60 - m) * interval '1 minute', d.name, NULL, d.running,
          greatest(0, d.ready + (d.swing * sin(m / 7.0))::int), 12, d.retrying, 0,
          CASE WHEN m > 53 THEN (m - 53) * d.paused / 7 ELSE 0 END, 0, 0, d.blocked,
          %s::timestamptz - d.oldest, d.ready > 100000
        FROM generate_series(1, 60) m
        CROSS JOIN (VALUES
          ('all', '', 214, 4213, 900, 1031, 1204, 88, interval '7 minutes'),
          ('queue', 'mail', 0, 0, 0, 1031, 1204, 0, interval '7 minutes'),
          ('queue', 'orders', 98, 3, 2, 0, 0, 88, interval '2 seconds'),
          ('queue', 'default', 92, 310, 120, 0, 0, 0, interval '4 seconds'),
          ('queue', 'imports', 24, 3900, 800, 0, 0, 0, interval '6 hours'))
          d(dimension, name, running, ready, swing, retrying, paused, blocked, oldest)
        ON CONFLICT DO NOTHING""",
        NOW, NOW,
    )  # fmt: skip
    db.change(
        """
        INSERT INTO {schema}.rollups (
          grain, dimension, at, name, tenant, succeeded, skipped, failed, timed_out, lost, snoozed, dead, canceled,
          run_seconds, wait_seconds)
        SELECT CASE d.dimension WHEN 'type' THEN 'ten_minutes' ELSE 'minute' END, d.dimension,
          date_trunc('minute', %s::timestamptz) - m * interval '1 minute', d.name, NULL,
          (d.succeeded * (1 + 0.2 * sin(m / 11.0)))::int, 0,
          CASE WHEN m BETWEEN 7 AND 15 AND d.name IN ('', 'mail', 'mail.send') THEN 140 - 12 * abs(11 - m)
            ELSE 2 + m %% 3 END, 0, 0,
          0, CASE WHEN m %% 17 = 3 THEN 3 ELSE 0 END, 1, d.succeeded * 0.8, d.succeeded * 1.4
        FROM generate_series(0, 380) m
        CROSS JOIN (VALUES
          ('all', '', 880), ('queue', 'mail', 240), ('queue', 'orders', 120), ('queue', 'default', 480),
          ('queue', 'imports', 40), ('type', 'mail.send', 240), ('type', 'orders.charge', 90))
          d(dimension, name, succeeded)
        WHERE d.dimension <> 'type' OR m %% 10 = 0
        ON CONFLICT DO NOTHING""",
        NOW,
    )  # fmt: skip
    for name, task, error, example, first, attempts, dead in (
        ("refused", "mail.send", REFUSED, "mail", 15, 1031, 0),
        ("slow", "mail.send", SLOW, "mail-2", 14, 88, 0),
        ("declined", "orders.charge", DECLINED, "declined", 90 * 1440, 63, 63),
    ):
        db.change(
            """
            INSERT INTO {schema}.failure_groups (
              failure, tenant, type, exception, message, example, first, last, attempts, dead)
            VALUES (
              {schema}._failure_of(%s, %s), 'acme', %s, %s, %s, %s, %s, %s, %s, %s)""",
            task, Jsonb(error), task, error["type"], error["message"], story.jobs[example],
            NOW - timedelta(minutes=first), NOW - timedelta(minutes=8), attempts, dead,
        )  # fmt: skip
        (found,) = db.call("failure_key", type=task, exception=error["type"], message=error["message"])
        story.groups[name] = found[0]


def _make_cluster(story: Story, nodes: list[int]) -> None:
    """A token group whose tokens move from w3, which drains; two locks and a pin; and a node that was lost."""
    db = story.db
    story.at(15)
    db.call("declare_group", name="shop", total=10_000)
    for node in nodes:
        db.call("join_group", epoch=node, token_group="shop")
    db.change(
        """
        INSERT INTO {schema}.tokens (token_group, token, epoch, fence, next, asked_at)
        SELECT 'shop', t, CASE WHEN t BETWEEN 4040 AND 4051 THEN 0 ELSE (%s::bigint[])[1 + (t / 977) %% 3] END, t + 1,
          CASE WHEN (t / 977) %% 3 = 2 AND t < 5000 THEN %s END, now()
        FROM generate_series(0, 9999) t
        ON CONFLICT (token_group, token) DO UPDATE SET epoch = EXCLUDED.epoch, next = EXCLUDED.next""",
        nodes, nodes[0],
    )  # fmt: skip
    db.change(
        """
        INSERT INTO {schema}.rebalances (
          token_group, at, reason, leader, nodes_before, nodes_after, moved, version, duration)
        VALUES
          ('shop', %s, 'w3 drains', 'w1', '{{w1,w2,w3}}', '{{w1,w2}}', 2090, 3, '40 seconds'),
          ('shop', %s, 'w4 was lost', 'w1', '{{w1,w2,w3,w4}}', '{{w1,w2,w3}}', 2480, 2, '31 seconds')""",
        NOW - timedelta(minutes=4), NOW - timedelta(minutes=11),
    )  # fmt: skip
    story.at(3)
    db.call("pin", token_group="shop", wanted=[{"key": "customer:7", "labels": {"zone": "eu-1"}, "reason": "GDPR"}],
            created_by="ben")  # fmt: skip
    db.call("lock_acquire", name="stock/berlin", holder="w1 stock.count", ttl=timedelta(seconds=600))
    story.at(0)
    db.call("lock_acquire", name="crm-export", holder="w2 sync.export", ttl=timedelta(seconds=4))
    story.at(40)
    lost = db.node("w4", app="shop", host="host-4", pid=4004, capacity=80, queues=["imports"], watchbill_version="0.8")
    story.at(11)
    db.change("UPDATE {schema}.nodes SET state = 'lost', ended_at = %s WHERE epoch = %s", db.now, lost)
    db.configure(**{"watchbill.actor": "ann"})
    story.at(9)
    db.call("drain", name="w3")
    db.configure(**{"watchbill.actor": ""})


def _make_control(story: Story) -> None:
    """Limits, quotas, alerts, operations and keys."""
    db = story.db
    db.configure(**{"watchbill.actor": "ann"})
    story.at(120)
    db.call("set_limit", name="crm", max=2, rates=[{"count": 100, "per": 60}])
    db.call("set_limit", name="mail.example", rates=[{"count": 10, "per": 1}])
    db.call("set_tenant", tenant="acme", quotas={"running": 50, "unfinished": 200, "per_minute": 600})
    db.call("set_tenant", tenant="globex", quotas={"running": 5})
    db.call("set_alert_route", name="ops", kind="webhook", target="https://hooks.example.com/ops")
    db.call("add_api_key", id="Kd83jf02", hash=b"\1" * 32, name="shop", role="producer", queues=["orders", "mail"],
            expires_at=NOW + timedelta(days=90))  # fmt: skip
    db.call("add_api_key", id="Zz91kdh2", hash=b"\2" * 32, name="grafana", role="reader")
    story.at(6)
    db.call("add_silence", matcher={"rule": "backlog", "subject": "imports"}, until=NOW + timedelta(hours=2),
            reason="import of the year")  # fmt: skip
    operation = db.value(
        "start_operation", kind="retry", filter="failure:12 type:mail.send", max_jobs=1031, rate=50,
        conditions=[{"field": "type", "operator": "=", "values": ["mail.send"], "path": []},
                    {"field": "state", "operator": "=", "values": ["failed"], "path": []}],
    )  # fmt: skip
    db.change(
        """UPDATE {schema}.bulk_operations SET seen = 470, done = 412, skipped = 58,
           reasons = '{{"it runs": 41, "it has succeeded": 17}}', state = 'paused' WHERE id = %s""",
        operation,
    )
    db.configure(**{"watchbill.actor": ""})
    db.change(
        """
        INSERT INTO {schema}.alerts (
          rule, subject, severity, state, since, fired_at, cleared_at, announced_at, value, above, reason)
        VALUES
          ('backlog', 'mail', 'warning', 'firing', %s, %s, NULL, %s, 1204, 1000,
           'queue mail has 1204 due jobs'),
          ('schedule_overdue', 'nightly-report', 'critical', 'firing', %s, %s, NULL, %s, NULL, NULL,
           'slot 01:00 of nightly-report should have ended at 02:00'),
          ('node_down', 'w4', 'critical', 'cleared', %s, %s, %s, %s, NULL, NULL,
           'node w4 was lost')""",
        *[NOW - timedelta(minutes=5)] * 6, *[NOW - timedelta(minutes=minutes) for minutes in (11, 11, 5, 11)],
    )  # fmt: skip
    db.change(
        """
        INSERT INTO {schema}.rollups (
          grain, dimension, at, name, tenant, succeeded, skipped, failed, timed_out, lost, snoozed, dead, canceled,
          run_seconds, wait_seconds)
        SELECT 'ten_minutes', 'tenant', date_bin('10 minutes', %s, '2031-01-01') - m * interval '10 minutes', d.name,
          d.name, (d.succeeded * (1 + 0.2 * sin(m / 3.0)))::int, 0, 2 + m %% 3, 0, 0, 0, 0, 1, d.succeeded * 0.8,
          d.succeeded * 1.4
        FROM generate_series(0, 38) m
        CROSS JOIN (VALUES ('acme', 2400), ('globex', 300)) d(name, succeeded)
        ON CONFLICT DO NOTHING""",
        NOW,
    )  # fmt: skip


def _stop_clock(db: Db) -> None:
    db.connection.execute(
        b"CREATE OR REPLACE FUNCTION watchbill._clock() RETURNS timestamptz LANGUAGE sql VOLATILE "
        b"RETURN timestamptz '2031-03-25 14:40:53+00'"
    )
