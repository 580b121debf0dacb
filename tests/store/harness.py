"""Drives the SQL functions as several sessions would, on a given clock.

`Db` is a database with the schema in it. Its clock is `db.now`, years away from the server's: every function that takes
`now` gets it, so whatever reads the server's clock instead shows at once. `db.session()` is one more connection; a call
that is to wait for another session is started with `session.start(...)` and watched with `pending.blocked()`.
"""

from __future__ import annotations

import itertools
from collections import namedtuple
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from keyword import iskeyword
from typing import Any, LiteralString, NamedTuple, Self, TypeAlias
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import RowMaker, namedtuple_row
from psycopg.types.json import Jsonb

from tests.waiting import until
from watchbill.verify.invariants import Part, read_invariants

T0 = datetime(2031, 3, 14, 9, 26, 53, tzinfo=UTC)
LEASE = timedelta(seconds=30)
CENTURY = 3_155_760_000.0  # in seconds
NOBODY = UUID("00000000-0000-7000-8000-000000000000")

Statement: TypeAlias = LiteralString | bytes | sql.Composed

_counter = itertools.count(1)


def new_id(at: datetime) -> UUID:
    """A UUIDv7 of that time; ids sort in the order they are made."""
    milliseconds = int(at.timestamp() * 1000)
    return UUID(int=(milliseconds << 80) | (7 << 76) | (2 << 62) | next(_counter))


class Argument(NamedTuple):
    name: str
    type: LiteralString


class End(NamedTuple):
    """How a run ended, for `settle`. `job` is a row of `claim`."""

    job: Any
    outcome: str = "succeeded"
    age: float | None = 1.0
    delay: timedelta | None = None
    result: Any = None
    error: Any = None


class Pending:
    """A call under way in a thread of its own."""

    def __init__(self, session: Session, future: Future[list[Any]]) -> None:
        self._session, self._future = session, future

    def blocked(self) -> Self:
        """Returns when the call waits for somebody's lock; fails when it ends instead."""
        self.stopped()
        assert not self._future.done(), f"it did not wait: {self._future.exception() or self._future.result()}"
        return self

    def stopped(self) -> Self:
        """Returns when the call waits for somebody's lock, or has ended."""
        pid = self._session.connection.info.backend_pid
        until(lambda: self._future.done() or self._session.db.waits_for_a_lock(pid))
        return self

    def rows(self) -> list[Any]:
        return self._future.result(timeout=60)

    def row(self) -> Any:
        (row,) = self.rows()
        return row

    def value(self) -> Any:
        return self.row()[0]


class Session:
    """One connection. Outside `begin` and `commit` each call is a transaction of its own."""

    def __init__(self, db: Db, connection: psycopg.Connection[Any]) -> None:
        self.db, self.connection, self.given_url = db, connection, False
        self._thread: ThreadPoolExecutor | None = None
        self._pending: Future[list[Any]] | None = None

    def execute(self, statement: Statement, params: Sequence[Any] | dict[str, Any] = ()) -> list[Any]:
        cursor = self.connection.execute(statement, params or None, binary=True)  # whatever the DateStyle
        return cursor.fetchall() if cursor.description else []

    def configure(self, **settings: str) -> None:
        for name, value in settings.items():
            self.execute("SELECT set_config(%s, %s, false)", (name, value))

    def begin(self, isolation: LiteralString = "READ COMMITTED") -> None:
        self.execute(sql.SQL("BEGIN ISOLATION LEVEL {}").format(sql.SQL(isolation)))

    def commit(self) -> None:
        self.execute("COMMIT")

    def rollback(self) -> None:
        self.execute("ROLLBACK")

    def call(self, function: str, **arguments: Any) -> list[Any]:
        """The rows of `SELECT * FROM watchbill.<function>(name => value, ...)`; the given clock is added if it fits."""
        statement, values = self.db.statement(function, arguments)
        return self.execute(statement, values)

    def row(self, function: str, **arguments: Any) -> Any:
        (row,) = self.call(function, **arguments)
        return row

    def value(self, function: str, **arguments: Any) -> Any:
        return self.row(function, **arguments)[0]

    def start(self, function: str, **arguments: Any) -> Pending:
        self._thread = self._thread or ThreadPoolExecutor(1)
        self._pending = self._thread.submit(partial(self.call, function, **arguments))
        return Pending(self, self._pending)

    def is_idle(self) -> bool:
        under_way = self._pending is not None and not self._pending.done()
        return not under_way and self.connection.info.transaction_status == TransactionStatus.IDLE

    def forget(self) -> None:
        """Whatever a test has left in the session that the next one would meet; its compiled functions stay."""
        self.connection.execute("RESET ALL; DISCARD TEMP; UNLISTEN *; SELECT pg_advisory_unlock_all()")

    def close(self) -> None:
        if self._thread is not None:
            self.connection.cancel_safe()
            self._thread.shutdown()
        self.connection.close()

    # The verbs that nearly every test uses, with the arguments that matter there.

    def node(self, name: str | None = None, **more: Any) -> int:
        epoch: int = self.value("register", name=name or f"node-{next(_counter)}", **({"lease": LEASE} | more))
        return epoch

    def send(self, type: str = "task", **more: Any) -> Any:
        """(id, seq, created, payload_differs)"""
        made = {} if "id" in more else {"id": self.db.new_id(), "id_is_new": True}
        return self.row("enqueue", type=type, **made, **more)

    def enqueue(self, type: str = "task", **more: Any) -> UUID:
        job: UUID = self.send(type, **more).id
        return job

    def claim(self, epoch: int, max: int = 100, **more: Any) -> list[Any]:
        return self.call("claim", epoch=epoch, max=max, **more)

    def claim_one(self, epoch: int, **more: Any) -> Any:
        (row,) = self.claim(epoch, 1, **more)
        return row

    def settle(self, epoch: int, *ends: End, **more: Any) -> dict[UUID, str | None]:
        """What `settle` answers: the state of all that did not simply succeed, None for what it refused."""
        return {row.id: row.state for row in self.call("settle", **settlement(epoch, *ends), **more)}

    def run(self, epoch: int, outcome: str, **more: Any) -> str | None:
        """Claims the next job and ends it so; the state that led to."""
        job = self.claim_one(epoch)
        return self.settle(epoch, End(job, outcome, **more)).get(job.id, "succeeded")


class Db(Session):
    """A database with the schema in it, and the session that most of a test needs."""

    def __init__(self, url: str, schema: str = "watchbill") -> None:
        self.url, self.schema, self.now = url, schema, T0
        self._sessions: list[Session] = []
        self._rested: list[Session] = []
        self._signatures: dict[str, tuple[Argument, ...]] = {}
        super().__init__(self, self._connect())

    def _connect(self, url: str | None = None) -> psycopg.Connection[Any]:
        return psycopg.connect(url or self.url, autocommit=True, row_factory=_row_factory)

    def session(self, url: str | None = None) -> Session:
        """One more connection, as another role or to be left in any state when a URL is given."""
        session = self._rested.pop() if self._rested and url is None else Session(self, self._connect(url))
        session.given_url = url is not None
        self._sessions.append(session)
        return session

    def rest(self) -> None:
        """After a test: a session keeps its compiled functions for the next one, unless somebody left it unfit."""
        for session in self._sessions:
            if session.is_idle() and not session.given_url:
                try:
                    session.forget()
                except psycopg.OperationalError:  # another session of the test has ended it
                    session.close()
                else:
                    self._rested.append(session)
            else:
                session.close()
        self._sessions.clear()

    def close(self) -> None:
        for session in self._sessions + self._rested:
            session.close()
        super().close()

    def new_id(self) -> UUID:
        return new_id(self.now)

    def tick(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def after(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)

    # How a function is called.

    def statement(self, function: str, arguments: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
        types = dict(self.signature(function))
        given = {name.rstrip("_"): value for name, value in arguments.items()}
        if "now" in types:
            given.setdefault("now", self.now)
        values = {name: _adapted(value, types[name]) for name, value in given.items()}
        return _write_call(self.schema, function, tuple((name, types[name]) for name in given)), values

    def signature(self, function: str) -> tuple[Argument, ...]:
        if not self._signatures:
            for row in self.execute(_SIGNATURES, {"schema": self.schema}):
                known = self._signatures.get(row.proname, ())
                self._signatures[row.proname] = (*known, Argument(row.name, row.type))
        return self._signatures.get(function, ())

    def waits_for_a_lock(self, pid: int) -> bool:
        (row,) = self.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0 AS yes", (pid,))
        return bool(row.yes)

    # Looking.

    def look(self, id: UUID) -> Any:
        """The job's one row in the view `job`."""
        (row,) = self.execute(self._in_schema("SELECT * FROM {schema}.job WHERE id = %s"), (id,))
        return row

    def expect(self, id: UUID, **columns: Any) -> None:
        """The job has these values in the view `job`."""
        found = self.look(id)
        assert {name: getattr(found, name) for name in columns} == columns

    def states(self, *ids: UUID) -> list[str]:
        return [self.look(job).state for job in ids]

    def attempts(self, id: UUID) -> list[Any]:
        return self.execute(self._in_schema("SELECT * FROM {schema}.attempt WHERE job_id = %s ORDER BY run"), (id,))

    def outcomes(self, id: UUID) -> list[str]:
        return [row.outcome for row in self.attempts(id)]

    def rows(self, table: LiteralString, order: LiteralString = "1") -> list[Any]:
        text = sql.SQL("SELECT * FROM {}.{} ORDER BY {}")
        return self.execute(text.format(sql.Identifier(self.schema), sql.SQL(table), sql.SQL(order)))

    def count(self, table: LiteralString) -> int:
        text = sql.SQL("SELECT count(*) FROM {}.{}")
        (row,) = self.execute(text.format(sql.Identifier(self.schema), sql.SQL(table)))
        return int(row.count)

    def change(self, statement: LiteralString, *params: Any) -> None:
        """Writes behind the functions' back, for states that no verb leads to yet."""
        self.execute(self._in_schema(statement), params)

    def set_wait(self, id: UUID, wait: str | None) -> None:
        """Lets a job wait for this reason, or makes it ready, behind the functions' back."""
        self.change(
            """UPDATE {schema}.jobs SET wait = %s::text, wait_key = CASE %s::text
                 WHEN 'unsupported' THEN {schema}._unsupported_key(queue, type, version)
                 WHEN 'paused' THEN {schema}._paused_key(queue, type)
                 WHEN 'parked' THEN 'key:somewhere' END
               WHERE id = %s""",
            wait, wait, id,
        )  # fmt: skip

    def _in_schema(self, text: LiteralString) -> bytes:
        return _write_for_schema(self.schema, text)

    # Several steps that come together in many tests.

    def lose(self, *epochs: int) -> dict[UUID, str]:
        """Lets these nodes' leases run out and reclaims; the state of what they held."""
        self.now += LEASE + timedelta(seconds=1)
        return self.reclaim(*epochs)

    def reclaim(self, *epochs: int) -> dict[UUID, str]:
        beats = {row.epoch: row.n for row in self.rows("beats")}
        rows = self.call("reclaim", epochs=list(epochs), beats_seen=[beats.get(epoch, 0) for epoch in epochs])
        return {row.id: row.state for row in rows}

    def make_ready(self) -> None:
        """Lets the longest wait of a job pass."""
        (row,) = self.execute(self._in_schema("SELECT max(run_at) AS last FROM {schema}.jobs WHERE wait = 'delayed'"))
        self.now = max(self.now, row.last or self.now)
        self.value("promote")

    def assert_sound(self, *, is_planted: bool = False) -> None:
        """What holds between any two transactions. `is_planted`: the test may have written jobs behind the functions'
        back, which wait for nothing that is there."""
        assert self.execute(_write_broken_rules(self.schema, is_planted)) == []

    def wipe(self) -> None:
        self.forget()
        self.connection.execute(self._in_schema(_WIPE))


@cache
def _write_call(schema: str, function: str, arguments: tuple[tuple[str, LiteralString], ...]) -> bytes:
    named = sql.SQL(", ").join(
        sql.SQL("{} => {}::{}").format(sql.Identifier(name), sql.Placeholder(name), sql.SQL(type_name))
        for name, type_name in arguments
    )
    return sql.SQL("SELECT * FROM {}({})").format(sql.Identifier(schema, function), named).as_bytes(None)


@cache
def _write_for_schema(schema: str, text: LiteralString) -> bytes:
    return sql.SQL(text).format(schema=sql.Identifier(schema)).as_bytes(None)


def _row_factory(cursor: psycopg.Cursor[Any]) -> RowMaker[Any]:
    """Named tuples. The column `class` of jobs is `class_`, because the name is a keyword of Python."""
    if cursor.description is None:
        return namedtuple_row(cursor)
    return _make_row_maker(tuple(column.name for column in cursor.description))


@cache
def _make_row_maker(columns: tuple[str, ...]) -> RowMaker[Any]:
    """Kept, because to make a class takes longer than most statements."""
    names = [f"{name}_" if iskeyword(name) else name for name in columns]
    row: Any = namedtuple("Row", names, rename=True)  # type: ignore[misc]  # noqa: PYI024 - known only now
    make: RowMaker[Any] = row._make
    return make


def settlement(epoch: int, *ends: End) -> dict[str, Any]:
    """The arguments of `settle`, for a session that is to wait."""
    return {
        "epoch": epoch,
        "ids": [end.job.id for end in ends],
        "fences": [end.job.fence for end in ends],
        "outcomes": [end.outcome for end in ends],
        "ages": [end.age for end in ends],
        "delays": [end.delay for end in ends],
        "results": [end.result for end in ends],
        "errors": [end.error for end in ends],
    }


@contextmanager
def refused(sqlstate: str, message: str | None = None) -> Iterator[None]:
    """The server says no, in these words (a regular expression)."""
    with pytest.raises(psycopg.Error, match=message) as caught:
        yield
    assert caught.value.sqlstate == sqlstate, caught.value


def _adapted(value: Any, type: str) -> Any:
    if value is None:
        return None
    if type == "jsonb":
        return Jsonb(value)
    if type == "jsonb[]":
        return [None if item is None else Jsonb(item) for item in value]
    return value


_SIGNATURES: LiteralString = """
    SELECT p.proname, a.name, format_type(a.type, NULL) AS type
    FROM pg_proc p CROSS JOIN LATERAL
      unnest(p.proargnames[:p.pronargs], p.proargtypes::oid[]) WITH ORDINALITY a(name, type, place)
    WHERE p.pronamespace = quote_ident(%(schema)s)::regnamespace AND p.proargmodes IS NULL
    UNION ALL
    SELECT p.proname, a.name, format_type(a.type, NULL)
    FROM pg_proc p CROSS JOIN LATERAL unnest(p.proargnames, p.proargmodes, p.proallargtypes) a(name, mode, type)
    WHERE p.pronamespace = quote_ident(%(schema)s)::regnamespace AND a.mode IN ('i', 'b')
"""


_PLANTED = (
    "blocked_job_has_dependencies", "hold_has_job", "hold_has_state", "running_job_holds_its_keys",
    "suspended_job_has_steps",
)  # fmt: skip


@cache
def _write_broken_rules(schema: str, is_planted: bool) -> bytes:
    """What `watchbill verify` finds in any snapshot, in one statement: it follows every test."""
    texts = [
        sql.SQL("(SELECT {} AS rule, to_json(broken)::text AS found FROM ({}) broken LIMIT 3)").format(
            each.says, each.write(schema, Part())
        )
        for each in read_invariants()
        if each.kind == "S" and not (is_planted and each.name in _PLANTED)
    ]
    return sql.SQL(" UNION ALL ").join(texts).as_bytes(None)


# Deleted rows keep their pages, and of a table of 2,000 pages (16 MB) functions read a sample only: after a test with
# many jobs the next one would see estimates.
_WIPE: LiteralString = """
    DO $do$ BEGIN IF pg_relation_size('{schema}.jobs') > 4000000 THEN TRUNCATE {schema}.jobs; END IF; END $do$;
    DELETE FROM {schema}.jobs; DELETE FROM {schema}.finished_jobs; DELETE FROM {schema}.attempts;
    DELETE FROM {schema}.claims; DELETE FROM {schema}.runs; DELETE FROM {schema}.cancels;
    DELETE FROM {schema}.nodes; DELETE FROM {schema}.beats; DELETE FROM {schema}.node_types;
    DELETE FROM {schema}.unsupported_types; DELETE FROM {schema}.handled_types;
    DELETE FROM {schema}.pauses; DELETE FROM {schema}.idempotency;
    DELETE FROM {schema}.dependencies; DELETE FROM {schema}.dependency_checks;
    DELETE FROM {schema}.limits; DELETE FROM {schema}.limit_states; DELETE FROM {schema}.holds;
    DELETE FROM {schema}.tenant_scans; DELETE FROM {schema}.lane_cursors; DELETE FROM {schema}.freed_keys;
    DELETE FROM {schema}.connector_endpoints;
    DELETE FROM {schema}.queues; DELETE FROM {schema}.shares; DELETE FROM {schema}.label_sets;
    DELETE FROM {schema}.flow_declarations; DELETE FROM {schema}.tokens;
    DELETE FROM {schema}.audit; DELETE FROM {schema}.policies WHERE id > 1;
    DELETE FROM {schema}.schedules; DELETE FROM {schema}.slots; DELETE FROM {schema}.pruned_slot_counts;
    DELETE FROM {schema}.locks; DELETE FROM {schema}.candidates;
    DELETE FROM {schema}.queues; DELETE FROM {schema}.tokens; DELETE FROM {schema}.token_groups;
    DELETE FROM {schema}.members; DELETE FROM {schema}.pins; DELETE FROM {schema}.item_claims;
    DELETE FROM {schema}.rebalances; DELETE FROM {schema}.limits; DELETE FROM {schema}.limit_states;
    DELETE FROM {schema}.holds; DELETE FROM {schema}.shares; DELETE FROM {schema}.label_sets;
    DELETE FROM {schema}.uniques; DELETE FROM {schema}.erasures; DELETE FROM {schema}.steps;
    DELETE FROM {schema}.signals; DELETE FROM {schema}.step_waits;
    DELETE FROM {schema}.node_counts; DELETE FROM {schema}.rollups; DELETE FROM {schema}.samples;
    DELETE FROM {schema}.failure_groups; DELETE FROM {schema}.bulk_operations;
    DELETE FROM {schema}.bulk_items;
    DELETE FROM {schema}.job_logs; DELETE FROM {schema}.watches;
    DELETE FROM {schema}.api_keys; DELETE FROM {schema}.saved_filters; DELETE FROM {schema}.chart_marks;
    DELETE FROM {schema}.alert_rules; DELETE FROM {schema}.alerts; DELETE FROM {schema}.alert_events;
    DELETE FROM {schema}.alert_routes; DELETE FROM {schema}.alert_deliveries; DELETE FROM {schema}.silences;
    DELETE FROM {schema}.chore_marks WHERE chore LIKE 'prune %';
    UPDATE {schema}.chore_marks SET due_at = '2000-01-01Z', last_at = NULL, until = NULL, unsettled_before = NULL
"""
