"""What a role may do that does not own the schema: nothing that was not granted, and nothing with another's rights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import errors, sql

from tests.servers import Server
from watchbill.store.install import install

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
TRAP = """
    CREATE FUNCTION pg_temp.betray(int) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
      RAISE NOTICE 'runs as %', current_user;
      RETURN true;
    END $$;
    CREATE DOMAIN pg_temp.trap AS int CHECK (pg_temp.betray(VALUE));
"""
# The first is checked when the array's text is read, the second when the constant is folded, the third when it runs.
COMMANDS = (
    "SELECT '{1}'::pg_temp.trap[]",
    "SELECT 1::pg_temp.trap",
    "SELECT pg_temp.betray(1)",
    "SELECT 1 WHERE ROW('{1}'::pg_temp.trap[]) IS NOT NULL LIMIT 1::pg_temp.trap",
    "DO $$ BEGIN PERFORM pg_temp.betray(1); END $$",
    "CREATE TEMP TABLE t (n pg_temp.trap DEFAULT 1)",
)
PUBLIC_FUNCTIONS = """
    SELECT p.oid::regprocedure::text
    FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) granted
    WHERE p.pronamespace = ANY (%s::text[]::regnamespace[]) AND granted.grantee = 0
"""


@pytest.fixture
def owner(schema_database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def stranger(server: Server, owner: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """The session of a role with the right to use the schema, and no other."""
    role = sql.Identifier(f"stranger_{owner.info.dbname}")
    owner.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
    try:
        owner.execute(sql.SQL("GRANT USAGE ON SCHEMA watchbill, jcron TO {}").format(role))
        with psycopg.connect(server.url(owner.info.dbname, f"stranger_{owner.info.dbname}"), autocommit=True) as other:
            yield other
    finally:
        owner.execute(sql.SQL("DROP OWNED BY {}").format(role))
        owner.execute(sql.SQL("DROP ROLE {}").format(role))


def grant(owner: psycopg.Connection, stranger: psycopg.Connection, *rights: str) -> None:
    role = sql.Identifier(stranger.info.user)
    for right in rights:
        owner.execute(sql.SQL("GRANT {} TO {}").format(sql.SQL(right), role))


def test_a_role_without_grants_can_call_no_function(stranger: psycopg.Connection) -> None:
    check = "watchbill._check_sql_command('', '')"
    for call in ("watchbill.enqueue('t')", "watchbill.guard(gen_random_uuid(), 1)", check):
        with pytest.raises(errors.InsufficientPrivilege):
            stranger.execute(f"SELECT {call}".encode())
    with pytest.raises(errors.InsufficientPrivilege):
        stranger.execute("SELECT jcron.is_valid_pattern('@daily')")


def test_upgrade_revokes_what_a_new_function_gives_to_everybody(owner: psycopg.Connection) -> None:
    both = ["watchbill", "jcron"]
    assert owner.execute(PUBLIC_FUNCTIONS, (both,)).fetchall() == []
    owner.execute("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA watchbill, jcron TO PUBLIC")
    owner.execute("UPDATE watchbill.schema_functions SET checksum = 'of an older release'")
    owner.execute(
        "COMMENT ON SCHEMA jcron IS "
        "'Watchbill''s cron functions, written by the installation in schema watchbill; version 0'"
    )
    install(owner.info.dsn)
    assert owner.execute(PUBLIC_FUNCTIONS, (both,)).fetchall() == []


def test_upgrade_keeps_what_was_granted_to_a_role(owner: psycopg.Connection, stranger: psycopg.Connection) -> None:
    grant(owner, stranger, "EXECUTE ON FUNCTION watchbill._lock_class_wakeup")
    owner.execute("UPDATE watchbill.schema_functions SET checksum = 'of an older release'")
    install(owner.info.dsn)
    stranger.execute("SELECT watchbill._lock_class_wakeup()")


def grant_as_documented(owner: psycopg.Connection, stranger: psycopg.Connection, page: str, name: str) -> None:
    (block,) = re.findall(r"```psql\n(GRANT.*?)```", (REFERENCE / page).read_text(), re.DOTALL)
    owner.execute(block.replace(f"TO {name};", f'TO "{stranger.info.user}";').encode())


def test_role_with_the_documented_grants_uses_the_cron_functions(
    owner: psycopg.Connection, stranger: psycopg.Connection
) -> None:
    grant_as_documented(owner, stranger, "jcron.md", "someone")
    (row,) = stranger.execute("SELECT jcron.next_time('@daily', '1980-01-01', 'Europe/Paris') > '1980-01-01'")
    assert row == (True,)


@pytest.mark.parametrize("command", COMMANDS)
def test_checking_a_command_executes_nothing_of_it(
    owner: psycopg.Connection, stranger: psycopg.Connection, command: str
) -> None:
    grant(owner, stranger, "EXECUTE ON ALL FUNCTIONS IN SCHEMA watchbill")
    heard: list[str | None] = []
    stranger.add_notice_handler(lambda notice: heard.append(notice.message_primary))
    stranger.execute(TRAP)
    stranger.execute("SELECT watchbill._check_sql_command('s', %s)", (command,))
    assert heard == []


def test_a_command_is_accepted_from_a_role_without_temporary_objects(
    owner: psycopg.Connection, stranger: psycopg.Connection
) -> None:
    grant(owner, stranger, "EXECUTE ON ALL FUNCTIONS IN SCHEMA watchbill")
    owner.execute(sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC").format(sql.Identifier(owner.info.dbname)))
    stranger.execute("SELECT watchbill._check_sql_command('s', 'SELECT 1')")


def test_guard_reads_only_the_table_of_the_schema(owner: psycopg.Connection, stranger: psycopg.Connection) -> None:
    """It runs with the owner's rights, so nothing that a caller makes may stand in its way."""
    grant(owner, stranger, "EXECUTE ON FUNCTION watchbill.guard")
    heard: list[str | None] = []
    stranger.add_notice_handler(lambda notice: heard.append(notice.message_primary))
    stranger.execute(TRAP)
    stranger.execute("CREATE TEMP TABLE jobs (id uuid, fence bigint)")
    stranger.execute("INSERT INTO pg_temp.jobs VALUES (gen_random_uuid(), 1)")
    stranger.execute("""
        CREATE FUNCTION pg_temp.same(uuid, uuid) RETURNS boolean LANGUAGE sql
        RETURN pg_temp.betray(1);
        CREATE OPERATOR pg_temp.= (LEFTARG = uuid, RIGHTARG = uuid, FUNCTION = pg_temp.same);
        SET search_path = pg_temp, pg_catalog, watchbill""")
    with pytest.raises(psycopg.Error, match="is no longer claimed under fence"):
        stranger.execute("SELECT watchbill.guard(id, 1) FROM pg_temp.jobs")
    assert heard == []


def test_audit_names_the_role_of_a_caller_that_claims_to_be_somebody_else(
    owner: psycopg.Connection, stranger: psycopg.Connection
) -> None:
    grant(owner, stranger, "EXECUTE ON FUNCTION watchbill.pause")
    stranger.execute("SET watchbill.actor = 'ann@example.com'")
    stranger.execute("SELECT watchbill.pause('default')")
    assert owner.execute("SELECT actor, login_role FROM watchbill.audit").fetchall() == [
        ("ann@example.com", stranger.info.user)
    ]
