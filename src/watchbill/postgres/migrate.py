"""Brings one schema of one database to the newest migration, and says whether a program can use what is there.

How it runs. One step at a time: BEGIN, take the schema's advisory lock, read what has been applied, do the next step,
record it, COMMIT. So whoever comes second sees what the first one did, and a kill between any two statements leaves
whole steps only. The function files are re-applied in the transaction of the last migration, so that no statement ever
meets new tables with old functions; when that migration runs outside a transaction they follow as a step of their own.

A migration outside a transaction cannot hold a transaction's lock itself, so a second connection holds it meanwhile.
If it is killed, the next run repeats it from its first statement; `migration_files.py` says what that asks of a file.

The lock is `pg_advisory_xact_lock(1179602509, crc32(schema name))`: the two-integer form, whose first number spells
"FOLM" and keeps clear of other users of advisory locks. The wait for it is unlimited, and by asking again: a session
that sleeps in pg_advisory_xact_lock holds a snapshot, for whose end a CREATE INDEX CONCURRENTLY under that very lock
would wait. The wait for locks on live tables is short, and tried again: the workers' statements queue up behind it.

Forward only: there is no way back but a backup. An older program leaves a newer schema and its functions alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import sleep
from typing import TypeVar

import psycopg
from psycopg import errors, sql

from watchbill.errors import SchemaError
from watchbill.postgres.connect import Connection
from watchbill.postgres.migration_files import Source, SqlFile, concurrent_index
from watchbill.postgres.migration_plan import (
    DEFAULT_PATIENCE,
    Patience,
    Step,
    advisory_key,
    functions_step,
    plan,
    plan_sql,
    read_sql,
)
from watchbill.postgres.schema_status import Status, read_status
from watchbill.postgres.statements import split

__all__ = [
    "Patience",
    "Source",
    "Status",
    "apply_functions",
    "migrate",
    "plan_sql",
    "read_status",
    "status",
    "while_nobody_migrates",
]

Report = Callable[[str], None]
T = TypeVar("T")
_PAUSE_BETWEEN_MIGRATIONS = 0.1


def _silently(line: str) -> None:
    pass


def status(url: str, schema: str, source: Source) -> Status:
    with Connection.connect(url, application_name="watchbill status") as connection:
        return read_status(connection, schema, source)


def migrate(
    url: str,
    schema: str,
    source: Source,
    *,
    patience: Patience = DEFAULT_PATIENCE,
    report: Report = _silently,
) -> Status:
    """Runs every step that is missing; returns what is there afterwards. `report` hears of each step and each wait."""
    runner = _Runner(url, schema, source, patience)
    with Connection.connect(url, application_name="watchbill migrate", autocommit=True) as connection:
        while step := _patiently(lambda: runner.run_next(connection), patience, report):
            report(step.title)
        return read_status(connection, schema, source)


def apply_functions(url: str, schema: str, source: Source) -> None:
    """Re-applies the function files though nothing changed in them, for what depends on data (a schema marked test)."""
    while_nobody_migrates(url, schema, lambda held: _execute(held, functions_step(schema, source, DEFAULT_PATIENCE)))


def while_nobody_migrates(url: str, schema: str, work: Callable[[Connection], T], *, report: Report = _silently) -> T:
    """Does some work in one transaction that holds the schema's lock."""
    with Connection.connect(url, application_name="watchbill migrate", autocommit=True) as connection:

        def attempt() -> T:
            with connection.transaction():
                _lock(connection, schema)
                return work(connection)

        return _patiently(attempt, DEFAULT_PATIENCE, report)


class _AnotherMigration(Exception):
    """The schema's lock is taken."""


def _patiently(attempt: Callable[[], T], patience: Patience, report: Report) -> T:
    """Tries again while another migration runs, and some times while a table is locked."""
    tries_left, told = patience.tries, False
    while True:
        try:
            return attempt()
        except _AnotherMigration:
            if not told:
                report("waiting: another migration of this schema is running")
            told, pause = True, _PAUSE_BETWEEN_MIGRATIONS
        except (errors.LockNotAvailable, errors.DeadlockDetected) as error:
            tries_left, pause = tries_left - 1, patience.pause
            if not tries_left:
                raise _gave_up(patience) from error
            report(f"waiting: a table is locked by another session; {tries_left} tries left")
        except psycopg.OperationalError as error:
            raise _lost_connection(error) from error
        sleep(pause)


@dataclass(frozen=True)
class _Runner:
    url: str
    schema: str
    source: Source
    patience: Patience

    def run_next(self, connection: Connection) -> Step | None:
        with connection.transaction():
            step = self._lock_and_choose(connection)
            if step and step.in_transaction:
                _execute(connection, step)
        return step if step is None or step.in_transaction else self._run_outside(connection, step)

    def _run_outside(self, connection: Connection, step: Step) -> Step:
        """`holder` keeps the lock, and its commit both records the step and lets the next migrator in."""
        with Connection.connect(self.url, application_name="watchbill migrate") as holder:
            if self._lock_and_choose(holder) == step:
                # Its last query left a portal open, whose snapshot an index build would wait for.
                _run(holder, "CLOSE ALL")
                _execute_singly(connection, step, self.schema)
                _run(holder, step.after)
        return step

    def _lock_and_choose(self, connection: Connection) -> Step | None:
        _lock(connection, self.schema)
        steps = plan(read_status(connection, self.schema, self.source), self.patience)
        return steps[0] if steps else None


def _lock(connection: Connection, schema: str) -> None:
    taken = connection.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", advisory_key(schema)).fetchone()
    if taken != (True,):
        raise _AnotherMigration


def _execute(connection: Connection, step: Step) -> None:
    for file in (SqlFile(step.title, step.before), *step.files, SqlFile(step.title, step.after)):
        with _named(file):
            _run(connection, file.text)


def _execute_singly(connection: Connection, step: Step, schema: str) -> None:
    _run(connection, step.before)
    for file in step.files:
        for statement in split(file.text):
            with _named(file):
                _run_alone(connection, statement, schema)
    _run(connection, "RESET search_path")


def _run_alone(connection: Connection, statement: str, schema: str) -> None:
    index = concurrent_index(statement)
    if index:
        _drop_invalid_index(connection, schema, index)
    _run(connection, statement)
    # Another's build of the same index may have come first, and failed.
    if index and _drop_invalid_index(connection, schema, index):
        _run(connection, statement)


def _drop_invalid_index(connection: Connection, schema: str, index: str) -> bool:
    """What a killed CREATE INDEX CONCURRENTLY left would satisfy IF NOT EXISTS for ever.

    The server may not have noticed the kill and build on; that is waited for, since nobody can drop an index meanwhile.
    """
    name = index.lower()
    query = read_sql("invalid_index.sql").encode()
    while (found := connection.execute(query, (schema, name)).fetchone()) == (True,):
        sleep(_PAUSE_BETWEEN_MIGRATIONS)
    if found:
        connection.execute(sql.SQL("DROP INDEX CONCURRENTLY {}").format(sql.Identifier(schema, name)))
    return bool(found)


def _run(connection: Connection, text: str) -> None:
    """As bytes, without parameters: psycopg then sends the text as it is, several statements and % included."""
    connection.execute(text.encode())


@contextmanager
def _named(file: SqlFile) -> Iterator[None]:
    """An error in a file says which file and which line."""
    try:
        yield
    except (errors.LockNotAvailable, errors.DeadlockDetected):
        raise
    except psycopg.Error as error:
        raise _in_file(error, file) from error


def _in_file(error: psycopg.Error, file: SqlFile) -> SchemaError:
    position = error.diag.statement_position
    line = f", line {file.text.count(chr(10), 0, int(position) - 1) + 1}" if position else ""
    hint = "What was recorded stays; correct the cause and run `watchbill db migrate` again."
    if isinstance(error, errors.InsufficientPrivilege):
        hint = "Run it as the schema's owner, or give a DBA the output of `watchbill db sql`."
    return SchemaError(f"{file.name}{line}: {error.diag.message_primary or error}", hint=hint)


def _lost_connection(error: psycopg.OperationalError) -> SchemaError:
    return SchemaError(
        f"The connection was lost while migrating: {str(error).splitlines()[0]}",
        hint="Run `watchbill db migrate` again; it goes on where it stopped.",
    )


def _gave_up(patience: Patience) -> SchemaError:
    return SchemaError(
        f"A table stayed locked by another session through {patience.tries} tries.",
        hint="Look for old transactions in pg_stat_activity (xact_start), end them, and run `watchbill db migrate` again.",
    )
