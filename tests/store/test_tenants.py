"""Row security: a caller sees, changes and learns nothing of another tenant, by whatever name it asks.

The attacks are made from the catalogue: every table, view, partition and function, as every role that is not meant to
see all tenants (tenant_site.py). Each call is made twice, once with names and ids of `b` and once with ones that do
not exist: the caller must not be able to tell the answers apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.types.json import Jsonb

from tests.pooler import run_pooler
from tests.role_logins import Logins, make_logins
from tests.servers import Server
from tests.store.conftest import template
from tests.store.security_checks import find_open_views, find_wrong_policies
from tests.store.tenant_site import (
    HOSTILE,
    KNOWN,
    SECRET,
    Attacker,
    Site,
    argument,
    describe,
    make_spy,
    masked,
    open_sites,
)
from watchbill.errors import SchemaError
from watchbill.postgres.checks import examine
from watchbill.postgres.migrate import Source
from watchbill.settings import Settings
from watchbill.store.install import install
from watchbill.store.roles import create_roles, grant_role, revoke_role
from watchbill.store.tenants import disable_tenants, enable_tenants, read_row_security

RELATIONS = """
SELECT c.relname FROM pg_class c
WHERE c.relnamespace = 'watchbill'::regnamespace AND c.relkind IN ('r', 'p', 'v') ORDER BY 1
"""
FUNCTIONS = """
SELECT p.oid::regprocedure::text, p.proname, coalesce(p.proargnames, '{}'), coalesce(p.proargmodes::text[], '{}'),
  ARRAY(
    SELECT format_type(t, NULL)
    FROM unnest(coalesce(p.proallargtypes, p.proargtypes::oid[])) WITH ORDINALITY u(t, n)
    ORDER BY n),
  p.pronargs - p.pronargdefaults, p.provolatile = 'v'
FROM pg_proc p
WHERE p.pronamespace = 'watchbill'::regnamespace AND p.prorettype <> 'trigger'::regtype
  AND has_function_privilege(%(role)s, p.oid, 'EXECUTE')
ORDER BY 1
"""
# The id of a job is unique among all tenants, so a caller that knows one can learn that it is taken.
TAKEN_IDS = {"enqueue", "enqueue_many", "_enqueue_plain", "_enqueue_rows"}
COMPUTED = {"_hash_role_binding"}  # from nothing but what the caller gives
REFUSED = (
    errors.InsufficientPrivilege,
    errors.UndefinedColumn,
    errors.WrongObjectType,
    errors.ObjectNotInPrerequisiteState,
)


@pytest.fixture(scope="module")
def sites() -> Iterator[Callable[[Server], Site]]:
    with open_sites() as ask:
        yield ask


@pytest.fixture
def site(server: Server, sites: Callable[[Server], Site]) -> Iterator[Site]:
    """Shared; each test sees that it has left tenant b as it was."""
    found = sites(server)
    before = found.digest()
    yield found
    assert found.digest() == before


@pytest.fixture(scope="module")
def spare_logins() -> Iterator[Callable[[Server], Logins]]:
    """Roles take seconds to make, and so does row security."""
    made: dict[str, Logins] = {}
    with ExitStack() as stack:

        def ask(server: Server) -> Logins:
            if server.url() not in made:
                url = server.url(server.create_database(template(server)))
                made[server.url()] = stack.enter_context(make_logins(server, url))
            return made[server.url()]

        yield ask


@pytest.fixture
def spare(server: Server, spare_logins: Callable[[Server], Logins]) -> Logins:
    """A protected installation without data, for tests that change its protection. The next one finds it repaired."""
    logins = spare_logins(server)
    logins.run(sql.SQL("TRUNCATE watchbill.tenant_roles, watchbill.jobs"))
    enable_tenants(logins.owner_url, "watchbill")
    return logins


# -- what tenants and roles see


def test_counts_of_pruned_slots_are_those_of_the_own_tenant(site: Site) -> None:
    with psycopg.connect(site.logins.owner_url) as owner:
        ((schedule,),) = owner.execute("SELECT id FROM watchbill.schedules WHERE tenant = 'b'").fetchall()
        counts = "SELECT failures FROM watchbill._count_schedule_slots(%s)"
        owner.execute("INSERT INTO watchbill.pruned_slot_counts VALUES (%s, 7, 7, 0, 0)", (schedule,))
        owner.commit()
        assert owner.execute(counts, (schedule,)).fetchall() == [(7,)]
        try:
            with site.session("bound_reader") as session:
                assert session.execute(counts, (schedule,)).fetchall() == [(0,)]
        finally:
            owner.execute("DELETE FROM watchbill.pruned_slot_counts WHERE schedule_id = %s", (schedule,))


@pytest.mark.parametrize("role", HOSTILE)
def test_no_relation_shows_a_row_of_another_tenant(site: Site, role: str) -> None:
    with site.session(role, HOSTILE[role]) as session:
        relations = [name for (name,) in session.execute(RELATIONS).fetchall()]
        assert len(relations) > 40
        for name in relations:
            query = (
                f"SELECT count(*) FROM watchbill.{name} x WHERE x::text LIKE '%{SECRET}%' OR x::text LIKE '%type_b%'"
            )
            try:
                found = session.execute(query.encode()).fetchall()
            except errors.InsufficientPrivilege:
                continue
            assert found == [(0,)], name


@pytest.mark.parametrize("role", HOSTILE)
def test_no_relation_can_be_written_for_another_tenant(site: Site, role: str) -> None:
    with site.session(role, HOSTILE[role]) as session:
        for (name,) in session.execute(RELATIONS).fetchall():
            for statement in (
                "UPDATE watchbill.{} SET tenant = 'b'",
                "DELETE FROM watchbill.{}",
                "TRUNCATE watchbill.{}",
            ):
                if name == "schedules" and role == "bound_operator":
                    continue  # it may write those of its own tenant: see below
                with pytest.raises(REFUSED):
                    session.execute(statement.format(name).encode())


@pytest.mark.parametrize("role", HOSTILE)
def test_no_sequence_or_statistic_tells_of_another_tenant(site: Site, role: str) -> None:
    """Values that ANALYZE has stored contain payloads and keys, and the last number of a sequence counts jobs."""
    site.logins.run(sql.SQL("ANALYZE watchbill.jobs, watchbill.finished_jobs, watchbill.idempotency"))
    sequences = "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'watchbill'::regnamespace AND c.relkind = 'S'"
    statistics = (
        "SELECT s.sequencename, s.last_value::text FROM pg_sequences s WHERE s.schemaname = 'watchbill'"
        " AND s.last_value IS NOT NULL"
        " UNION ALL SELECT s.tablename, s::text FROM pg_stats s WHERE s.schemaname = 'watchbill'"
        f" AND s::text ~ 'type_b|queue_b|{SECRET}'"
    )
    with site.session(role, HOSTILE[role]) as session:
        found = [name for (name,) in session.execute(sequences.encode())]
        assert "job_seq" in found
        for name in found:
            for question in (f"SELECT last_value FROM watchbill.{name}", f"SELECT setval('watchbill.{name}', 1)"):
                with pytest.raises(errors.InsufficientPrivilege):
                    session.execute(question.encode())
        assert session.execute(statistics).fetchall() == []
    with psycopg.connect(site.logins.owner_url) as superuser:
        assert "type_b" in repr(superuser.execute(statistics).fetchall())


@pytest.mark.parametrize("role", ["bound_producer", "bound_reader"])
def test_plan_of_a_query_shows_no_value_of_another_tenant(site: Site, role: str) -> None:
    queries = [
        "SELECT * FROM watchbill.job_list()",
        "SELECT * FROM watchbill.job WHERE payload::text LIKE '%x%'",
        "SELECT * FROM watchbill.jobs j JOIN watchbill.finished_jobs f USING (tenant)",
    ]
    with site.session(role, "a") as session:
        for query in queries:
            told = outcome(session, f"EXPLAIN (ANALYZE, VERBOSE, BUFFERS) {query}", [])
            assert not re.search(f"{SECRET}|type_b|queue_b", told), query


def test_condition_of_a_reader_is_not_asked_about_rows_of_another_tenant(site: Site) -> None:
    """A function of the reader that costs nothing would otherwise come first, and tell what it was given."""
    site.logins.run(sql.SQL("CREATE SCHEMA IF NOT EXISTS hostile"))
    reader = sql.Identifier(f"{site.logins.database}_bound_reader")
    site.logins.run(sql.SQL("GRANT ALL ON SCHEMA hostile TO {}").format(reader))
    with site.session("bound_reader", "a") as session, session.transaction(force_rollback=True):
        session.execute("CREATE TEMP TABLE heard (word text)")
        session.execute(
            "CREATE FUNCTION hostile.hear(word text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001"
            " AS $$ BEGIN INSERT INTO pg_temp.heard VALUES (word); RETURN true; END $$"
        )
        for relation in ("job", "jobs", "attempt", "attempts", "schedule", "schedules", "slot", "slots", "overdue"):
            query = f"SELECT count(*) FROM watchbill.{relation} x WHERE hostile.hear(x::text)"
            try:
                with session.transaction():
                    session.execute(query.encode())
            except errors.InsufficientPrivilege:
                continue
        heard = repr(session.execute("SELECT word FROM heard").fetchall())
    assert "type_a" in heard
    assert not re.search(f"{SECRET}|type_b", heard)


def test_plain_sql_writes_schedules_of_the_bound_tenant_only(site: Site) -> None:
    with site.session("bound_operator", "b") as session:
        assert session.execute("UPDATE watchbill.schedules SET description = 'x' WHERE tenant = 'b'").rowcount == 0
        assert session.execute("DELETE FROM watchbill.schedules WHERE tenant = 'b'").rowcount == 0
        with pytest.raises(psycopg.Error, match="tenant 'b' is invalid here"):
            session.execute(
                "INSERT INTO watchbill.schedules (tenant, name, pattern, type) VALUES ('b', 'x', '@daily', 't')"
            )
        session.execute("SET watchbill.tenant = 'a'")
        with pytest.raises(psycopg.Error, match="tenant 'b' is invalid here"):
            session.execute("UPDATE watchbill.schedules SET tenant = 'b'")


def outcome(session: psycopg.Connection[Any], statement: str, parameters: list[Any]) -> str:
    """What a caller learns from a call; always rolled back."""
    try:
        with session.transaction(force_rollback=True):
            return repr(session.execute(statement.encode(), parameters).fetchall())
    except psycopg.Error as error:
        return describe(error)


@pytest.mark.parametrize("role", HOSTILE)
def test_no_function_tells_or_changes_anything_of_another_tenant(site: Site, role: str) -> None:
    """A job of b is told from one that does not exist by no answer. test_rights.py sees that the functions left out
    here cannot be called."""
    attacker, called = Attacker(site, role), 0
    differing: list[tuple[str, ...]] = []
    with attacker.session:
        rows = attacker.session.execute(FUNCTIONS, {"role": f"{site.logins.database}_{role}"}).fetchall()
        for signature, name, names, modes, types, required, may_write in rows:
            inputs = [
                (n, t) for n, t, m in zip(names or [""] * len(types), types, modes or ["i"] * len(types), strict=False)
                if m in "ib"
            ]  # fmt: skip
            for count in {required, len(inputs)}:
                answers = []
                for exists in (True, False):
                    values = [argument(n, t, site, exists=exists) for n, t in inputs[:count]]
                    if name in TAKEN_IDS:
                        values = [None if t == "uuid" else v for v, (_, t) in zip(values, inputs, strict=False)]
                    casts = ", ".join(f"%s::{t}" for _, t in inputs[:count])
                    text = attacker.call(f"SELECT * FROM watchbill.{name}({casts})", values, changes=may_write)
                    assert SECRET not in text, signature
                    assert exists or not any(str(job) in text for job in site.job_ids), signature
                    answers.append(masked(text, values))
                called += "42501" not in answers[0]
                if name not in TAKEN_IDS | COMPUTED:
                    differing += [(signature, *answers)] * (answers[0] != answers[1])
    assert not differing, "\n".join(map(str, differing))
    assert not attacker.changed, "\n".join(attacker.changed)
    assert called > (30 if "operator" in role or "producer" in role else 15)


def test_keys_of_a_limit_and_their_holders_are_those_of_the_own_tenant(site: Site) -> None:
    with site.session("bound_reader", "a") as session:
        for query in ("limit_keys('shared')", "limit_holders('shared')", "limit_keys('order:type_b')"):
            answer = repr(session.execute(f"SELECT * FROM watchbill.{query}".encode()).fetchall())
            assert SECRET not in answer
            assert KNOWN not in answer
            assert "shared" not in query or "shared:own" in answer
    with site.session("operator") as session:
        assert len(session.execute("SELECT * FROM watchbill.limit_keys('shared')").fetchall()) == 4


def test_totals_of_a_limit_count_the_jobs_of_the_own_tenant(site: Site) -> None:
    """Each tenant has a job that runs and holds two keys of the limit."""
    counts = "SELECT holders, kept, waiters FROM watchbill.limit_list() WHERE name = 'shared'"
    with site.session("bound_reader", "a") as session:
        assert session.execute(counts).fetchall() == [(2, 0, 0)]
    with site.session("operator") as session:
        assert session.execute(counts).fetchall() == [(4, 0, 0)]


@pytest.mark.parametrize("role", HOSTILE)
def test_dependencies_of_another_tenant_are_hidden(site: Site, role: str) -> None:
    make_spy(site)
    with site.session(role, HOSTILE[role]) as session:
        seen = repr(session.execute("SELECT public.spy('watchbill.dependencies')").fetchall())
        assert not [job for job in site.job_ids if str(job) in seen]


def test_producer_of_a_tenant_declares_nothing_that_tenants_share(site: Site) -> None:
    call = """SELECT watchbill.ensure_limits('app', '[{"name": "mine", "max": 1}]', '[{"name": "slow", "max": 1}]')"""
    with site.session("producer", "a") as session:
        session.execute(call)
        with pytest.raises(psycopg.Error, match="limit 'mine' is unknown"):
            session.execute("SELECT watchbill.enqueue('t', limit_keys => '{mine}')")


def test_producer_of_a_tenant_leaves_sets_of_labels_to_others(site: Site) -> None:
    fill = "INSERT INTO watchbill.label_sets SELECT -n, jsonb_build_object('n', n) FROM generate_series(1, %s) n"
    enqueue = "SELECT watchbill.enqueue('t', runs_on => %s, queue => 'nowhere', tenant => 'a')"
    with psycopg.connect(site.logins.owner_url, autocommit=True) as owner:
        ((number,),) = owner.execute("SELECT count(*) FROM watchbill.label_sets").fetchall()
        owner.execute(fill, (1000 - number,))
        with site.session("bound_producer") as producer, site.session("worker") as worker:
            with pytest.raises(psycopg.Error, match="jobs have asked for 1000 sets of labels already"):
                producer.execute(enqueue, ('{"disk": "new"}',))
            worker.execute(enqueue, ('{"disk": "new"}',))
            producer.execute(enqueue, ('{"disk": "new"}',))
        owner.execute("DELETE FROM watchbill.jobs WHERE queue = 'nowhere' AND tenant = 'a'")
        owner.execute("DELETE FROM watchbill.label_sets")


def test_bound_operator_changes_nothing_that_tenants_share(site: Site) -> None:
    with site.session("bound_operator", "a") as session:
        for call in (
            "pause('default')",
            "drain('node')",
            "set_limit('shared', 9)",
            "prune_history('attempts', '1 day')",
        ):
            with pytest.raises(psycopg.Error, match=r"is for all tenants: role .* is an operator, bound to a"):
                session.execute(f"SELECT watchbill.{call}".encode())


def test_functions_of_the_owner_see_only_rows_of_the_callers_tenant(site: Site) -> None:
    """Each table and each partition by its own name: this is what the functions of a producer read."""
    make_spy(site)
    relations = read_row_security(site.logins.owner_url, "watchbill").protected
    assert len(relations) > 20
    for role, tenant in HOSTILE.items():
        with site.session(role, tenant) as session:
            for name in relations:
                rows = [row for (row,) in session.execute("SELECT public.spy(%s)", (name,))]
                assert not [row for row in rows if SECRET in row or "type_b" in row], (role, name)
                assert role != "unset_producer" or not rows, name


def test_every_table_of_tenants_has_the_policy_and_every_view_a_barrier(site: Site) -> None:
    with psycopg.connect(site.logins.owner_url) as connection:
        assert find_wrong_policies(connection) == []
        assert find_open_views(connection) == []


def test_bound_role_cannot_free_itself(site: Site) -> None:
    with site.session("bound_producer") as session:
        group = f"{site.logins.prefix}_producer"
        for attempt in ("SET watchbill.tenant = 'b'", f'SET ROLE "{group}"', "SET row_security = off", "RESET ALL"):
            session.execute(attempt.encode())
            assert session.execute("SELECT watchbill.sees_all_tenants()").fetchall() == [(False,)]
            learned = outcome(session, "SELECT count(*) FROM watchbill.job_by_id(%s)", [site.job_ids[3]])
            assert learned == "[(0,)]" or "would be affected by row-level security" in learned
        with pytest.raises(psycopg.Error, match="tenant 'b' is invalid here"):
            session.execute("SELECT watchbill.enqueue('t', tenant => 'b')")


def test_bound_role_acts_for_its_only_tenant_without_a_setting(site: Site) -> None:
    with site.session("bound_producer", "") as session:
        assert session.execute("SELECT watchbill.current_tenant()").fetchall() == [("a",)]
        assert session.execute("SELECT DISTINCT tenant FROM watchbill.job_list()").fetchall() == [("a",)]


def test_without_a_tenant_a_producer_sees_and_writes_nothing(site: Site) -> None:
    with site.session("unset_producer") as session:
        assert session.execute("SELECT * FROM watchbill.job_list()").fetchall() == []
        assert session.execute("SELECT * FROM watchbill.schedule_list()").fetchall() == []
        for call in ("enqueue('t')", "enqueue('t', tenant => 'a')", "add_schedule('s', '@daily', 't', tenant => 'a')"):
            with pytest.raises(psycopg.Error, match="acts for no tenant"):
                session.execute(f"SELECT watchbill.{call}".encode())


def test_keys_schedules_and_dependencies_of_tenants_are_apart(site: Site) -> None:
    with site.session("producer", "a") as session, session.transaction(force_rollback=True):
        rows = session.execute(
            "SELECT created FROM watchbill.enqueue('type_b', idempotency_key => %s)", (KNOWN,)
        ).fetchall()
        assert rows == [(True,)]
        with pytest.raises(psycopg.Error, match="which is unknown"), session.transaction():
            session.execute("SELECT watchbill.enqueue('t', depends_on => %s)", ([site.job_ids[3]],))
        assert session.execute("SELECT DISTINCT tenant FROM watchbill.schedule_list()").fetchall() == [("a",)]
        assert session.execute("SELECT watchbill.run_schedule('nightly_a') IS NOT NULL").fetchall() == [(True,)]
        assert session.execute("SELECT watchbill.remove_schedule('nightly_b', 'b')").fetchall() == [(False,)]


# An id that a producer gives, in every way in which it can be given. %(job)s is an array with one job.
WAYS_TO_GIVE_AN_ID = {
    "enqueue": "SELECT watchbill.enqueue('t', id => %(id)s)",
    "enqueue_again": "SELECT watchbill.enqueue('t', id => %(id)s, resend => true)",
    "enqueue_new": "SELECT watchbill.enqueue('t', id => %(id)s, id_is_new => true)",
    "enqueue_delayed": "SELECT watchbill.enqueue('t', id => %(id)s, delay => '1 hour')",
    "enqueue_with_keys": (
        "SELECT watchbill.enqueue('t', '{\"key\": 1}', id => %(id)s, idempotency_key => 'k', unique_by => '{key}')"
    ),
    "enqueue_new_with_keys": "SELECT watchbill.enqueue('t', id => %(id)s, id_is_new => true, idempotency_key => 'k')",
    "many": "SELECT * FROM watchbill.enqueue_many(%(job)s)",
    "many_again": "SELECT * FROM watchbill.enqueue_many(%(job)s, resend => true)",
    "many_new": "SELECT * FROM watchbill.enqueue_many(%(job)s, ids_are_new => true)",
    "many_with_keys": "SELECT * FROM watchbill.enqueue_many(jsonb_set(%(job)s, '{0,idempotency_key}', '\"k\"'))",
    "plain": (
        "SELECT watchbill._enqueue_plain('t', '{}', 'default', 0::smallint, 'a', 9::smallint, 9, 1, %(id)s, '', '{}')"
    ),
    "plain_many": (
        "SELECT watchbill._enqueue_plain_many("
        "'t', 'default', 0::smallint, 'a', 9::smallint, 9, 1, '', '{}', ARRAY[%(id)s], ARRAY['{}'::jsonb])"
    ),
    "copied": "SELECT * FROM watchbill.enqueue_from('pg_temp.incoming')",
    "copied_again": "SELECT * FROM watchbill.enqueue_from('pg_temp.incoming', resend => true)",
    "copied_new": "SELECT * FROM watchbill.enqueue_from('pg_temp.incoming', ids_are_new => true)",
}


@pytest.mark.parametrize("way", WAYS_TO_GIVE_AN_ID)
def test_id_of_an_unfinished_job_of_another_tenant_is_refused(site: Site, way: str) -> None:
    """It stores nothing, so it must say so: an answer would leave the caller with keys of a job that is not its own."""
    for job in site.job_ids[2:]:
        with site.session("bound_producer", "a") as session, session.transaction(force_rollback=True):
            session.execute("CREATE TEMP TABLE incoming OF watchbill.new_job ON COMMIT DROP")
            session.execute("INSERT INTO incoming (id, type) VALUES (%s, 't')", (job,))
            values = {"id": job, "job": json.dumps([{"type": "t", "id": str(job)}])}
            with pytest.raises(psycopg.Error) as refused:
                session.execute(WAYS_TO_GIVE_AN_ID[way].encode(), values)
        said = describe(refused.value)
        assert re.search(r"WB003 job of type 't' is invalid: id .* is taken|23505 duplicate key", said), said
        assert not re.search(f"{SECRET}|{KNOWN}|type_b|queue_b|'b'|already exists", said)


def test_workers_and_operators_see_all_tenants(site: Site) -> None:
    for role in ("owner", "worker", "operator"):
        with site.session(role) as session:
            assert session.execute("SELECT DISTINCT tenant FROM watchbill.job_list() ORDER BY 1").fetchall() == [
                ("a",),
                ("b",),
            ]


def test_setting_of_a_transaction_ends_with_it_behind_a_pooler(site: Site, server: Server) -> None:
    database, role = site.logins.database, f"{site.logins.database}_producer"
    with run_pooler(server) as pooler, psycopg.connect(pooler.url(database, role), prepare_threshold=None) as session:
        session.execute("SELECT set_config('watchbill.tenant', 'a', true)")
        assert session.execute("SELECT DISTINCT tenant FROM watchbill.job_list()").fetchall() == [("a",)]
        session.commit()
        assert session.execute("SELECT * FROM watchbill.job_list()").fetchall() == []


# -- switching it on and off


def test_doctor_finds_tables_that_are_not_protected(spare: Logins, tmp_path: Path) -> None:
    settings = Settings.load(project=tmp_path, environ={}, database_url=spare.owner_url)
    broken = {
        "SELECT 1": "Row security is on for",
        "ALTER TABLE watchbill.attempts_default NO FORCE ROW LEVEL SECURITY": "attempts_default show the rows",
        "DROP POLICY tenant_rows ON watchbill.jobs": "watchbill.jobs",
    }
    for statement, says in broken.items():
        spare.run(sql.SQL(statement))
        findings = {f.check: f for f in examine(Source.of_package("watchbill.store"), lambda: settings, tmp_path)}
        assert says in findings["tenants"].says


def test_doctor_finds_bindings_that_do_not_hold(spare: Logins, tmp_path: Path) -> None:
    settings = Settings.load(project=tmp_path, environ={}, database_url=spare.owner_url)

    def says() -> str:
        found = {f.check: f for f in examine(Source.of_package("watchbill.store"), lambda: settings, tmp_path)}
        return found["tenants"].says

    reader, worker = f"{spare.database}_reader", f"{spare.database}_worker"
    grant_role(spare.owner_url, "watchbill", reader, None, ["a"])
    assert "Row security is on" in says()
    mark = "watchbill._is_bound_to_tenants()"
    spare.run(sql.SQL(f"REVOKE EXECUTE ON FUNCTION {mark} FROM {{}}").format(sql.Identifier(reader)))
    assert f"The binding of {reader} to tenants has no effect" in says()
    create_roles(spare.owner_url, "watchbill", "jcron", spare.prefix)
    assert "Row security is on" in says()
    with pytest.raises(SchemaError, match="works as worker cannot be bound"):
        grant_role(spare.owner_url, "watchbill", worker, "worker", ["a"])
    with pytest.raises(SchemaError, match=f"Role {worker} is a member of .*_worker and bound to a tenant"):
        grant_role(spare.owner_url, "watchbill", worker, None, ["a"])
    with pytest.raises(SchemaError, match=f"Role {reader} is a member of .*_worker and bound to a tenant"):
        grant_role(spare.owner_url, "watchbill", reader, "worker")
    assert "Row security is on" in says()
    spare.run(sql.SQL("INSERT INTO watchbill.tenant_roles VALUES ({}, 'a')").format(sql.Literal(worker)))
    assert f"{worker} may work for all tenants" in says()


def test_new_partitions_and_tables_are_protected(spare: Logins) -> None:
    url = spare.owner_url
    with spare.connect("worker") as worker:
        worker.execute("SELECT watchbill.make_partitions(days => 20), watchbill._make_slot_partitions(5)")
    with spare.connect("owner") as owner:
        owner.execute(f'SET ROLE "{spare.prefix}_owner"'.encode())
        owner.execute("CREATE TABLE watchbill.of_a_new_release (tenant text)")
    spare.run(sql.SQL("UPDATE watchbill.schema_functions SET checksum = 'of an older release'"))
    assert read_row_security(url, "watchbill").unprotected == ("watchbill.of_a_new_release",)
    assert read_row_security(url, "watchbill").state == "incomplete"
    install(spare.url("owner"))
    assert read_row_security(url, "watchbill").state == "on"
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT count(*) FROM pg_class WHERE relname ~ '^(slots|attempts)_2' AND relkind = 'r'"
            " AND NOT relrowsecurity"
        )
        assert rows.fetchall() == [(0,)]


def test_off_is_as_before(spare: Logins) -> None:
    url = spare.owner_url
    disable_tenants(url, "watchbill")
    assert read_row_security(url, "watchbill").state == "off"
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM pg_policy").fetchall() == [(0,)]
    with spare.connect("producer") as session:
        session.execute("SELECT watchbill.enqueue('t', tenant => 'any')")
        assert len(session.execute("SELECT * FROM watchbill.job_list()").fetchall()) == 1


def test_row_security_is_refused_for_an_owner_that_it_would_not_bind(schema_database: str) -> None:
    with pytest.raises(SchemaError, match="would not bind the owner"):
        enable_tenants(schema_database, "watchbill")


def test_unbound_role_acts_for_every_tenant_again(spare: Logins) -> None:
    role = f"{spare.database}_producer"
    grant_role(spare.owner_url, "watchbill", role, None, ["a", "b"])
    with spare.connect("producer") as session:
        session.execute("SELECT set_config('watchbill.tenant', 'b', false)")
        session.execute("SELECT watchbill.enqueue('t')")
        session.execute("SELECT set_config('watchbill.tenant', 'c', false)")
        with pytest.raises(psycopg.Error, match="is a producer, bound to a, b, and names tenant 'c'"):
            session.execute("SELECT watchbill.enqueue('t')")
        revoke_role(spare.owner_url, "watchbill", role, None, ["a", "b"])
        session.execute("SELECT watchbill.enqueue('t')")


def test_children_that_run_again_with_their_parent_count_for_the_quota(spare: Logins) -> None:
    """A parent and two children, canceled because of it: they are three jobs if the parent runs again."""
    with spare.connect("producer") as producer, spare.connect("operator") as operator, spare.connect("worker") as node:
        producer.execute("SELECT set_config('watchbill.tenant', 'family', false)")
        enqueue = "SELECT id FROM watchbill.enqueue('t', depends_on => %s)"
        ((parent,),) = producer.execute(enqueue, (None,)).fetchall()
        for _ in range(2):
            producer.execute(enqueue, ([parent],))
        # In transactions of their own: unblock() leaves what its own transaction has written.
        node.execute("SELECT watchbill.unblock()")
        producer.execute("SELECT watchbill.cancel(%s)", (parent,))
        node.execute("SELECT watchbill.unblock()")
        assert operator.execute("SELECT count(*) FROM watchbill.jobs").fetchall() == [(0,)]
        for room in (2, 3):
            operator.execute("SELECT watchbill.set_tenant('family', %s)", (Jsonb({"unfinished": room}),))
            operator.execute("SELECT watchbill.refresh_quotas(at_once => true)")
            if room == 2:
                with pytest.raises(psycopg.Error, match="the quota unfinished of tenant 'family' is full"):
                    producer.execute("SELECT watchbill.reschedule(%s)", (parent,))
            else:
                producer.execute("SELECT watchbill.reschedule(%s)", (parent,))
        assert operator.execute("SELECT count(*) FROM watchbill.jobs").fetchall() == [(3,)]


def test_marks_of_bound_roles_follow_the_table(spare: Logins) -> None:
    """However the table is written: a bound role without its mark would act for every tenant."""

    def bound_scopes() -> list[str | None]:
        found = []
        for name in ("producer", "reader"):
            with spare.connect(name) as session:
                session.execute("SET watchbill.tenant = 'other'")
                [(scope,)] = session.execute("SELECT tenant FROM watchbill.caller_scope").fetchall()
                found.append(scope)
        return found

    reader = f"{spare.database}_reader"
    assert bound_scopes() == ["other", "other"]
    spare.run(sql.SQL("INSERT INTO watchbill.tenant_roles VALUES ({}, 'a')").format(sql.Literal(reader)))
    assert bound_scopes() == ["other", None]
    mark = "watchbill._is_bound_to_tenants()"
    spare.run(sql.SQL(f"REVOKE EXECUTE ON FUNCTION {mark} FROM {{}}").format(sql.Identifier(reader)))
    spare.run(sql.SQL("UPDATE watchbill.schema_functions SET checksum = 'of an older release'"))
    install(spare.url("owner"))
    assert bound_scopes() == ["other", None]
    spare.run(sql.SQL("UPDATE watchbill.tenant_roles SET tenant = 'other'"))
    assert bound_scopes() == ["other", "other"]
    spare.run(sql.SQL("TRUNCATE watchbill.tenant_roles"))
    with spare.connect("owner") as session:
        marked = "SELECT has_function_privilege(%s, 'watchbill._is_bound_to_tenants()', 'EXECUTE')"
        assert session.execute(marked, (reader,)).fetchall() == [(False,)]


def test_statement_of_a_bound_role_reads_no_table_of_bindings(site: Site) -> None:
    """That would cost a single enqueue a quarter of its time."""
    role = sql.Identifier(f"{site.logins.database}_bound_producer")
    with psycopg.connect(site.logins.owner_url) as connection:
        connection.execute("SET LOCAL watchbill.tenant = 'a'")
        connection.execute(sql.SQL("SET LOCAL SESSION AUTHORIZATION {}").format(role))
        plan = connection.execute("EXPLAIN (VERBOSE, COSTS off) SELECT tenant FROM watchbill.caller_scope").fetchall()
        assert "::jsonb ? md5(" in repr(plan)
        connection.execute("RESET SESSION AUTHORIZATION")
        connection.execute("REVOKE EXECUTE ON FUNCTION watchbill._read_visible_tenant() FROM PUBLIC")
        connection.execute(
            "CREATE OR REPLACE FUNCTION watchbill._read_visible_tenant() RETURNS text LANGUAGE plpgsql STABLE"
            " AS $$ BEGIN RAISE EXCEPTION 'it was asked'; END $$"
        )
        connection.execute(sql.SQL("SET LOCAL SESSION AUTHORIZATION {}").format(role))
        assert connection.execute("SELECT tenant FROM watchbill.caller_scope").fetchall() == [("a",)]
        connection.execute("SET LOCAL watchbill.tenant = 'b'")
        with pytest.raises(psycopg.Error, match="it was asked"):
            connection.execute("SELECT tenant FROM watchbill.caller_scope")
        connection.rollback()


def test_role_does_not_get_the_bindings_of_another_by_its_name(spare: Logins) -> None:
    reader, producer = f"{spare.database}_reader", f"{spare.database}_producer"
    grant_role(spare.owner_url, "watchbill", reader, None, ["a"])
    grant_role(spare.owner_url, "watchbill", producer, None, ["b"])
    names = {"reader": sql.Identifier(reader), "producer": sql.Identifier(producer), "other": sql.Identifier("other")}

    def swap() -> None:
        for statement in (
            "ALTER ROLE {reader} RENAME TO {other}",
            "ALTER ROLE {producer} RENAME TO {reader}",
            "ALTER ROLE {other} RENAME TO {producer}",
        ):
            spare.run(sql.SQL(statement).format(**names))

    swap()
    try:
        with spare.connect("reader") as session:
            scopes = []
            for tenant in ("a", "b"):
                session.execute("SELECT set_config('watchbill.tenant', %s, false)", (tenant,))
                scopes += session.execute("SELECT tenant FROM watchbill.caller_scope").fetchall()
            assert scopes == [(None,), ("b",)]
    finally:
        swap()


def test_very_many_bindings_are_read_from_their_table(spare: Logins) -> None:
    body = "SELECT pg_get_function_sqlbody('watchbill._is_role_binding'::regproc)"
    insert = "INSERT INTO watchbill.tenant_roles SELECT {}::regrole, 'tenant ' || n FROM generate_series({}, {}) n"
    role = sql.Literal(f"{spare.database}_reader")
    with spare.connect("reader") as session:
        session.execute("SET watchbill.tenant = 'tenant 7'")
        for first, last, is_constant in ((1, 1000, True), (1001, 1001, False)):
            spare.run(sql.SQL(insert).format(role, first, last))
            assert ("jsonb" in repr(session.execute(body).fetchall())) == is_constant
            assert session.execute("SELECT tenant FROM watchbill.caller_scope").fetchall() == [("tenant 7",)]


def test_bound_worker_claims_and_ticks_for_its_tenant_only(spare: Logins) -> None:
    """`roles grant` refuses to bind a worker, because nodes are shared; a row in tenant_roles can."""
    worker = f"{spare.database}_worker"
    with spare.connect("worker") as session:
        [(epoch,)] = session.execute("SELECT watchbill.register('bound')").fetchall()
        for tenant in ("a", "b"):
            session.execute("SELECT watchbill.enqueue('t', tenant => %s)", (tenant,))
            session.execute(
                "SELECT watchbill.add_schedule('due', at => now() - interval '1 s', type => 't', tenant => %s)",
                (tenant,),
            )
    bind = sql.SQL("INSERT INTO watchbill.tenant_roles SELECT {}::regrole, unnest({}::text[])")
    try:
        spare.run(bind.format(sql.Literal(worker), sql.Literal(["b"])))
        with spare.connect("worker") as session:
            assert session.execute("SELECT fired FROM watchbill.tick()").fetchall() == [(1,)]
            claim = "SELECT tenant FROM watchbill.claim(%s, max => 9)"
            assert session.execute(claim, (epoch,)).fetchall() == [("b",), ("b",)]
            assert session.execute(claim, (epoch,)).fetchall() == []
        spare.run(bind.format(sql.Literal(worker), sql.Literal(["c"])))
        with spare.connect("worker") as session:
            for call in ("claim(%(epoch)s)", "tick()"):
                with pytest.raises(psycopg.Error, match="is a worker, bound to b, c"):
                    session.execute(f"SELECT watchbill.{call}".encode(), {"epoch": epoch})
    finally:
        spare.run(sql.SQL("TRUNCATE watchbill.tenant_roles"))
    with spare.connect("worker") as session:
        assert session.execute("SELECT tenant FROM watchbill.claim(%s, max => 9)", (epoch,)).fetchall() == [("a",)]
        session.execute("SELECT watchbill.remove_schedule('due', %s)", ("a",))
        session.execute("SELECT watchbill.remove_schedule('due', %s)", ("b",))


def test_role_that_a_session_switches_to_counts_beside_its_own(site: Site) -> None:
    group = sql.Identifier(f"{site.logins.prefix}_producer")
    with site.session("bound_producer", "b") as session:
        session.execute(sql.SQL("SET ROLE {}").format(group))
        assert session.execute("SELECT watchbill.current_tenant()").fetchall() == [(None,)]
        assert session.execute("SELECT * FROM watchbill.job_list()").fetchall() == []
    with site.session("producer", "a") as session:
        session.execute(sql.SQL("SET ROLE {}").format(group))
        assert session.execute("SELECT DISTINCT tenant FROM watchbill.job_list()").fetchall() == [("a",)]
    with site.session("operator") as session:
        session.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(f"{site.logins.prefix}_operator")))
        assert session.execute("SELECT watchbill.sees_all_tenants()").fetchall() == [(True,)]


def test_dump_of_a_protected_schema_needs_a_role_that_bypasses_it(spare: Logins, server: Server) -> None:
    import subprocess

    with spare.connect("worker") as worker:
        worker.execute("SELECT watchbill.enqueue('t', tenant => 'b')")
    command = [
        str(server.binaries.directory / "pg_dump"),
        "--schema",
        "watchbill",
        "--table",
        "watchbill.jobs",
        "--data-only",
    ]
    refused = subprocess.run([*command, spare.url("owner")], capture_output=True, text=True, check=False)
    assert "would be affected by row-level security policy" in refused.stderr
    dumped = subprocess.run([*command, spare.owner_url], capture_output=True, text=True, check=True)
    assert "\tt\tb\t" in dumped.stdout
