"""`watchbill db install`: what it creates, what it refuses, and how a migration takes it along."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.role_logins import make_logins
from tests.servers import Server
from tests.store.cron_sql import Connection
from watchbill.errors import SchemaError, SettingsError
from watchbill.store.facades import Facade, available_facades, install_facade, uninstall_facade
from watchbill.store.install import install

OURS = """
    SELECT count(*) FROM pg_class c
    WHERE obj_description(c.oid, 'pg_class') = 'Watchbill''s facade jcron, of the installation in schema watchbill'
"""


@pytest.fixture
def db(schema_database: str) -> Iterator[Connection]:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        yield connection


def installed(db: Connection, name: str = "jcron", schema: str | None = None, prefix: str | None = None) -> list[str]:
    said: list[str] = []
    install_facade(db.info.dsn, Facade.choose("watchbill", name, schema, prefix), said.append)
    return said


def migrated(db: Connection) -> list[str]:
    said: list[str] = []
    install(db.info.dsn, report=said.append)
    return said


def ask(db: Connection, question: str) -> object:
    [(answer,)] = db.execute(question.encode())
    return answer


@pytest.mark.parametrize("name", available_facades())
def test_every_facade_installs_twice_and_leaves_nothing_when_it_is_removed(db: Connection, name: str) -> None:
    facade = Facade.choose("watchbill", name)
    everything = (
        "SELECT (SELECT string_agg(oid::regclass::text, ' ' ORDER BY oid) FROM pg_class "
        "WHERE relnamespace <> 'pg_toast'::regnamespace) || (SELECT count(*) FROM pg_proc)"
    )
    before = ask(db, everything)

    assert installed(db, name) == [f"facade {name} in schema {facade.schema}"]
    assert installed(db, name) == [f"facade {name} in schema {facade.schema}: already installed"]
    assert migrated(db) == []
    assert ask(db, everything) != before

    uninstall_facade(db.info.dsn, "watchbill", name)
    assert ask(db, everything) == before
    assert ask(db, "SELECT count(*) FROM watchbill.facades") == 0


@pytest.mark.parametrize("name", available_facades())
def test_functions_of_a_facade_pin_their_search_path_and_are_not_public(db: Connection, name: str) -> None:
    installed(db, name, "other")
    wrong = db.execute(
        """
        SELECT p.proname, p.proconfig, p.proacl
        FROM pg_proc p
        WHERE p.pronamespace = 'other'::regnamespace
          AND (
            p.prosqlbody IS NULL
            AND NOT coalesce(p.proconfig, '{}') @> '{"search_path=watchbill, pg_temp"}'
            OR EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a WHERE a.grantee = 0))
        """
    ).fetchall()
    views = db.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'other'::regnamespace AND relkind = 'v' "
        "AND NOT coalesce(reloptions, '{}') @> '{security_invoker=true}'"
    ).fetchall()

    assert (wrong, views) == ([], [])


@pytest.mark.parametrize("name", available_facades())
def test_no_view_of_a_facade_writes_the_tables_of_the_engine_by_itself(db: Connection, name: str) -> None:
    """PostgreSQL does so for a simple view, unless triggers take its INSERT, UPDATE and DELETE."""
    installed(db, name, "other")
    insert_update_delete = 4 | 8 | 16
    open_views = db.execute(
        """
        SELECT c.relname
        FROM pg_class c
        WHERE c.relnamespace = 'other'::regnamespace
          AND c.relkind = 'v'
          AND pg_relation_is_updatable(c.oid, false) <> 0
          AND coalesce((SELECT bit_or(t.tgtype) FROM pg_trigger t WHERE t.tgrelid = c.oid), 0) & %s <> %s
        """,
        (insert_update_delete, insert_update_delete),
    ).fetchall()
    assert open_views == []


def test_a_facade_can_have_a_schema_and_a_prefix(db: Connection) -> None:
    installed(db, "jcron", "cron jobs", "old_")

    assert ask(db, """SELECT "cron jobs".old_add_job('a', '0 0 9 * * *')""") == 1
    assert ask(db, """SELECT name FROM "cron jobs".old_scheduled_jobs""") == "a"
    assert ask(db, "SELECT to_regclass('scheduled_jobs') IS NULL") is True
    uninstall_facade(db.info.dsn, "watchbill", "jcron")
    assert ask(db, "SELECT to_regnamespace('\"cron jobs\"') IS NULL") is True


def test_a_schema_that_existed_before_stays(db: Connection) -> None:
    db.execute("CREATE SCHEMA mine")
    installed(db, "jcron", "mine")
    uninstall_facade(db.info.dsn, "watchbill", "jcron")

    assert ask(db, "SELECT to_regnamespace('mine') IS NULL") is False


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE scheduled_jobs (id int)",
        "CREATE VIEW job_queue AS SELECT 1",
        "CREATE SEQUENCE job_queue",
        "CREATE FUNCTION add_job(text) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    ],
)
def test_install_refuses_where_somebody_else_has_the_name(db: Connection, statement: str) -> None:
    db.execute(statement.encode())
    with pytest.raises(SchemaError, match="which is not Watchbill's facade jcron"):
        installed(db)

    assert ask(db, OURS) == 0
    assert installed(db, "jcron", "elsewhere") == ["facade jcron in schema elsewhere"]


def test_install_refuses_a_second_place(db: Connection) -> None:
    installed(db)
    with pytest.raises(SchemaError, match="installed in schema public"):
        installed(db, "jcron", "elsewhere")


@pytest.mark.parametrize(
    ("name", "schema", "prefix", "message"),
    [
        ("cron", None, None, "'cron' is not a facade"),
        ("jcron", "watchbill", None, "which is the engine's"),
        ("jcron", None, "a b", "prefix 'a b' is invalid"),
        ("jcron", None, 'x"; DROP', "is invalid"),
    ],
)
def test_what_cannot_be_installed(name: str, schema: str | None, prefix: str | None, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Facade.choose("watchbill", name, schema, prefix)


def test_uninstall_keeps_jobs_and_schedules(db: Connection) -> None:
    installed(db)
    db.execute("SELECT add_job('a', '0 0 9 * * *')")
    uninstall_facade(db.info.dsn, "watchbill", "jcron")
    assert ask(db, "SELECT count(*) FROM watchbill.schedules") == 1

    said: list[str] = []
    uninstall_facade(db.info.dsn, "watchbill", "jcron", said.append)
    assert said == ["facade jcron is not installed"]


def test_migrate_brings_a_changed_facade_up_to_date_and_keeps_rights(db: Connection) -> None:
    installed(db)
    role = sql.Identifier(f"reader_of_{db.info.dbname}")
    db.execute(sql.SQL("CREATE ROLE {0}; GRANT SELECT ON scheduled_jobs TO {0}").format(role))
    db.execute(sql.SQL("GRANT EXECUTE ON FUNCTION get_job_status() TO {}").format(role))
    db.execute("UPDATE watchbill.facades SET checksum = 'older'")
    try:
        assert migrated(db) == ["facade jcron"]
        assert migrated(db) == []
        name = f"reader_of_{db.info.dbname}"
        assert ask(db, f"SELECT has_table_privilege('{name}', 'scheduled_jobs', 'SELECT')") is True
        assert ask(db, f"SELECT has_function_privilege('{name}', 'get_job_status()', 'EXECUTE')") is True
        assert ask(db, f"SELECT has_function_privilege('{name}', 'get_due_jobs()', 'EXECUTE')") is False
    finally:
        db.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(role))


def test_install_makes_what_is_missing_again(db: Connection) -> None:
    installed(db)
    db.execute("DROP VIEW job_queue")

    assert migrated(db) == ["facade jcron"]
    assert ask(db, "SELECT count(*) FROM job_queue") == 0


def test_a_migration_that_drops_a_function_of_the_engine_makes_the_facades_again(db: Connection) -> None:
    installed(db)
    db.execute("CREATE FUNCTION watchbill._gone() RETURNS int LANGUAGE sql RETURN 1")
    db.execute("CREATE VIEW job_extras AS SELECT watchbill._gone()")
    [(comment,)] = db.execute("SELECT obj_description('job_queue'::regclass, 'pg_class')")
    db.execute(sql.SQL("COMMENT ON VIEW job_extras IS {}").format(comment))
    db.execute(
        "UPDATE watchbill.schema_functions "
        "SET signatures = array_append(signatures, 'watchbill._gone()'), checksum = ''"
    )

    assert "facade jcron" in migrated(db)
    assert ask(db, "SELECT to_regclass('job_extras') IS NULL AND to_regclass('job_queue') IS NOT NULL") is True


def test_a_view_of_the_user_on_a_facade_is_named_when_it_is_in_the_way(db: Connection) -> None:
    installed(db)
    db.execute("CREATE VIEW mine AS SELECT * FROM scheduled_jobs")
    with pytest.raises(SchemaError, match=r"view public\.mine depends on view public\.scheduled_jobs"):
        uninstall_facade(db.info.dsn, "watchbill", "jcron")

    assert ask(db, "SELECT count(*) FROM mine") == 0


def test_a_second_installation_cannot_take_the_facade_of_the_first(db: Connection) -> None:
    installed(db)
    install(db.info.dsn, "second")
    with pytest.raises(SchemaError, match="which is not Watchbill's facade jcron"):
        install_facade(db.info.dsn, Facade.choose("second", "jcron"))


OWNERS = """
    SELECT DISTINCT pg_get_userbyid(owner)
    FROM (
      SELECT c.relowner, obj_description(c.oid, 'pg_class') FROM pg_class c
      UNION ALL
      SELECT p.proowner, obj_description(p.oid, 'pg_proc') FROM pg_proc p) o(owner, comment)
    WHERE o.comment LIKE 'Watchbill''s facade%'
    UNION
    SELECT pg_get_userbyid(n.nspowner) FROM pg_namespace n WHERE n.nspname = 'seesaw'
"""


@pytest.mark.parametrize("first", ["facades", "roles"])
def test_facades_belong_to_the_owner_of_the_installation_and_its_members_migrate_them(
    server: Server, schema_database: str, first: str
) -> None:
    """Whether the facades or the roles were made first."""
    names = ["jcron", "seesaw"]  # one in a schema that exists, one in its own
    with ExitStack() as stack:
        db = stack.enter_context(psycopg.connect(schema_database, autocommit=True))
        if first == "facades":
            for name in names:
                installed(db, name)
        logins = stack.enter_context(make_logins(server, schema_database))
        if first == "roles":
            for name in names:
                installed(db, name)
        owners = [(f"{logins.prefix}_owner",)]
        assert db.execute(OWNERS).fetchall() == owners
        db.execute("UPDATE watchbill.facades SET checksum = 'of an older release'")
        install(logins.url("owner"))
        assert ask(db, "SELECT count(*) FROM watchbill.facades WHERE checksum = 'of an older release'") == 0
        assert db.execute(OWNERS).fetchall() == owners
        for name in names:
            uninstall_facade(logins.url("owner"), "watchbill", name)


def test_facade_whose_owner_may_not_create_it_is_refused_with_the_missing_right(
    server: Server, schema_database: str
) -> None:
    with make_logins(server, schema_database) as logins:
        logins.run(sql.SQL("CREATE SCHEMA closed"))
        logins.run(sql.SQL("GRANT USAGE, CREATE ON SCHEMA closed TO {}").format(
            sql.Identifier(f"{logins.database}_owner")
        ))  # fmt: skip
        with pytest.raises(SchemaError, match="may not create objects in schema closed") as refused:
            install_facade(logins.url("owner"), Facade.choose("watchbill", "jcron", "closed"))
        assert f'GRANT USAGE, CREATE ON SCHEMA "closed" TO "{logins.prefix}_owner"' in (refused.value.hint or "")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_facades_survive_a_dump_and_its_restoration(
    server: Server, schema_database: str, db: Connection, tmp_path: Path
) -> None:
    """With their views, triggers, rights and data; an upgrade finds them up to date."""
    for name in available_facades():
        installed(db, name)
    db.execute("GRANT SELECT ON sync_node TO PUBLIC")
    db.execute("SELECT add_job('nightly', '0 0 2 * * *', p_command => 'SELECT 1')")
    db.execute("SELECT jobforge_enqueue_job('acme', 'report', '{}'), watchbill.enqueue('mail')")
    db.execute("SELECT watchbill.declare_group('production', 4), watchbill.register('worker-01', '1 hour')")
    db.execute('SELECT watchbill.pin(\'production\', \'[{"key": "7", "pattern": "worker-%%"}]\')', ())
    copy = server.create_database()
    dump = str(tmp_path / "dump")
    programs = server.binaries.directory
    subprocess.run([programs / "pg_dump", "--format=custom", "--file", dump, schema_database], check=True, timeout=300)
    subprocess.run([programs / "pg_restore", "-e", "-d", server.url(copy), dump], check=True, timeout=300)
    with psycopg.connect(server.url(copy), autocommit=True) as restored:
        assert ask(restored, "SELECT count(*) FROM watchbill.facades") == len(available_facades())
        assert migrated(restored) == []
        for name in available_facades():
            assert installed(restored, name)[0].endswith("already installed")
        assert ask(restored, "SELECT name FROM scheduled_jobs") == "nightly"
        assert ask(restored, "SELECT tenant_id FROM jobforge_jobs WHERE type = 'report'") == "acme"
        assert ask(restored, "SELECT status FROM seesaw.jobs WHERE job_type = 'mail'") == "pending"
        assert ask(restored, "SELECT task_id FROM sync_lock") == "7"
        restored.execute("UPDATE scheduled_jobs SET enabled = false")
        restored.execute("UPDATE jobforge_jobs SET status = 'canceled' WHERE type = 'report'")
        restored.execute("DELETE FROM sync_lock")
        assert ask(restored, "SELECT enabled FROM watchbill.schedules") is False
        assert ask(restored, "SELECT state FROM watchbill.job WHERE type = 'report'") == "canceled"
        assert ask(restored, "SELECT count(*) FROM sync_lock") == 0
        assert ask(restored, "SELECT has_table_privilege('pg_monitor', 'sync_node', 'SELECT')") is True
        for name in available_facades():
            uninstall_facade(restored.info.dsn, "watchbill", name)
        assert (
            ask(restored, "SELECT to_regclass('sync_node') IS NULL AND to_regclass('scheduled_jobs') IS NULL") is True
        )
    server.drop_database(copy)
