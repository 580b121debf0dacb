"""Producing: one job, many, and very many; what is refused and in which words."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.store.harness import Db, new_id, refused
from tests.store.security_checks import STATED


def test_enqueue_stores_the_given_options(db: Db) -> None:
    given = {
        "payload": {"to": "ann"}, "queue": "mail", "priority": -7, "tenant": "acme", "max_attempts": 3, "version": 4,
        "created_by": "web", "meta": {"artifact_ref": "s3://x", "trace": "1"},
    }  # fmt: skip
    sent = db.send("mail.send", timeout=timedelta(seconds=90), **given)
    assert (sent.created, sent.payload_differs) == (True, False)
    db.expect(sent.id, seq=sent.seq, type="mail.send", state="queued", wait=None, timeout=90, **given)
    db.expect(sent.id, attempt=0, run=0, lost=0, run_at=db.now, created_at=db.now, updated_at=db.now)
    db.expect(sent.id, holder=None, fence=None, error=None, artifact_ref="s3://x", canceling=False, lane=0)


def test_enqueue_uses_defaults_for_missing_options(db: Db) -> None:
    job = db.row("enqueue", type="t").id
    db.expect(job, payload={}, queue="default", priority=0, tenant="default", max_attempts=10, version=1, policy=1)
    db.expect(job, timeout=None, idempotency_key=None, created_by=None, meta=None)


def test_generated_id_carries_the_given_time(db: Db) -> None:
    """Its history is looked up by the time in its id, so both must follow one clock."""
    for now in (datetime(2001, 2, 3, tzinfo=UTC), datetime(2050, 2, 3, tzinfo=UTC)):
        job: UUID = db.row("enqueue", type="t", now=now).id
        assert job.version == 7
        assert datetime.fromtimestamp((job.int >> 80) / 1000, UTC) == now
        db.value("cancel", id=job, now=now)
        assert db.call("job_by_id", id=job)[0].state == "canceled"


def test_seq_grows_with_each_call(db: Db) -> None:
    assert db.send().seq < db.send().seq < db.send().seq


@pytest.mark.parametrize(
    ("when", "run_after", "wait"),
    [({"delay": timedelta(minutes=5)}, 300, "delayed"), ({"delay": timedelta(0)}, 0, None)],
)
def test_a_delay_counts_from_now(db: Db, when: dict[str, Any], run_after: float, wait: str | None) -> None:
    job = db.enqueue(**when)
    db.expect(job, state="queued", wait=wait, run_at=db.after(run_after), created_at=db.now)


def test_a_run_at_in_the_future_delays_and_one_in_the_past_does_not(db: Db) -> None:
    soon, past = db.enqueue(run_at=db.after(0.001)), db.enqueue(run_at=db.after(-86400))
    db.expect(soon, wait="delayed", run_at=db.after(0.001))
    db.expect(past, wait=None, run_at=db.after(-86400))


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"type": ""}, "type must be a text of 1 to 200 characters"),
    ({"type": None}, "job of type NULL is invalid: type must be"),
    ({"type": "x" * 201}, "type must be"),
    ({"type": "x" * 8000}, "type must be"),
    ({"type": "watchbill.sql"}, "only schedules make jobs whose type begins with watchbill"),
    ({"queue": ""}, "job of type 't' is invalid: queue must be a text of 1 to 100 characters"),
    ({"queue": None}, "queue must be"),
    ({"queue": "x" * 101}, "queue must be"),
    ({"tenant": ""}, "tenant must be a text of 1 to 200 characters"),
    ({"tenant": "x" * 201}, "tenant must be"),
    ({"priority": 32768}, "priority must be between -32768 and 32767"),
    ({"priority": -32769}, "priority must be"),
    ({"max_attempts": 0}, "max_attempts must be between 1 and 32767"),
    ({"max_attempts": -5}, "max_attempts must be"),
    ({"max_attempts": 32768}, "max_attempts must be"),
    ({"version": 0}, "version must be 1 or more"),
    ({"version": -5}, "version must be"),
    ({"run_at": "2040-01-01", "delay": "1 s"}, "give run_at or delay, not both"),
    ({"run_at": "infinity"}, "run_at must be a finite time"),
    ({"run_at": "-infinity"}, "run_at must be a finite time"),
    ({"run_at": "10000-01-01"}, "run_at must be a finite time in the years 1 to 9999"),
    ({"run_at": "4000-01-01 BC"}, "run_at must be"),
    ({"delay": "-1 s"}, "delay must be between 0 and 100 years"),
    ({"delay": "101 years"}, "delay must be between"),
    ({"timeout": "0 s"}, "timeout must be more than 0 and at most 365 days"),
    ({"timeout": "-1 s"}, "timeout must be"),
    ({"timeout": "2 years"}, "timeout must be"),
    ({"timeout": "365 days 2 s"}, "timeout must be more than 0 and at most 365 days"),
    ({"timeout": "1 year"}, "timeout must be more than 0 and at most 365 days"),  # 365.25 days in seconds
    ({"idempotency_window": "1 h"}, "idempotency_window needs an idempotency_key"),
    ({"idempotency_key": "k", "idempotency_window": "0 s"}, "idempotency_window must be more than 0"),
    ({"idempotency_key": "k", "idempotency_window": "290000 years"}, "idempotency_window must be"),
    ({"idempotency_key": ""}, "idempotency_key must be a text of 1 to 500 characters"),
    ({"idempotency_key": "k" * 501}, "idempotency_key must be"),
    (
        {"type": "\N{SNOWMAN}" * 200, "tenant": "\N{SNOWMAN}" * 200, "idempotency_key": "\N{SNOWMAN}" * 500},
        "must have at most 2500 bytes together",
    ),
    ({"payload": [1]}, "payload must be a JSON object, one key per parameter"),
    ({"payload": "x"}, "payload must be a JSON object"),
    ({"payload": None}, "payload must be a JSON object"),
    ({"payload": {"x": "y" * 100_001}}, "the payload has 1000.. bytes, the limit is 100000: store it elsewhere"),
    ({"payload": {"x": "yyy"}, "max_payload": 10}, "the limit is 10"),
    ({"retry": {"kind": "wild"}}, "retry policy"),
    ({"delay": "170000000 years"}, "delay must be between 0 and 100 years"),
    ({"delay": "-8000 years"}, "delay must be between 0 and 100 years"),
    ({"meta": 5}, "meta must be a JSON object"),
    ({"meta": [1]}, "meta must be a JSON object"),
    ({"meta": {"x": "y" * 1_000_000}}, "meta must have at most 1000000 bytes as text"),
    ({"created_by": "x" * 501}, "created_by must have at most 500 characters"),
    ({"limit_keys": ["k"] * 101}, "limit_keys must have at most 100 keys"),
]


SECONDS = {"0 s": 0, "2 years": 2 * 365 * 86400, "-1 s": -1, "365 days 2 s": 31536002, "1 year": 31557600}
OF_SHORT_WAYS = {
    "type", "payload", "queue", "priority", "tenant", "max_attempts", "timeout", "version", "created_by", "meta",
}  # fmt: skip
DEFAULTS: dict[str, Any] = {
    "type": "t", "payload": {}, "queue": "q", "priority": 0, "tenant": "default", "max_attempts": 10, "timeout": None,
    "version": 1, "created_by": None, "meta": None,
}  # fmt: skip


def real_id() -> UUID:
    return new_id(datetime.now(UTC))  # these functions read the clock of the database


def enqueue_rows(db: Db, given: dict[str, Any]) -> None:
    row = {name: value for name, value in DEFAULTS.items() if value is not None} | {"id": str(real_id())} | given
    db.execute(
        "SELECT * FROM watchbill._enqueue_rows("
        "ARRAY[jsonb_populate_record(NULL::watchbill.new_job, %s)], false, true, false, 100000, NULL)",
        (Jsonb(row),),
    )


def enqueue_from_rows(db: Db, given: dict[str, Any]) -> None:
    columns = {"type": "t"} | {name: Jsonb(v) if isinstance(v, dict) else v for name, v in given.items()}
    columns |= {name: Jsonb(given[name]) for name in ("payload", "meta") if name in given}
    incoming(db, [tuple(columns.values())], ", ".join(columns))
    db.call("enqueue_from", source="incoming")


def enqueue_plain(db: Db, given: dict[str, Any]) -> None:
    db.call("_enqueue_plain", **(DEFAULTS | {"id": real_id()} | given))


def enqueue_plain_many(db: Db, given: dict[str, Any]) -> None:
    shared = DEFAULTS | given
    payload = shared.pop("payload")
    db.call("_enqueue_plain_many", **shared, ids=[real_id(), real_id()], payloads=[{}, payload])


WAYS: dict[str, Callable[[Db, dict[str, Any]], Any]] = {
    "enqueue": lambda db, given: db.send(**({"type": "t"} | given)),
    "enqueue_many": lambda db, given: db.call("enqueue_many", jobs=[{"type": "t"}, {"type": "t"} | given]),
    "enqueue_from": enqueue_from_rows,
    "_enqueue_rows": enqueue_rows,
    "_enqueue_plain": enqueue_plain,
    "_enqueue_plain_many": enqueue_plain_many,
}
SHORT_WAYS = ("_enqueue_plain", "_enqueue_plain_many")


def find_ways(given: dict[str, Any]) -> list[str]:
    """Those that can express the arguments."""
    if "max_payload" in given:
        return ["enqueue"]
    ways = ["enqueue", "_enqueue_rows"]
    if None not in given.values():  # these read null as "not given"
        ways += ["enqueue_many", "enqueue_from"]
    is_small = max(given.get("priority", 0), -given.get("priority", 0), given.get("max_attempts", 0)) <= 32767
    # They leave the size of the payload to the client.
    if is_small and given.keys() <= OF_SHORT_WAYS and len(str(given.get("payload"))) < 1000:
        ways += SHORT_WAYS
    return ways


def test_every_function_with_which_producers_enqueue_is_tried_here() -> None:
    assert {name for name, right in STATED.items() if "enqueue" in name and "producer" in right.roles} == set(WAYS)


@pytest.mark.parametrize(("given", "words"), REFUSALS, ids=lambda value: str(value)[:40])
def test_invalid_jobs_are_refused_with_a_message(db: Db, given: dict[str, Any], words: str) -> None:
    for way in find_ways(given):
        wrong = dict(given)
        if way in SHORT_WAYS and "timeout" in given:
            wrong["timeout"] = SECONDS[given["timeout"]]
        with refused("WB003", words):
            WAYS[way](db, wrong)
    assert db.count("jobs") == 0


# 13 kB in the database, which a claim would have to send as 105 MB of digits.
LONG = "(SELECT jsonb_build_object('x', jsonb_agg(1e131071)) FROM generate_series(1, 800))"
LONG_WAYS = [
    f"enqueue('t', {LONG}, max_payload => NULL)",
    f"_enqueue_plain('t', {LONG}, 'q', 0::smallint, 'a', 10::smallint, NULL, 1, watchbill.uuid7(), NULL, NULL)",
    (
        "_enqueue_plain_many('t', 'q', 0::smallint, 'a', 10::smallint, NULL, 1, NULL, NULL, ARRAY[watchbill.uuid7()], "
        f"ARRAY[{LONG}])"
    ),
]


def test_no_caller_can_store_a_payload_that_is_too_long_to_send(db: Db) -> None:
    for call in LONG_WAYS:
        with refused("WB003", "the payload must have at most 100000000 bytes as text"):
            db.execute(f"SELECT watchbill.{call}")
    assert db.count("jobs") == 0


def test_a_run_by_hand_takes_no_payload_that_is_too_long_to_send(db: Db) -> None:
    db.call("add_schedule", name="s", type="t")
    with refused("WB003", "the payload must have at most 100000000 bytes as text"):
        db.execute(f"SELECT watchbill.run_schedule('s', payload => {LONG})")
    assert db.count("jobs") == 0


def test_no_limit_for_the_payload_is_a_hundred_megabytes(db: Db) -> None:
    payload = "jsonb_build_object('x', repeat('y', 100000000))"
    with refused("WB003", "the payload has 1000000.. bytes, the limit is 100000000"):
        db.execute(f"SELECT watchbill.enqueue('t', {payload}, max_payload => NULL)")


@pytest.mark.parametrize("seconds", ["NaN", "Infinity", "-Infinity", "-1", "3e38", "31536002"])
def test_the_short_ways_refuse_seconds_that_no_timeout_has(db: Db, seconds: str) -> None:
    for way in SHORT_WAYS:
        with refused("WB003", "timeout must be more than 0 and at most 365 days"):
            WAYS[way](db, {"timeout": seconds})
    assert db.count("jobs") == 0


def test_the_short_ways_take_the_largest_and_smallest_values(db: Db) -> None:
    largest = {"type": "x" * 200, "queue": "q" * 100, "tenant": "t" * 200, "max_attempts": 32767, "version": 2**31 - 1}
    for given in (largest | {"timeout": 31536000}, {"max_attempts": 1, "timeout": 1e-6, "meta": {}}):
        WAYS["_enqueue_plain"](db, given)
        WAYS["_enqueue_plain_many"](db, given)
    assert sorted(row.class_ for row in db.execute("SELECT class AS class_ FROM watchbill.jobs")) == [0, 0, 0, 1, 1, 1]


def test_numbers_out_of_range_are_refused_in_a_new_session(db: Db) -> None:
    """The first calls of a session have plans for their very values, for which PostgreSQL casts them early."""
    for name, value in [("priority", 99999), ("priority", -99999), ("max_attempts", 99999), ("max_attempts", -99999)]:
        with psycopg.connect(db.url) as connection, refused("WB003", f"{name} must be between"):
            connection.execute(f"SELECT watchbill.enqueue('t', {name} => {value})".encode())


def test_largest_and_smallest_values_are_accepted(db: Db) -> None:
    db.enqueue("x" * 200, queue="q" * 100, tenant="t" * 200, priority=32767, max_attempts=32767, version=2**31 - 1)
    db.enqueue(priority=-32768, max_attempts=1, idempotency_key="k" * 500, idempotency_window="100 years")
    db.enqueue(delay="100 years", timeout="365 days")
    db.enqueue(debounce_wait="365 days")
    db.enqueue(payload={"x": "y" * 200_000}, max_payload=None)
    assert db.count("jobs") == 5


def test_id_more_than_an_hour_in_the_future_is_refused(db: Db) -> None:
    db.enqueue(id=new_id(db.after(3599)))
    db.enqueue(id=uuid4())  # of another version: nothing is known of its time
    with refused("WB003", "the time in the id must be at most an hour ahead of the database's clock"):
        db.enqueue(id=new_id(db.after(3601)))
    with refused("WB003", "the time in the id"):
        db.enqueue(id=new_id(db.after(3601)), id_is_new=True)


def test_enqueue_with_a_used_id_makes_no_second_job(db: Db) -> None:
    first = db.send(payload={"n": 1})
    again = db.send(payload={"n": 1}, id=first.id)
    assert (again.id, again.seq, again.created) == (first.id, first.seq, False)
    assert db.count("jobs") == 1


@pytest.mark.parametrize("old", [UUID("6f1f0a54-6f0c-4e0b-9d3c-2f6a1c5b7e11"), None], ids=["version 4", "version 7"])
def test_enqueue_with_the_id_of_a_finished_job_makes_no_second_job(db: Db, old: UUID | None) -> None:
    """A caller's own id, sent again later by mistake: every job is there once."""
    first = db.send(id=old or db.new_id())
    db.run(db.node(), "succeeded")
    db.tick(3601)
    again = db.send(id=first.id)
    assert (again.seq, again.created) == (first.seq, False)
    assert db.call("enqueue_many", jobs=[{"type": "task", "id": str(first.id)}])[0].created is False
    assert db.states(first.id) == ["succeeded"]


def test_a_job_exists_if_and_only_if_its_transaction_commits(db: Db) -> None:
    producer, node = db.session(), db.node()
    producer.begin()
    lost = producer.enqueue()
    assert db.claim(node) == []
    producer.rollback()
    producer.begin()
    producer.execute("SAVEPOINT s")
    undone = producer.enqueue()
    producer.execute("ROLLBACK TO s")
    kept = producer.enqueue()
    producer.commit()
    assert [job.id for job in db.claim(node)] == [kept]
    assert {lost, undone}.isdisjoint(row.id for row in db.rows("job"))


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_producer_may_use_any_isolation(db: Db, isolation: Any) -> None:
    producer = db.session()
    producer.begin(isolation)
    job = producer.enqueue(idempotency_key="k")
    producer.commit()
    assert db.states(job) == ["queued"]


# Many at once.


def test_enqueue_many_answers_in_the_given_order(db: Db) -> None:
    ids = [db.new_id() for _ in range(5)]
    order = [3, 0, 4, 1, 2]
    keys = [None, "b", None, "a", "c"]
    jobs = [{"type": "t", "id": str(ids[n]), "payload": {"n": n}} for n in order]
    assert [row.id for row in db.call("enqueue_many", jobs=jobs)] == [ids[n] for n in order]
    ids = [db.new_id() for _ in range(5)]
    with_keys = [{"type": "t", "id": str(ids[n]), "idempotency_key": keys[n]} for n in order]
    assert [row.id for row in db.call("enqueue_many", jobs=with_keys)] == [ids[n] for n in order]


def test_enqueue_many_has_the_same_options_and_defaults_as_enqueue(db: Db) -> None:
    full: dict[str, Any] = {
        "type": "t", "payload": {"a": 1}, "queue": "q", "priority": 3, "run_at": str(db.after(60)), "tenant": "x",
        "max_attempts": 2, "retry": {"kind": "fixed", "base": 9}, "timeout": "90 seconds", "version": 7,
        "created_by": "c", "meta": {"m": 1},
    }  # fmt: skip
    plain, given, delayed = db.call(
        "enqueue_many", jobs=[{"type": "t"}, full, {"type": "t", "delay": "1 minute", "idempotency_key": None}]
    )
    assert all(row.created and not row.payload_differs for row in (plain, given, delayed))
    for bulk, single in (
        (plain.id, db.enqueue("t")),
        (given.id, db.enqueue(**full)),
        (delayed.id, db.enqueue("t", delay="1 minute")),
    ):
        one, other = db.look(bulk)._asdict(), db.look(single)._asdict()
        differing = {name for name in one if one[name] != other[name]}
        assert differing == {"id", "seq"}


def test_enqueue_many_without_ids_keeps_the_order(db: Db) -> None:
    """All have one run_at, so the id decides: first in, first out."""
    rows = db.call("enqueue_many", jobs=[{"type": "t", "payload": {"n": n}} for n in range(300)])
    assert [row.id for row in rows] == sorted(row.id for row in rows)
    assert [row.seq for row in rows] == sorted(row.seq for row in rows)
    epoch = db.node()
    claimed = [db.claim_one(epoch).payload["n"] for _ in range(5)]
    assert claimed == [0, 1, 2, 3, 4]


def test_enqueue_many_makes_no_job_if_one_is_invalid(db: Db) -> None:
    with refused("WB003", "job of type 'b' is invalid: version"):
        db.call("enqueue_many", jobs=[{"type": "a"}, {"type": "b", "version": 0}, {"type": "c"}])
    assert db.count("jobs") == 0


def test_enqueue_many_refuses_anything_but_a_list_of_jobs(db: Db) -> None:
    wrongs: list[Any] = [{"type": "t"}, "t", 1, ["t"], [{"type": "t"}, 1], [None], [[]]]
    for wrong in wrongs:
        with refused("WB003", "jobs is invalid"):
            db.call("enqueue_many", jobs=wrong)
    with refused("WB003", "job field 'tpye' is invalid"):
        db.call("enqueue_many", jobs=[{"type": "t"}, {"tpye": "t"}])
    assert db.call("enqueue_many", jobs=[]) == []


def test_enqueue_many_refuses_a_duplicate_id(db: Db) -> None:
    job = str(db.new_id())
    with refused("WB003", f"id {job} must not be given to two jobs"):
        db.call("enqueue_many", jobs=[{"type": "t", "id": job}, {"type": "t", "id": job}])
    with refused("23505"):
        db.call("enqueue_many", jobs=[{"type": "t", "id": job}, {"type": "t", "id": job}], ids_are_new=True)


# Very many: COPY into a temporary table.


def incoming(db: Db, rows: list[tuple[Any, ...]], columns: str = "id, type, payload") -> None:
    db.execute("CREATE TEMP TABLE IF NOT EXISTS incoming OF watchbill.new_job")
    db.execute("TRUNCATE incoming")
    with db.connection.cursor() as cursor, cursor.copy(f"COPY incoming ({columns}) FROM STDIN".encode()) as copy:
        for row in rows:
            copy.write_row(row)


def test_enqueue_from_makes_jobs_of_copied_rows(db: Db) -> None:
    ids = [db.new_id() for _ in range(3)]
    incoming(db, [(job, "t", f'{{"n": {n}}}') for n, job in enumerate(ids)])
    assert db.call("enqueue_from", source="incoming") == []
    for n, job in enumerate(ids):
        db.expect(job, type="t", payload={"n": n}, queue="default", priority=0, tenant="default", max_attempts=10)
        db.expect(job, state="queued", run_at=db.now, version=1)


def test_enqueue_from_without_ids_keeps_the_order(db: Db) -> None:
    incoming(db, [("t", f'{{"n": {n}}}') for n in range(300)], "type, payload")
    db.call("enqueue_from", source="incoming")
    jobs = sorted(db.rows("jobs"), key=lambda job: (job.run_at, job.id))
    assert [job.payload["n"] for job in jobs] == list(range(300))


def test_enqueue_from_an_empty_table_makes_no_jobs(db: Db) -> None:
    incoming(db, [])
    assert db.call("enqueue_from", source="incoming") == []


def test_enqueue_from_returns_only_rows_that_made_no_job(db: Db) -> None:
    first = db.send("t", idempotency_key="k", payload={"a": 1})
    rows = [(db.new_id(), "t", '{"a": 2}', "k"), (db.new_id(), "t", "{}", "other"), (db.new_id(), "t", "{}", None)]
    incoming(db, rows, "id, type, payload, idempotency_key")
    (row,) = db.call("enqueue_from", source="incoming")
    assert tuple(row) == (first.id, first.seq, False, True)
    assert db.count("jobs") == 3


def test_enqueue_from_validates_its_rows(db: Db) -> None:
    incoming(db, [(db.new_id(), "t", "{}"), (db.new_id(), "t", "[]")])
    with refused("WB003", "payload must be a JSON object"):
        db.call("enqueue_from", source="incoming")


def test_payload_limit_applies_to_the_uncompressed_size(db: Db) -> None:
    """A table stores it compressed; the limit speaks of what a worker has to read."""
    incoming(db, [(db.new_id(), "t", '{"x": "' + "y" * 200_000 + '"}')])
    with refused("WB003", "the limit is 100000"):
        db.call("enqueue_from", source="incoming")
    assert db.call("enqueue_from", source="incoming", max_payload=None) == []


def test_enqueue_from_accepts_any_table_name(db: Db) -> None:
    db.execute('CREATE TEMP TABLE "In coming""" OF watchbill.new_job')
    db.execute('INSERT INTO "In coming""" (id, type, payload) VALUES (%s, %s, %s)', (db.new_id(), "t", "{}"))
    assert db.call("enqueue_from", source='"In coming"""') == []
    assert db.count("jobs") == 1
    db.execute('DROP TABLE "In coming"""')
