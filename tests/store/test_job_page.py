"""Lists of jobs by filters: every filter against an oracle that shares no code with it, pages, bounds, plans."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.store.harness import Db, End, refused
from watchbill.filters.condition import write_conditions
from watchbill.filters.parser import parse_filter
from watchbill.model.states import STATES, WAITS

TYPES = ("mail.send", "mail.bounce", "sms.send", "odd%_type", "a b", "Mail")
Predicate = Callable[[Any, Db], bool]


class Clause(NamedTuple):
    """A term of a filter, and whether it holds for a row of the view `job`, said in Python."""

    text: str
    holds: Predicate


def fill(db: Db) -> None:
    """Jobs in every state, that wait for everything, with all columns that filters read."""
    nodes = [db.node("web-1"), db.node("web-2")]
    number = 0

    def add(**more: Any) -> UUID:
        nonlocal number
        number += 1
        db.tick(7)
        return db.enqueue(
            TYPES[number % len(TYPES)],
            **{
                "queue": ("default", "bulk")[number % 2], "tenant": ("default", "acme")[number % 3 == 0],
                "priority": number % 4 - 1, "idempotency_key": f"order-{number}", "version": number % 2 + 1,
                "created_by": ("web", "cron")[number % 2], "meta": {"request": f"r{number % 3}"},
                "payload": {
                    "user": {"id": number if number % 2 else str(number), "name": "A*b%c"}, "total": number / 2,
                    "flag": (True, False, None)[number % 3], "list": [number],
                },
            } | more,
        )  # fmt: skip

    for outcome in ("succeeded", "failed", "failed", "succeeded", "skipped") * 3:
        add()
        epoch = nodes[number % 2]
        taken = db.claim(epoch, 100, queues=["default", "bulk"])
        db.tick(3)
        error = {"type": f"Oops{number % 2}", "message": f"order {number} failed", "kind": "permanent"}
        if number % 4 == 0:
            error = {"kind": "timeout", "message": "too slow"}
        db.settle(epoch, *(End(each, outcome, 2.5 + number, error=error) for each in taken))
    add(max_attempts=1)
    last = db.claim(nodes[0], 1, queues=["default", "bulk"])
    db.settle(nodes[0], *(End(each, "failed", error={"message": "without a kind"}) for each in last))
    for _ in range(3):
        db.value("cancel", id=add())
    add(delay=timedelta(hours=1))
    for wait in ("blocked", "parked", "paused", "unsupported"):
        for _ in range(2):
            db.set_wait(add(), wait)
    db.change("UPDATE {schema}.jobs SET wait = 'delayed', wait_key = 'steps' WHERE id = %s", add())
    db.change(
        """INSERT INTO {schema}.unsupported_types
           SELECT DISTINCT type, version, now() FROM {schema}.jobs WHERE wait = 'unsupported'"""
    )
    db.call("pause", queue="closed")
    add(queue="closed")
    for _ in range(3):
        add()
    db.claim(nodes[1], 3, queues=["default", "bulk"])
    for _ in range(2):
        add()
    add(runs_on={"gpu": "a100"})
    db.change(
        """INSERT INTO {schema}.runs (job_id, fence, epoch, started_at, seen_at)
           SELECT id, fence, 0, %s, now() FROM {schema}.jobs WHERE fence <> 0""",
        db.after(-30),
    )
    db.change(
        """UPDATE {schema}.finished_jobs
           SET schedule_id = 1, meta = '{{"schedule": "nightly"}}' WHERE seq % 3 = 0"""
    )
    keys: tuple[LiteralString, ...] = (
        "limit_keys = ARRAY['key:' || seq % 3, 'type:a'] WHERE seq % 5 = 0",
        "order_key = 'o' || seq % 2 WHERE seq % 4 = 1",
    )
    for change in keys:
        db.change("UPDATE {schema}.jobs SET " + change)
        db.change("UPDATE {schema}.finished_jobs SET " + change)


def wildcard(pattern: str, text: str | None) -> bool:
    parts = [re.escape(part) for part in pattern.split("*")]
    return text is not None and re.fullmatch(".*".join(parts), text, re.DOTALL) is not None


def lookup(document: Any, *path: str) -> Any:
    for name in path:
        if not isinstance(document, dict) or name not in document:
            return KeyError
        document = document[name]
    return document


def seconds(value: timedelta) -> float:
    return value.total_seconds()


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip
operators = st.sampled_from(sorted(COMPARE))


def one_of(field: str, words: tuple[str, ...], read: Callable[[Any], Any]) -> st.SearchStrategy[Clause]:
    """`field:a,b` with some of these words, of which some have stars."""
    chosen = st.lists(st.sampled_from(words), min_size=1, max_size=3, unique=True)

    def make(given: list[str]) -> Clause:
        has_star = any("*" in word for word in given)
        texts = [word if " " not in word else f'"{word}"' for word in given]

        def holds(job: Any, db: Db) -> bool:
            found = read(job)
            values = found if isinstance(found, list) else [found]
            return any(wildcard(word, value) if has_star else word == value for word in given for value in values)

        return Clause(f"{field}:{','.join(texts)}", holds)

    return chosen.map(make)


def compared(
    field: str, values: st.SearchStrategy[tuple[str, Any]], read: Callable[[Any, Db], Any]
) -> st.SearchStrategy[Clause]:
    def make(operator: str, value: tuple[str, Any]) -> Clause:
        def holds(job: Any, db: Db) -> bool:
            found, bound = read(job, db), value[1](db) if callable(value[1]) else value[1]
            return found is not None and COMPARE[operator](found, bound)

        return Clause(f"{field}{operator}{value[0]}", holds)

    return st.builds(make, operators, values)


ago = st.integers(0, 400).map(lambda s: (f"-{s}s", lambda db: db.after(-s)))
length = st.integers(0, 120).map(lambda s: (f"{s}s", s))
small = st.integers(-2, 40).map(lambda n: (str(n), n))


def equals(field: str, read: Callable[[Any], Any]) -> st.SearchStrategy[Clause]:
    return st.lists(st.integers(-2, 40), min_size=1, max_size=3).map(
        lambda given: Clause(f"{field}:{','.join(map(str, given))}", lambda job, db: read(job) in given)
    )


def states(field: str) -> st.SearchStrategy[Clause]:
    finished = ("succeeded", "dead", "canceled")
    waits = ("ready", "scheduled", "retrying", "paused", "unsupported", "limited", "unmatched")
    unfinished = ("blocked", "suspended", "queued", "running", "failed")
    words = ("blocked", *waits) if field == "waits" else (*unfinished, *finished, *waits)
    return st.lists(st.sampled_from(words), min_size=1, max_size=4, unique=True).map(
        lambda given: Clause(f"{field}:{','.join(given)}", lambda job, db: job.state in given or job.waits in given)
    )


def wait_of(job: Any, db: Db) -> float:
    return seconds((job.started_at or job.finished_at or db.now) - job.run_at)


def run_of(job: Any, db: Db) -> float | None:
    return seconds((job.finished_at or db.now) - job.started_at) if job.started_at else None


def error_of(job: Any) -> str:
    error = job.error or {}
    kind = error.get("type") or error.get("kind")
    return ": ".join(each for each in (kind, error.get("message")) if each is not None)


def number_in_payload(job: Any, db: Db) -> Any:
    found = lookup(job.payload, "total")
    return None if found is KeyError else found


def id_beginning(job_ids: list[UUID]) -> st.SearchStrategy[Clause]:
    return st.builds(
        lambda each, size: Clause(f"id:{str(each)[:size]}", lambda job, db: str(job.id).startswith(str(each)[:size])),
        st.sampled_from(job_ids), st.integers(1, 36),
    )  # fmt: skip


json_ids = st.integers(1, 40).flatmap(
    lambda n: st.sampled_from([
        Clause(f"payload.user.id:{n}", lambda job, db: lookup(job.payload, "user", "id") in (n, str(n))),
        Clause(f'payload.user.id:"{n}"', lambda job, db: lookup(job.payload, "user", "id") == str(n)),
        Clause(f"payload.user.id:{n},7", lambda job, db: lookup(job.payload, "user", "id") in (n, str(n), 7, "7")),
    ])
)  # fmt: skip
fixed = st.sampled_from([
    Clause("payload.flag:true", lambda job, db: lookup(job.payload, "flag") is True),
    Clause("payload.flag:null", lambda job, db: lookup(job.payload, "flag") is None),
    Clause("payload.user.name:A*c", lambda job, db: wildcard("A*c", lookup(job.payload, "user", "name"))),
    Clause('payload.user.name:"A*b%c"', lambda job, db: lookup(job.payload, "user", "name") == "A*b%c"),
    Clause("payload.missing:1", lambda job, db: False),
    Clause("payload.list:7", lambda job, db: False),
    Clause("meta.request:r1", lambda job, db: lookup(job.meta, "request") == "r1"),
    Clause("error:Oops1", lambda job, db: "Oops1" in error_of(job)),
    Clause('error:"order 1","slow"', lambda job, db: any(part in error_of(job) for part in ("order 1", "slow"))),
    Clause('message:"too slow"', lambda job, db: (job.error or {}).get("message") == "too slow"),
    Clause("message:order*", lambda job, db: (job.error or {}).get("message", "").startswith("order")),
    Clause('type:"mail.*"', lambda job, db: job.type == "mail.*"),
    Clause('type:"odd%_type"', lambda job, db: job.type == "odd%_type"),
    Clause("mail", lambda job, db: "mail" in job.type),
    Clause("d%_t", lambda job, db: "d%_t" in job.type),
    Clause("*send", lambda job, db: job.type.endswith("send")),
])  # fmt: skip


def clauses(job_ids: list[UUID]) -> st.SearchStrategy[Clause]:
    positive = st.one_of(
        states("state"), states("waits"), fixed, json_ids, id_beginning(job_ids),
        one_of("type", (*TYPES, "mail.*", "*", "*%*", "m*.*d"), lambda job: job.type),
        one_of("queue", ("default", "bulk", "closed", "b*"), lambda job: job.queue),
        one_of("tenant", ("default", "acme", "nobody"), lambda job: job.tenant),
        one_of("node", ("web-1", "web-2", "web-*"), lambda job: job.holder),
        one_of("key", ("order-7", "order-1*"), lambda job: job.idempotency_key),
        one_of("order", ("o1", "o*"), lambda job: job.order_key),
        one_of("limit", ("key:0", "key:*", "no"), lambda job: job.limit_keys or []),
        one_of("by", ("web", "cron", "c*"), lambda job: job.created_by),
        one_of("schedule", ("nightly", "n*"), lambda job: lookup(job.meta, "schedule") if job.schedule_id else None),
        equals("priority", lambda job: job.priority), equals("version", lambda job: job.version),
        equals("attempt", lambda job: job.attempt), equals("lane", lambda job: job.lane),
        compared("priority", small, lambda job, db: job.priority),
        compared("seq", small, lambda job, db: job.seq),
        compared("created", ago, lambda job, db: job.created_at),
        compared("due", ago, lambda job, db: job.run_at),
        compared("started", ago, lambda job, db: job.started_at),
        compared("finished", ago, lambda job, db: job.finished_at),
        compared("run", length, run_of), compared("wait", length, wait_of),
        compared("payload.total", small, number_in_payload),
    )  # fmt: skip
    negated = positive.map(lambda each: Clause(f"-{each.text}", lambda job, db: not each.holds(job, db)))
    return st.one_of(positive, positive, negated)


def pages(db: Db, text: str, **more: Any) -> Iterator[tuple[list[Any], Any]]:
    """The pages of a list: their jobs, and the last row, which says how far the page got."""
    after = None
    while True:
        conditions = json.loads(write_conditions(parse_filter(text, db.now)))
        *jobs, end = db.call("job_page", conditions=conditions, after=after, **more)
        yield jobs, end
        if end.is_complete:
            return
        after = end.next


def find(db: Db, text: str, **more: Any) -> list[UUID]:
    return [job.id for jobs, _ in pages(db, text, **more) for job in jobs]


_ORACLE: LiteralString = """
    SELECT j.*, coalesce(o.order_key, f.order_key) AS order_key FROM {schema}.job j
    LEFT JOIN {schema}.jobs o ON o.id = j.id LEFT JOIN {schema}.finished_jobs f ON f.id = j.id ORDER BY j.id DESC"""


def test_every_filter_finds_what_it_says(db: Db) -> None:
    fill(db)
    jobs = db.execute(db._in_schema(_ORACLE))
    assert {job.waits or job.state for job in jobs} == {*STATES, *WAITS} - {"queued", "failed"}

    @settings(
        max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), database=None,
        phases=(Phase.generate, Phase.shrink),
    )  # fmt: skip
    @given(st.lists(clauses([job.id for job in jobs]), min_size=1, max_size=4), st.integers(1, 60), st.integers(1, 60))
    def check(terms: list[Clause], most: int, budget: int) -> None:
        text = " ".join(term.text for term in terms)
        expected = [job.id for job in jobs if all(term.holds(job, db) for term in terms)]
        assert find(db, text, max=most, budget=budget) == expected, text

    check()


def test_group_of_failures_is_a_filter(db: Db) -> None:
    """Also of a job whose last run failed and that waits for the next one."""
    epoch = db.node()
    db.enqueue()
    jobs = [db.enqueue(max_attempts=most) for most in (1, 1, 5)]
    (ready, *_) = taken = db.claim(epoch, 4)
    messages = ("disk is full", "order 17 is gone", "order 4 is gone", "order 5 is gone")
    db.settle(epoch, *(
        End(job, "failed", error={"type": "Oops", "message": message})
        for job, message in zip(taken, messages, strict=True)
    ))  # fmt: skip
    assert ready.id not in jobs
    (group,) = [row for row in db.call("dead_groups") if row.count == 2]
    assert find(db, f"failure:{group.failure}") == sorted(jobs, reverse=True)
    assert find(db, f"state:dead failure:{group.failure}") == sorted(jobs[:2], reverse=True)


def test_page_ends_between_two_ids(db: Db) -> None:
    """A producer of another tenant may have given its job the id of a finished one."""
    epoch = db.node()
    job = db.enqueue()
    db.run(epoch, "succeeded")
    db.enqueue(id=job, tenant="other")
    db.enqueue()
    for most, budget in ((1, 50), (2, 50), (50, 1), (50, 2)):
        assert [len(jobs) for jobs, _ in pages(db, "id:0", max=most, budget=budget) if jobs] in ([1, 2], [3])
        assert find(db, "id:0", max=most, budget=budget)[1:] == [job, job]
    db.wipe()


def test_page_says_how_far_it_got(db: Db) -> None:
    jobs = [db.enqueue("rare" if number == 0 else "common") for number in range(10)]
    (first, end), *others = pages(db, "type:rare", budget=4)
    assert (first, end.next, end.scanned, end.is_complete) == ([], jobs[6], 4, False)
    assert end.created_at == db.look(jobs[6]).created_at
    found, end = others[-1]
    assert ([job.id for job in found], end.next, end.scanned, end.is_complete) == ([jobs[0]], None, 2, True)


@pytest.mark.parametrize(
    "conditions",
    [
        None, {}, "x", [1], [{}], [{"field": "type"}], [{"field": "type", "operator": "=", "values": []}],
        [{"field": "type; DROP TABLE jobs", "operator": "=", "values": ["x"]}],
        [{"field": "type", "operator": "= ANY ('{a}') OR true --", "values": ["x"]}],
        [{"field": "type", "operator": "<", "values": ["x"]}],
        [{"field": "type", "operator": "=", "values": [1]}],
        [{"field": "state", "operator": "=", "values": ["asleep"]}],
        [{"field": "priority", "operator": ">", "values": ["5"]}],
        [{"field": "priority", "operator": ">", "values": [int("9" * 60)]}],
        [{"field": "id", "operator": "=", "values": [["a", "b"]]}],
        [{"field": "id", "operator": "=", "values": ["a"]}],
        [{"field": "created", "operator": ">", "values": ["tomorrow"]}],
        [{"field": "created", "operator": ">", "values": [1e12]}],
        [{"field": "payload", "operator": ">", "values": [1]}],
        [{"field": "payload", "operator": "=", "values": [1]}],
        [{"field": "type", "operator": "=", "values": ["x"], "is_negated": "yes"}],
        [{"field": "type", "operator": "=", "values": ["x"]}] * 21,
        [{"field": "type", "operator": "=", "values": ["x"] * 101}],
    ],
)  # fmt: skip
def test_conditions_that_no_parser_makes_are_refused(db: Db, conditions: Any) -> None:
    with refused("WB003", "condition"):
        db.call("job_page", conditions=conditions)


_HOSTILE = ("x", "'; DROP TABLE jobs; --", "$1 || $2", "{}', '{", "%s %L", "\\'", "\N{SNOWMAN}", "x'::regclass")


@pytest.mark.parametrize("text", [
    "type:{},a*", "{}", "key:{}", "error:{},{}", "payload.{}.b:{},{}", "payload.{}>5", "meta.{}:{},a*", "limit:{},*a",
    "schedule:{} -node:{}", "id:01,02 tenant:{}",
])  # fmt: skip
def test_no_text_of_the_caller_is_part_of_the_statement(db: Db, text: str) -> None:
    """The statement is the same whatever the values are, and finds nothing rather than failing."""
    statements = set()
    for value in _HOSTILE:
        quoted = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        written = text.format(*[quoted] * 3)
        conditions = json.loads(write_conditions(parse_filter(written)))
        statements.add(db.value("_make_page_sql", conditions=conditions, t=db.now))
        assert find(db, written) == []
    assert len(statements) == 1


def read_plan(db: Db, text: str, budget: int) -> list[dict[str, Any]]:
    """The nodes of the plan by which a page is read."""
    conditions = write_conditions(parse_filter(text, db.now))
    statement = db.value("_make_page_sql", conditions=json.loads(conditions), t=db.now)
    session = db.session()
    session.configure(search_path="watchbill", enable_seqscan="off", enable_bitmapscan="off", jit="off")
    session.execute(f"PREPARE page (jsonb, uuid, int, timestamptz) AS {statement}".encode())
    session.configure(plan_cache_mode="force_custom_plan")
    ((plan,),) = session.connection.execute(
        b"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE page(%s, 'ffffffff-ffff-ffff-ffff-ffffffffffff', %s, %s)"
        .replace(b"%s", b"{}").decode().format(_literal(conditions), budget, _literal(db.now.isoformat())).encode()
    ).fetchall()  # fmt: skip
    session.execute("DEALLOCATE page")
    return list(_walk(plan[0]["Plan"]))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node.get("Plans", ()):
        yield from _walk(below)


# The few that wait are in no order of ids, so all of them are looked up.
_PLANS = [
    ("", "jobs_pkey"), ("payload.a:1", "jobs_pkey"), ("type:x", "finished_otherwise_default_id_idx"),
    ("state:failed", "jobs_failed"), ("waits:retrying error:x", "jobs_failed"), ("state:blocked", "jobs_blocked"),
    ("waits:limited", "jobs_waiting"), ("waits:unsupported", "jobs_waiting"), ("state:running", "jobs_pkey"),
    ("state:dead", "finished_otherwise_default_id_idx"), ("finished>-1h", "finished_succeeded_default_id_idx"),
    ("id:01a2", "jobs_pkey"),
]  # fmt: skip


def test_page_reads_an_index_and_no_more_than_it_may(db: Db) -> None:
    fill_with_many(db)
    for text, index in _PLANS:
        nodes, most = read_plan(db, text, budget=100), 500 if "waits:" in text else 100
        scans = [node for node in nodes if node.get("Relation Name", "").startswith(("jobs", "finished"))]
        assert not [node for node in scans if node["Node Type"] in ("Seq Scan", "Bitmap Heap Scan")], (text, nodes)
        assert index in {node.get("Index Name") for node in nodes}, text
        read = [node["Actual Rows"] + node.get("Rows Removed by Filter", 0) for node in scans]
        assert all(each <= most for each in read), (text, scans)
    db.wipe()


def fill_with_many(db: Db) -> None:
    """4,000 jobs of each kind, and a few of the rare ones."""
    db.change(
        """INSERT INTO {schema}.jobs (id, run_at, created_at, queue, type, payload)
           SELECT {schema}.uuid7(), now(), now(), 'default', 'common', '{{}}' FROM generate_series(1, 4000)"""
    )
    for rare in (
        "wait = 'blocked'", "wait = 'parked', wait_key = 'key:a'", "wait = 'unsupported', wait_key = 'key:a'",
        "failed = true, wait = 'delayed'",
    ):  # fmt: skip
        db.change(
            "UPDATE {schema}.jobs SET "
            + rare
            + """ WHERE id IN (
              SELECT id FROM {schema}.jobs WHERE wait IS NULL ORDER BY random() LIMIT 200)"""
        )
    for state in ("succeeded", "dead"):
        db.change(
            """INSERT INTO {schema}.finished_jobs (
                 id, seq, run_at, created_at, finished_at, lane, run, policy, version, priority, attempt, max_attempts,
                 lost, state, queue, type, tenant, payload)
               SELECT {schema}.uuid7(), n, now(), now(), %s, 0, 1, 1, 1, 0, 1, 1, 0, %s, 'default', 'common',
                 'default', '{{}}'
               FROM generate_series(1, 4000) n""",
            db.now, state,
        )  # fmt: skip
    db.change("ANALYZE {schema}.jobs, {schema}.finished_jobs")
