"""A schema that a test run has made: says so to people, and turns it into a real one.

`installation.test` marks it. In such a schema tests move the clock and delete everything, so it is not for real jobs.
"""

from __future__ import annotations

from psycopg import sql

from watchbill.errors import WatchbillError
from watchbill.postgres.connect import Connection
from watchbill.postgres.migrate import Source, apply_functions, status
from watchbill.store.queries import queries

# An advisory lock ("WBTS" as four bytes). A test run holds it with 0 as the second key while it uses a database.
TEST_RUN_LOCK = 1463964755


class TestsRun(WatchbillError):
    """A test run uses the schema now."""

    __test__ = False  # tells pytest that this class has no tests


def is_made_by_tests(url: str, schema: str) -> bool:
    with Connection.connect(url, application_name="watchbill status", autocommit=True) as connection:
        return connection.execute(queries(schema)["is_test"].encode()).fetchone() == (True,)


def describe_test_schema(schema: str) -> str:
    return (
        f"Schema {schema} was made by tests: they move its clock and delete what is in it. To use it for real jobs, "
        "run `watchbill db keep`."
    )


def keep_schema(url: str, schema: str) -> bool:
    """Turns a schema that a test run has made into a real one, and resets its clock. Returns False if it is real
    already."""
    source = Source.of_package("watchbill.store")
    status(url, schema, source).ensure_usable()
    if not is_made_by_tests(url, schema):
        return False
    # The functions are applied again, because those of a test schema read the clock that tests move.
    apply_functions(url, schema, source, before=lambda connection: _remove_mark(connection, schema))
    return True


def _remove_mark(connection: Connection, schema: str) -> None:
    if connection.execute("SELECT pg_try_advisory_xact_lock(%s, 0)", (TEST_RUN_LOCK,)).fetchone() != (True,):
        raise TestsRun(
            f"A test run uses schema {schema!r} of database {connection.info.dbname!r} now.",
            hint="Wait until it has ended, and run `watchbill db keep` again.",
        )
    connection.execute(queries(schema)["remove_test_mark"].encode())
    connection.execute(sql.SQL("COMMENT ON SCHEMA {} IS NULL").format(sql.Identifier(schema)))
