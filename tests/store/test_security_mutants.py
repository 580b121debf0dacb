"""Mutants of an installed database: one protection is taken away at a time, and a check of the tests finds it.

They are made from the catalogue, so a new function, table or partition gets its own. Each is undone by a rollback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.servers import Server
from tests.store.security_checks import (
    STATED,
    UNPINNED,
    find_loose_functions,
    find_open_views,
    find_wrong_callers,
    find_wrong_modes,
    find_wrong_policies,
    find_wrong_relation_rights,
    read_functions,
)
from tests.store.tenant_site import Site, make_spy, open_sites
from watchbill.postgres.rights import ROLE_KINDS

Check = Callable[[psycopg.Connection[Any]], list[str]]
pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def sites() -> Iterator[Callable[[Server], Site]]:
    with open_sites() as ask:
        yield ask


@pytest.fixture
def site(server: Server, sites: Callable[[Server], Site]) -> Site:
    return sites(server)


def run_mutants(site: Site, check: Check, mutants: list[str]) -> None:
    """Makes each mutant, and expects the check to find something."""
    survivors = []
    with psycopg.connect(site.logins.owner_url) as connection:
        assert check(connection) == [], "the check finds something before anything was changed"
        connection.rollback()
        for mutant in mutants:
            connection.execute(mutant.encode())
            if not check(connection):
                survivors.append(mutant)
            connection.rollback()
    assert mutants
    assert survivors == []


def grantees(site: Site) -> list[str]:
    return ["PUBLIC", *(f'"{site.logins.prefix}_{kind}"' for kind in ROLE_KINDS)]


def query(site: Site, statement: str) -> list[Any]:
    with psycopg.connect(site.logins.owner_url) as connection:
        return [row[0] for row in connection.execute(statement.encode()).fetchall()]


def test_each_right_to_call_a_function_is_checked(site: Site) -> None:
    with psycopg.connect(site.logins.owner_url) as connection:
        functions = {signature: name for name, signature, *_ in read_functions(connection)}
    mutants = []
    for signature, name in functions.items():
        stated = STATED[name].roles if name in STATED else ()
        granted = {f'"{site.logins.prefix}_{kind}"' for kind in stated}
        mutants += [f"GRANT EXECUTE ON ROUTINE {signature} TO {to}" for to in grantees(site) if to not in granted]
    run_mutants(site, lambda connection: find_wrong_callers(connection, site.logins.prefix), mutants)


def test_each_right_on_a_relation_is_checked(site: Site) -> None:
    relations = query(
        site,
        "SELECT c.oid::regclass::text FROM pg_class c"
        " WHERE c.relnamespace = 'watchbill'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')",
    )
    mutants = [f"GRANT ALL ON {name} TO {to}" for name in relations for to in grantees(site)]
    run_mutants(site, lambda connection: find_wrong_relation_rights(connection, site.logins.prefix), mutants)


def test_each_security_mode_is_checked(site: Site) -> None:
    mutants = query(
        site,
        "SELECT format('ALTER ROUTINE %s SECURITY %s', p.oid::regprocedure,"
        " CASE WHEN p.prosecdef THEN 'INVOKER' ELSE 'DEFINER' END)"
        " FROM pg_proc p WHERE p.pronamespace = 'watchbill'::regnamespace",
    )
    run_mutants(site, find_wrong_modes, mutants)


@pytest.mark.parametrize("change", ["RESET search_path", "SET search_path = pg_temp, watchbill"])
def test_each_pinned_search_path_is_checked(site: Site, change: str) -> None:
    pinned = query(
        site,
        "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'watchbill'::regnamespace"
        f" AND p.proconfig::text LIKE '%%search_path%%' AND p.proname <> ALL ('{{{','.join(UNPINNED)}}}')"
        " AND (p.prosqlbody IS NULL OR p.prosecdef)",
    )
    run_mutants(site, find_loose_functions, [f"ALTER ROUTINE {signature} {change}" for signature in pinned])


@pytest.mark.parametrize(
    "change",
    [
        "DROP POLICY tenant_rows ON {}",
        "ALTER TABLE {} NO FORCE ROW LEVEL SECURITY",
        "ALTER TABLE {} DISABLE ROW LEVEL SECURITY",
        "ALTER POLICY tenant_rows ON {} USING (true)",
        "ALTER POLICY tenant_rows ON {} WITH CHECK (true)",
        "CREATE POLICY more ON {} USING (true)",
    ],
)
def test_each_policy_is_checked(site: Site, change: str) -> None:
    tables = query(site, "SELECT relation::text FROM watchbill._list_tenant_tables()")
    run_mutants(site, find_wrong_policies, [change.format(table) for table in tables])


def test_each_policy_that_hides_rows_is_seen_to_hide_them(site: Site) -> None:
    """By what a caller sees, not by the text of the policy."""
    make_spy(site)
    role = sql.Identifier(f"{site.logins.database}_bound_producer").as_string(None)

    def see_rows_of_b(connection: psycopg.Connection[Any]) -> list[str]:
        connection.execute(f"SET LOCAL SESSION AUTHORIZATION {role}; SET LOCAL watchbill.tenant = 'b'".encode())
        found = [
            name for name in tables
            if connection.execute("SELECT 1 FROM public.spy(%s) x WHERE x LIKE ANY (%s)", (name, marks)).fetchone()
        ]  # fmt: skip
        connection.execute("RESET SESSION AUTHORIZATION")
        return found

    marks = ["%hush%", "%type_b%", *(f"%{job}%" for job in site.job_ids)]
    tables: list[str] = []
    every = query(site, "SELECT relation::text FROM watchbill._list_tenant_tables()")
    with psycopg.connect(site.logins.owner_url) as connection:
        for name in every:
            [(has_rows,)] = connection.execute(
                f"SELECT EXISTS (SELECT FROM {name} x WHERE x::text LIKE ANY (%s))".encode(), (marks,)
            ).fetchall()
            tables += [name] * has_rows
    assert len(tables) > 8
    for change in (
        "ALTER POLICY tenant_rows ON {} USING (true)",
        "CREATE POLICY more ON {} USING (true)",
        "ALTER TABLE {} NO FORCE ROW LEVEL SECURITY",
        "ALTER TABLE {} DISABLE ROW LEVEL SECURITY",
    ):
        run_mutants(site, see_rows_of_b, [change.format(name) for name in tables])


def test_each_barrier_of_a_view_is_checked(site: Site) -> None:
    views = ["attempt", "job", "overdue", "schedule", "slot"]
    run_mutants(site, find_open_views, [f"ALTER VIEW watchbill.{view} RESET (security_barrier)" for view in views])
