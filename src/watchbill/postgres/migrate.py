"""Brings one schema of one database to the newest migration, and reports whether a program can use the schema.

How it runs. One step at a time: BEGIN, take the schema's advisory lock, read what has been applied, run the next step,
record it, COMMIT. So a second migrator sees what the first one did, and a kill between any two statements leaves only
complete steps. The function files follow as a step of their own: applying them takes seconds, and a migration that
locks a table would hold it for so long. So between two steps old functions meet new tables, and each migration must
leave the functions of the release before working.

A migration outside a transaction cannot hold a transaction's lock itself, so a second connection holds it meanwhile.
If it is killed, the next run repeats it from its first statement; `migration_files.py` says what that requires.

The lock is `pg_advisory_xact_lock(1463962951, crc32(schema name))`: the two-integer form, whose first number spells
"WBMG", so that other users of advisory locks do not meet it. The migrator polls for this lock: a session that sleeps in
pg_advisory_xact_lock holds a snapshot, and a CREATE INDEX CONCURRENTLY of the migrator that has the lock would wait for
that snapshot. The migrator polls for a limited time and names the holder, because every role may take the lock.
The migrator waits for locks on live tables for a short time only, and repeatedly, because statements of workers wait
behind it.

Migrations only go forward; to go back, restore a backup. An older program does not change a newer schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic, sleep
from typing import TypeVar

import psycopg
from psycopg import errors, sql

from watchbill.errors import NoDatabase, SchemaError
from watchbill.postgres.connect import OWNER_SESSION, Connection
from watchbill.postgres.migration_files import Source, SqlFile, find_concurrent_index, split_statements
from watchbill.postgres.migration_plan import (
    DEFAULT_PATIENCE,
    Patience,
    Step,
    make_advisory_key,
    make_functions_step,
    plan_migration,
    plan_sql,
    read_sql,
)
from watchbill.postgres.schema_status import Status, read_status

__all__ = [
    "Patience",
    "Source",
    "Status",
    "apply_functions",
    "migrate",
    "plan_sql",
    "read_status",
    "run_locked",
    "status",
]

Report = Callable[[str], None]
T = TypeVar("T")
_LOCK_POLL_SECONDS = 0.1
_REPORT_SECONDS = 30.0  # a wait that goes on is reported again after this time


def status(url: str, schema: str, source: Source) -> Status:
    try:
        with Connection.connect(url, application_name="watchbill status") as connection:
            connection.read_only = True  # so that it works on a standby
            found = read_status(connection, schema, source)
            return replace(found, is_standby=connection.execute("SELECT pg_is_in_recovery()").fetchone() == (True,))
    except psycopg.OperationalError as error:  # the connection broke after it was opened
        raise NoDatabase(f"The database did not answer: {str(error).strip().splitlines()[0]}") from error


def open_as_owner(url: str, *, autocommit: bool = False) -> Connection:
    return Connection.connect(url, session=OWNER_SESSION, application_name="watchbill migrate", autocommit=autocommit)


def migrate(
    url: str, schema: str, source: Source, *, patience: Patience = DEFAULT_PATIENCE, report: Report = lambda _: None
) -> Status:
    """Runs every missing step and returns the status afterwards. `report` is called for each step and each wait."""
    runner = _Runner(url, schema, source, patience)
    with open_as_owner(url, autocommit=True) as connection:
        while step := _retry_while_locked(lambda: runner.run_next(connection), patience, report):
            report(step.title)
        return read_status(connection, schema, source)


def apply_functions(
    url: str, schema: str, source: Source, *, before: Callable[[Connection], None] = lambda _: None
) -> None:
    """Applies the function files again although they have not changed, because some functions depend on data, such as
    whether the schema is marked as a test schema. `before` may change that data, in the same transaction."""

    def apply(held: Connection) -> None:
        before(held)
        _execute_step(held, make_functions_step(schema, source, DEFAULT_PATIENCE))

    run_locked(url, schema, apply)


def run_locked(url: str, schema: str, work: Callable[[Connection], T], *, report: Report = lambda _: None) -> T:
    """Runs `work` in one transaction that holds the schema's lock, so that no migration runs at the same time."""
    with open_as_owner(url, autocommit=True) as connection:

        def attempt() -> T:
            with connection.transaction():
                _take_schema_lock(connection, schema)
                return work(connection)

        return _retry_while_locked(attempt, DEFAULT_PATIENCE, report)


class _AnotherMigration(Exception):
    """Another session holds the lock for migrations of this schema. The message names that session."""


def _retry_while_locked(attempt: Callable[[], T], patience: Patience, report: Report) -> T:
    """Tries again, for a limited time, while another migration runs or a table is locked."""
    tries_left, deadline, next_report = patience.tries, monotonic() + patience.migration_timeout, 0.0
    while True:
        try:
            return attempt()
        except _AnotherMigration as taken:
            if monotonic() > deadline:
                raise SchemaError(
                    f"The lock for migrations of this schema was held for too long by {taken}.",
                    hint="If it is not a migration, end it with pg_terminate_backend, and run "
                    "`watchbill db migrate` again.",
                ) from taken
            if monotonic() > next_report:
                report(f"waiting: the lock for migrations of this schema is held by {taken}")
                next_report = monotonic() + _REPORT_SECONDS
            pause = _LOCK_POLL_SECONDS
        except (errors.LockNotAvailable, errors.DeadlockDetected) as error:
            tries_left, pause = tries_left - 1, patience.pause
            if not tries_left:
                raise SchemaError(
                    f"A table stayed locked by another session through {patience.tries} tries.",
                    hint="Find old transactions in pg_stat_activity (xact_start), end them, "
                    "and run `watchbill db migrate` again.",
                ) from error
            report(f"waiting: a table is locked by another session; {tries_left} tries left")
        except psycopg.OperationalError as error:
            raise SchemaError(
                f"The connection was lost while migrating: {str(error).splitlines()[0]}",
                hint="Run `watchbill db migrate` again; it continues where it stopped.",
            ) from error
        sleep(pause)


@dataclass(frozen=True)
class _Runner:
    url: str
    schema: str
    source: Source
    patience: Patience

    def run_next(self, connection: Connection) -> Step | None:
        with connection.transaction():
            step = self._lock_and_choose_step(connection)
            if step and step.in_transaction:
                _execute_step(connection, step)
        return step if step is None or step.in_transaction else self._run_outside_transaction(connection, step)

    def _run_outside_transaction(self, connection: Connection, step: Step) -> Step:
        """Runs a step that cannot run in a transaction. Meanwhile a second connection, `holder`, holds the schema's
        lock. The commit of `holder` records the step and releases the lock."""
        with open_as_owner(self.url) as holder:
            if self._lock_and_choose_step(holder) == step:
                # The last query left a cursor open, and an index build would wait for the end of that cursor's
                # snapshot.
                _execute_text(holder, "CLOSE ALL")
                _execute_one_by_one(connection, step, self.schema)
                _execute_text(holder, step.after)
        return step

    def _lock_and_choose_step(self, connection: Connection) -> Step | None:
        _take_schema_lock(connection, self.schema)
        return next(plan_migration(read_status(connection, self.schema, self.source), self.patience), None)


def _take_schema_lock(connection: Connection, schema: str) -> None:
    key = make_advisory_key(schema)
    if connection.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", key).fetchone() == (True,):
        return
    holder = connection.execute(read_sql("lock_holder.sql").encode(), key).fetchone()
    if holder is None:
        raise _AnotherMigration("a session that has just ended")
    pid, role, application, since = holder
    begun = f", since {since:%Y-%m-%d %H:%M:%S%z}" if since else ""  # the server hides this time from some roles
    raise _AnotherMigration(f"server process {pid}, role {role}, application {application!r}{begun}")


def _execute_step(connection: Connection, step: Step) -> None:
    for file in (SqlFile(step.title, step.before), *step.files, SqlFile(step.title, step.after)):
        with _name_file_in_errors(file):
            _execute_text(connection, file.text)


def _execute_one_by_one(connection: Connection, step: Step, schema: str) -> None:
    _execute_text(connection, step.before)
    for file in step.files:
        for statement in split_statements(file.text):
            with _name_file_in_errors(file):
                _execute_outside_transaction(connection, statement, schema)
    _execute_text(connection, "RESET search_path")


def _execute_outside_transaction(connection: Connection, statement: str, schema: str) -> None:
    index = find_concurrent_index(statement)
    if index:
        _drop_invalid_index(connection, schema, index)
    _execute_text(connection, statement)
    # Checked again after the statement: another session may have built the same index at the same time, and failed.
    if index and _drop_invalid_index(connection, schema, index):
        _execute_text(connection, statement)


def _drop_invalid_index(connection: Connection, schema: str, index: str) -> bool:
    """Drops the invalid index that a killed CREATE INDEX CONCURRENTLY has left: with IF NOT EXISTS, the next try would
    take it for complete. Returns whether there was one.

    If the server has not noticed the kill and still builds the index, this waits until the build has ended.
    """
    name = index.lower()
    query = read_sql("invalid_index.sql").encode()
    while (found := connection.execute(query, (schema, name)).fetchone()) == (True,):
        sleep(_LOCK_POLL_SECONDS)
    if found:
        connection.execute(sql.SQL("DROP INDEX CONCURRENTLY {}").format(sql.Identifier(schema, name)))
    return bool(found)


def _execute_text(connection: Connection, text: str) -> None:
    """Runs a SQL text, which may have several statements and a %. It is passed as bytes, which psycopg sends
    unchanged."""
    connection.execute(text.encode())


@contextmanager
def _name_file_in_errors(file: SqlFile) -> Iterator[None]:
    try:
        yield
    except (errors.LockNotAvailable, errors.DeadlockDetected):
        raise
    except psycopg.Error as error:
        position = error.diag.statement_position
        line = f", line {file.text.count(chr(10), 0, int(position) - 1) + 1}" if position else ""
        hint = "Completed steps stay; correct the cause and run `watchbill db migrate` again."
        if isinstance(error, errors.InsufficientPrivilege):
            hint = "Run it as the schema's owner, or give a DBA the output of `watchbill db sql`."
        message = str(error.diag.message_primary or error)
        if isinstance(error, errors.DependentObjectsStillExist):  # only the detail says which
            message += f": {'; '.join((error.diag.message_detail or '').splitlines())}"
        raise SchemaError(f"{file.name}{line}: {message}", hint=hint) from error
