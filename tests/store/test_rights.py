"""Every function and relation has a stated decision in src/watchbill/store/rights.txt, and the database follows it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from importlib.resources import files
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.types.json import Jsonb

from tests.role_logins import Logins, make_logins
from tests.servers import Server
from tests.store.conftest import template
from tests.store.security_checks import (
    RIGHTS,
    STATED,
    find_loose_functions,
    find_wrong_callers,
    find_wrong_modes,
    find_wrong_relation_rights,
    read_functions,
)
from watchbill.errors import SchemaError
from watchbill.postgres.rights import ROLE_KINDS
from watchbill.store.install import install
from watchbill.store.roles import create_roles, grant_role, read_roles, revoke_role

CALLED = re.compile(r"\{schema\}\.(\w+)\(")
READ = re.compile(r"(?:FROM|JOIN|UPDATE)\s+\{schema\}\.(\w+)(?![\w(])")
# The roles for whose programs a file of queries is written.
QUERY_FILES = {
    "worker.sql": {"worker"},
    "scheduler.sql": {"worker"},
    "locks.sql": {"worker"},
    "client.sql": {"operator"},
    "schedules.sql": {"operator"},
}


@pytest.fixture
def own_logins(server: Server, schema_database: str) -> Iterator[Logins]:
    with make_logins(server, schema_database) as made:
        yield made


@pytest.fixture(scope="module")
def shared_logins() -> Iterator[Callable[[Server], Logins]]:
    """Roles take a second to make: tests that leave them as they are share one database per server."""
    with ExitStack() as stack:

        @cache
        def ask(server: str) -> Logins:
            return stack.enter_context(
                make_logins(servers[server], servers[server].url(_new_database(servers[server])))
            )

        servers: dict[str, Server] = {}

        def remember(server: Server) -> Logins:
            servers[server.url()] = server
            return ask(server.url())

        yield remember


@pytest.fixture
def logins(server: Server, shared_logins: Callable[[Server], Logins]) -> Logins:
    return shared_logins(server)


def _new_database(server: Server) -> str:
    return server.create_database(template(server))


@pytest.fixture
def functions(schema_database: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(schema_database) as connection:
        return read_functions(connection)


def test_every_public_function_has_a_stated_decision(functions: list[tuple[Any, ...]]) -> None:
    unstated = sorted({name for name, *_ in functions if not name.startswith("_") and name not in STATED})
    lines = "".join(f"function {name:<25} definer  ROLES | WHY\n" for name in unstated)
    assert not unstated, (
        "Say in src/watchbill/store/rights.txt who may call these functions, and why they run with the rights of the "
        f"owner (definer) or of their caller (invoker). The head of the file explains the columns:\n{lines}"
    )


def test_every_line_names_a_function_or_relation_that_exists(
    functions: list[tuple[Any, ...]], schema_database: str
) -> None:
    with psycopg.connect(schema_database) as connection:
        relations = {
            name
            for (name,) in connection.execute(
                "SELECT relname FROM pg_class WHERE relnamespace = 'watchbill'::regnamespace"
            )
        }
    assert STATED.keys() - {name for name, *_ in functions} == set()
    assert {right.name for right in RIGHTS.relations} - relations == set()
    assert len(STATED) == len(RIGHTS.functions)


def test_every_query_is_allowed_to_the_programs_that_send_it() -> None:
    missing = []
    for file, roles in QUERY_FILES.items():
        text = (files("watchbill.store") / "queries" / file).read_text()
        granted = {right.name for right in RIGHTS.functions if roles <= set(right.roles)}
        readable = {right.name for right in RIGHTS.relations if roles <= set(right.roles)}
        missing += [f"{file}: function {name}" for name in {*CALLED.findall(text)} - granted]
        missing += [f"{file}: relation {name}" for name in {*READ.findall(text)} - readable]
    assert sorted(missing) == [], "a query calls or reads something that rights.txt does not give to its role"


def test_functions_run_with_the_stated_rights(schema_database: str) -> None:
    with psycopg.connect(schema_database) as connection:
        assert find_wrong_modes(connection) == []


def test_every_function_has_a_pinned_search_path_with_pg_temp_last(schema_database: str) -> None:
    with psycopg.connect(schema_database) as connection:
        assert find_loose_functions(connection) == []


def test_no_function_with_the_rights_of_the_owner_takes_a_relation_or_runs_given_text(
    functions: list[tuple[Any, ...]],
) -> None:
    """Each of the functions that build statements was read. Those of the owner use names that they compute or check
    (_check_history_table, _list_detached_days); the others run with the rights of their caller."""
    builds_statements = {name for name, *_, body in functions if re.search(r"\bEXECUTE\b(?!')", body)}
    of_the_owner = {
        "_end_archive",
        "_erase_history",
        "_free_keys_of_day",
        "_keep_results_of_day",
        "_list_ends",
        "_make_slot_partitions",
        "_protect_table",
        "_prune_default_partition",
        "_read_detached_day",
        "_write_quota_filter",
        "job_page",
        "make_partitions",
        "prune_history",
        "prune_slots",
    }
    of_callers = {
        "_apply_rights",
        "_check_sql_command",
        "_create_type",
        "_execute_sql_command",
        "_mark_bound_roles",
        "_set_view_security_barriers",
        "_unprotect_table",
        "_write_role_bindings",
        "enqueue_from",
    }
    assert builds_statements == of_the_owner | of_callers
    assert [name for name in of_callers if name in STATED and STATED[name].definer] == []
    takes_names = [
        signature for _, signature, is_definer, *_ in functions if is_definer and "reg" in signature.split("(")[1]
    ]
    assert takes_names == []


def test_partitions_are_made_for_tables_of_the_history_only(logins: Logins) -> None:
    with logins.connect("worker") as session, pytest.raises(psycopg.Error, match="parent 'jobs' is invalid"):
        session.execute("SELECT watchbill.make_partitions(parents => '{jobs}')")


def test_roles_have_exactly_the_stated_rights_on_functions(logins: Logins) -> None:
    with psycopg.connect(logins.owner_url) as connection:
        assert find_wrong_callers(connection, logins.prefix) == []


def test_roles_have_exactly_the_stated_rights_on_relations(logins: Logins) -> None:
    with psycopg.connect(logins.owner_url) as connection:
        assert find_wrong_relation_rights(connection, logins.prefix) == []


def test_upgrade_grants_new_functions_and_takes_back_what_was_granted_by_hand(own_logins: Logins) -> None:
    producer = sql.Identifier(f"{own_logins.prefix}_producer")
    own_logins.run(sql.SQL("GRANT ALL ON ALL TABLES IN SCHEMA watchbill TO {}").format(producer))
    own_logins.run(sql.SQL("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA watchbill TO {}").format(producer))
    own_logins.run(sql.SQL("REVOKE EXECUTE ON FUNCTION watchbill.enqueue FROM {}").format(producer))
    own_logins.run(sql.SQL("UPDATE watchbill.schema_functions SET checksum = 'of an older release'"))
    install(own_logins.url("owner"))
    with own_logins.connect("producer") as session:
        session.execute("SELECT watchbill.enqueue('t')")
        for refused in ("SELECT FROM watchbill.jobs", "SELECT watchbill.pause('default')"):
            with pytest.raises(errors.InsufficientPrivilege):
                session.execute(refused.encode())


def test_member_of_the_owner_migrates_as_the_owner(own_logins: Logins) -> None:
    own_logins.run(sql.SQL("DROP FUNCTION watchbill.pause"))
    own_logins.run(sql.SQL("UPDATE watchbill.schema_functions SET checksum = 'of an older release'"))
    install(own_logins.url("owner"))
    with own_logins.connect("owner") as session:
        rows = session.execute(
            "SELECT DISTINCT pg_get_userbyid(proowner) FROM pg_proc WHERE pronamespace = 'watchbill'::regnamespace"
            " UNION SELECT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = 'watchbill'::regnamespace"
        ).fetchall()
    assert rows == [(f"{own_logins.prefix}_owner",)]


def test_producer_enqueues_reads_and_cancels_but_touches_no_table(own_logins: Logins) -> None:
    with own_logins.connect("producer") as session:
        ((job,),) = session.execute("SELECT id FROM watchbill.enqueue('t', idempotency_key => 'k')").fetchall()
        session.execute("SELECT * FROM watchbill.enqueue_many(%s)", (Jsonb([{"type": "t", "delay": "1 hour"}]),))
        with session.transaction():
            session.execute("CREATE TEMP TABLE incoming OF watchbill.new_job ON COMMIT DROP")
            session.execute("INSERT INTO incoming (type) VALUES ('t')")
            session.execute("SELECT * FROM watchbill.enqueue_from('incoming')")
        assert session.execute("SELECT state FROM watchbill.job_by_id(%s)", (job,)).fetchall() == [("queued",)]
        assert session.execute("SELECT watchbill.cancel(%s)", (job,)).fetchall() == [("canceled",)]
        assert len(session.execute("SELECT * FROM watchbill.job_list()").fetchall()) == 3
        session.execute("SELECT watchbill.add_schedule('s', '@daily', 't')")
        for table in ("jobs", "finished_jobs", "job", "idempotency", "schedules", "audit", "claims"):
            with pytest.raises(errors.InsufficientPrivilege):
                session.execute(f"SELECT FROM watchbill.{table}".encode())


@pytest.mark.parametrize(
    ("role", "function", "call"),
    [
        (
            "producer",
            "_enqueue_plain",
            """watchbill._enqueue_plain(
            't', '{}', 'default', 0::smallint, 'default', 10::smallint, NULL, 1, watchbill.uuid7(), NULL, NULL)""",
        ),
        ("worker", "_save_result", "watchbill._save_result('%s', %s, 'step', 1, 1, NULL, 1.5, false, '{}')"),
    ],
)
def test_objects_of_the_caller_replace_none_in_a_function_without_a_fixed_search_path(
    logins: Logins, role: str, function: str, call: str
) -> None:
    """One operator, function or type that was looked up in the caller's schema would run as the owner."""
    with logins.connect("owner") as owner:
        query = "SELECT prosrc FROM pg_proc WHERE proname = %s"
        ((body,),) = owner.execute(query, (function,)).fetchall()
        owner.execute("SELECT watchbill.enqueue('t')")
        ((epoch,),) = owner.execute("SELECT watchbill.register(%s)", (function,)).fetchall()
        owner.execute("CREATE SCHEMA traps")  # operators and functions of pg_temp are never found
        owner.execute("GRANT ALL ON SCHEMA traps TO PUBLIC")
        (claimed,) = owner.execute("SELECT id, fence FROM watchbill.claim(%s)", (epoch,)).fetchall()
    heard: list[str | None] = []
    with logins.connect(role) as session:
        session.add_notice_handler(lambda notice: heard.append(notice.message_primary))
        session.execute("""
            CREATE FUNCTION traps.spy() RETURNS boolean LANGUAGE plpgsql AS $$
            BEGIN RAISE NOTICE 'as %', current_user; RETURN true; END $$""")
        names = session.execute(
            "SELECT DISTINCT p.proname, pg_get_function_identity_arguments(p.oid), p.prorettype::regtype::text"
            " FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f'"
            " AND p.proname = ANY (%s) AND p.provariadic = 0",
            (re.findall(r"\w+", body),),
        ).fetchall()
        assert names
        for name, arguments, result in names:
            with contextlib.suppress(psycopg.Error):
                session.execute(
                    f"CREATE FUNCTION traps.{name}({arguments}) RETURNS {result} LANGUAGE plpgsql AS"
                    " $$ BEGIN PERFORM traps.spy(); RETURN NULL; END $$".encode()
                )
        for kind in ("bytea", "text", "timestamptz", "jsonb", "real", "smallint", "int", "bigint", "uuid"):
            session.execute(
                f"CREATE FUNCTION traps.compare_{kind}({kind}, {kind}) RETURNS boolean LANGUAGE sql"
                " RETURN traps.spy()".encode()
            )
            for operator in "<", "=", ">", "<=", "<>", "@>", "||":
                session.execute(
                    f"CREATE OPERATOR traps.{operator}"
                    f" (LEFTARG = {kind}, RIGHTARG = {kind}, FUNCTION = traps.compare_{kind})".encode()
                )
        for kind in ("timestamptz", "regclass", "oid"):
            session.execute(f"CREATE DOMAIN traps.{kind} AS pg_catalog.{kind} CHECK (traps.spy())".encode())
        session.execute("SET search_path = traps, pg_catalog")
        ((returned,),) = session.execute(f"SELECT {call % claimed if '%' in call else call}".encode()).fetchall()
    with logins.connect("owner") as owner:
        owner.execute("DROP SCHEMA traps CASCADE")
    assert returned is not False
    assert heard == []


def test_producer_cannot_store_a_job_of_watchbills_own(logins: Logins) -> None:
    """Every worker would run the SQL in it."""
    calls = (
        "watchbill.enqueue('watchbill.sql')",
        """watchbill.enqueue_many('[{"type": "watchbill.sql"}]')""",
        """watchbill._enqueue_plain(
        'watchbill.sql', '{}', 'q', 0::smallint, 'default', 10::smallint, NULL, 1, watchbill.uuid7(), NULL, NULL)""",
        """watchbill._enqueue_rows(ARRAY[jsonb_populate_record(NULL::watchbill.new_job,
        '{"type": "watchbill.sql", "id": "01a31ef9-a33b-7771-b0a4-6f0dbdcb7a1b", "payload": {}, "queue": "q",
        "priority": 0, "tenant": "default", "max_attempts": 1, "version": 1}')], false, true, false, NULL, NULL)""",
    )
    with logins.connect("producer") as session:
        for call in calls:
            with pytest.raises(psycopg.Error, match="only schedules make jobs"):
                session.execute(f"SELECT {call}".encode())


def test_producer_gets_no_rights_of_the_owner_through_a_table_that_it_names(logins: Logins) -> None:
    """enqueue_from reads the table as its caller, so a view in place of it sees nothing more than the caller does."""
    with logins.connect("producer") as session:
        session.execute("""
            CREATE FUNCTION pg_temp.spy() RETURNS text LANGUAGE plpgsql AS $$
            BEGIN RAISE NOTICE '%', current_user; RETURN 't'; END $$""")
        session.execute("CREATE TEMP TABLE rows OF watchbill.new_job")
        session.execute("INSERT INTO rows (type) VALUES ('t')")
        session.execute(
            "CREATE TEMP VIEW trap AS SELECT (x).* FROM (SELECT r AS x FROM rows r WHERE pg_temp.spy() = 't') y"
        )
        heard: list[str | None] = []
        session.add_notice_handler(lambda notice: heard.append(notice.message_primary))
        session.execute("SELECT * FROM watchbill.enqueue_from('trap')")
        assert set(heard) == {session.info.user}
        logins.run(sql.SQL("CREATE TABLE watchbill.secret OF watchbill.new_job"))
        with pytest.raises(errors.InsufficientPrivilege):
            session.execute("SELECT * FROM watchbill.enqueue_from('watchbill.secret')")


def test_only_operators_and_workers_give_a_schedule_a_command(logins: Logins) -> None:
    add = "SELECT watchbill.add_schedule('s', '@daily', command => 'SELECT 1')"
    with (
        logins.connect("producer") as session,
        pytest.raises(psycopg.Error, match="may not write, change or enable a SQL"),
    ):
        session.execute(add)
    with logins.connect("producer") as session:
        session.execute("SELECT watchbill.add_schedule('mine', '@daily', 't')")
        with pytest.raises(psycopg.Error, match="may not write, change or enable a SQL"):
            session.execute(
                """SELECT watchbill._change_schedule('mine', '{"type":null, "command":"SELECT 1"}', 'default', NULL)"""
            )
    with logins.connect("operator") as session:
        session.execute(add)
        session.execute(
            "INSERT INTO watchbill.schedules (name, pattern, command) VALUES ('plain', '@daily', 'SELECT 1')"
        )
        for broken in (
            "SELECT watchbill.add_schedule('broken', '@daily', command => 'SELEC 1')",
            "INSERT INTO watchbill.schedules (name, pattern, command) VALUES ('broken', '@daily', 'SELEC 1')",
            """SELECT watchbill.update_schedule('plain', '{"command": "SELEC 1"}')""",
        ):
            with pytest.raises(psycopg.Error, match="does not parse"):
                session.execute(broken.encode())


def test_command_is_parsed_with_the_rights_of_the_writer(logins: Logins) -> None:
    """A function of the writer's own would run if the command were analyzed; and it would run as the owner."""
    heard: list[str | None] = []
    with logins.connect("operator") as session:
        session.add_notice_handler(lambda notice: heard.append(notice.message_primary))
        session.execute("""
            CREATE FUNCTION pg_temp.watchbill_parses(anyelement) RETURNS void LANGUAGE sql AS 'SELECT 1'""")
        session.execute("SELECT watchbill.add_schedule('parsed', '@daily', command => 'SELECT 1')")
        rows = session.execute(
            "SELECT pg_get_userbyid(proowner) FROM pg_proc WHERE proname = 'watchbill_parses'"
        ).fetchall()
    assert rows == [(f"{logins.database}_operator",)]
    assert heard == []


def test_role_of_a_command_must_be_one_that_its_writer_has(logins: Logins) -> None:
    """The functions run as the owner, whose memberships do not count."""
    with logins.connect("operator") as session, pytest.raises(psycopg.Error, match="must be a member of role"):
        session.execute(
            "SELECT watchbill.add_schedule('role', '@daily', command => 'SELECT 1', role => %s)",
            (f"{logins.prefix}_owner",),
        )


def test_reader_reads_every_view_and_changes_nothing(own_logins: Logins) -> None:
    with own_logins.connect("operator") as session:
        session.execute("SELECT watchbill.enqueue('t')")
        session.execute("SELECT watchbill.add_schedule('s', '@daily', 't')")
    with own_logins.connect("reader") as session:
        for view, count in {"job": 1, "attempt": 0, "node": 0, "schedule": 1, "slot": 0, "overdue": 0}.items():
            assert session.execute(f"SELECT count(*) FROM watchbill.{view}".encode()).fetchall() == [(count,)]
        session.execute("SELECT * FROM watchbill.stats()")
        for refused in (
            "watchbill.enqueue('t')",
            "watchbill.cancel(watchbill.uuid7())",
            "watchbill.remove_schedule('s')",
        ):
            with pytest.raises(errors.InsufficientPrivilege):
                session.execute(f"SELECT {refused}".encode())


def test_every_role_uses_the_cron_functions(logins: Logins) -> None:
    for kind in ROLE_KINDS:
        with logins.connect(kind) as session:
            query = (
                "SELECT watchbill.next_run(watchbill.parse_cron('@daily', 'Europe/Paris'), '1980-01-01') > '1980-01-01'"
            )
            assert session.execute(query).fetchall() == [(True,)]
            session.execute(
                "SELECT jcron.next_time('@daily', '1980-01-01', 'Europe/Paris'), jcron.get_frequency('@daily')"
            )


def test_create_again_changes_nothing(logins: Logins) -> None:
    before = read_roles(logins.owner_url, "watchbill")
    create_roles(logins.owner_url, "watchbill", "jcron", logins.prefix)
    assert read_roles(logins.owner_url, "watchbill") == before
    assert [row.members for row in before] == [(f"{logins.database}_{row.kind}",) for row in before]


def test_revoked_role_can_do_nothing_more(own_logins: Logins) -> None:
    revoke_role(own_logins.owner_url, "watchbill", f"{own_logins.database}_producer", "producer")
    with own_logins.connect("producer") as session, pytest.raises(errors.InsufficientPrivilege):
        session.execute("SELECT watchbill.enqueue('t')")


def test_wrong_prefix_role_or_kind_is_refused_with_a_hint(logins: Logins) -> None:
    url = logins.owner_url
    with pytest.raises(SchemaError, match="prefix 'A-B' is invalid"):
        create_roles(url, "watchbill", "jcron", "A-B")
    with pytest.raises(SchemaError, match=f"names begin with {logins.prefix}_"):
        create_roles(url, "watchbill", "jcron", "other")
    with pytest.raises(SchemaError, match="kind 'boss' is invalid"):
        grant_role(url, "watchbill", f"{logins.database}_reader", "boss")
    with pytest.raises(SchemaError, match="no role 'nobody'"):
        grant_role(url, "watchbill", "nobody", "reader")


def test_administrator_without_superuser_is_told_how_to_set_the_default_tenant(own_logins: Logins) -> None:
    admin, role = own_logins.add("admin", "owner"), f"{own_logins.database}_producer"
    said: list[str] = []
    grant_role(admin, "watchbill", role, None, ["acme"], report=said.append)
    assert "only a superuser" in said[0]
    assert said[1:] == [f"ALTER ROLE \"{role}\" SET watchbill.tenant = 'acme';"]
    own_logins.run(sql.SQL(said[1]))
    with own_logins.connect("producer") as session:
        [(tenant,)] = session.execute("SELECT watchbill._session_tenant()").fetchall()
    assert tenant == "acme"
    said.clear()
    grant_role(admin, "watchbill", role, None, ["acme"], report=said.append)
    assert said == []
    revoke_role(admin, "watchbill", role, None, ["acme"], report=said.append)
    assert said[1:] == [f'ALTER ROLE "{role}" RESET watchbill.tenant;']


def test_owner_without_the_right_to_make_roles_is_told_what_it_needs(server: Server, database: str) -> None:
    name = f"{database.split('/')[-1].split('?')[0]}_plain"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        connection.execute(
            sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(
                sql.Identifier(connection.info.dbname), sql.Identifier(name)
            )
        )
        url = server.url(connection.info.dbname, name)
        try:
            install(url)
            with pytest.raises(SchemaError, match="PostgreSQL refused it"):
                create_roles(url, "watchbill", "jcron", "other")
        finally:
            connection.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(name)))
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


# The clock.

# A value for an argument, by its name or its type; NULL for a type that is not here.
VALUES = {
    "command": "NULL", "states": "'{dead}'",
    "text": "'x'", "text[]": "'{}'", "uuid": "gen_random_uuid()", "bigint": "0", "bigint[]": "'{0}'", "integer": "1",
    "boolean": "false", "interval": "'1 day'", "jsonb": "'{}'", "regclass": "'pg_temp.jobs'",
}  # fmt: skip
IGNORE_THE_TIME = {"declare_queues", "leave_group"}
NEED_A_ROW_TO_COMPARE_IT_WITH = {
    "alert_list",
    "api_key_list",
    "group_list",
    "incomplete_items",
    "limit_keys",
    "pin_list",
    "silence_list",
}


def test_only_the_owner_may_give_a_time(logins: Logins) -> None:
    with psycopg.connect(logins.owner_url, autocommit=True) as connection:
        functions = connection.execute("""
            SELECT p.proname, p.proargnames[:p.pronargs], p.proargtypes::regtype[]::text[]
            FROM pg_proc p
            WHERE p.pronamespace = 'watchbill'::regnamespace AND 'now' = ANY (p.proargnames[:p.pronargs])""").fetchall()
    trusting = set()
    for kind in ROLE_KINDS:
        with logins.connect(kind) as session:
            session.execute("CREATE TEMP TABLE jobs OF watchbill.new_job")
            for name, names, types in functions:
                if name not in STATED or kind not in STATED[name].roles:
                    continue
                given = {"now": "'2100-01-01'"} | {
                    f'"{argument}"': VALUES.get(argument, VALUES.get(kind_of_value, "NULL"))
                    for argument, kind_of_value in zip(names, types, strict=True)
                    if argument != "now"
                }
                try:
                    values = ", ".join(f"{argument} => {value}" for argument, value in given.items())
                    session.execute(f"SELECT watchbill.{name}({values})")
                    trusting.add(name)
                except psycopg.Error as error:
                    if error.sqlstate != "WB017":
                        trusting.add(name)
    assert trusting - NEED_A_ROW_TO_COMPARE_IT_WITH == IGNORE_THE_TIME
    with logins.connect("owner") as session:
        session.execute("SELECT watchbill.promote(now => '2020-01-01')")
