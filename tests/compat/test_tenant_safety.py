"""Facades under row security: a producer that may call all of their functions and use all of their views learns and
changes nothing of another tenant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from tests.role_logins import make_logins
from tests.servers import Server
from tests.store.tenant_site import KNOWN, SECRET, Attacker, Site, argument, build_site, masked
from watchbill.store.facades import Facade, available_facades, install_facade
from watchbill.store.install import install
from watchbill.store.tenants import enable_tenants

ROLES = ("producer", "bound_producer", "bound_reader", "bound_operator")
SAMPLE = [
    "bound_producer",
    "bound_operator",
    *(pytest.param(role, marks=pytest.mark.long) for role in ("producer", "bound_reader")),
]
OURS = "obj_description(o.oid) LIKE 'Watchbill''s facade %%'"
VIEWS = f"SELECT o.oid::regclass::text FROM pg_class o WHERE o.relkind = 'v' AND {OURS} ORDER BY 1"
FUNCTIONS = f"""
SELECT o.oid::regprocedure::text, o.oid::regproc::text, coalesce(o.proargnames, '{{}}'),
  ARRAY(SELECT format_type(t, NULL) FROM unnest(o.proargtypes::oid[]) WITH ORDINALITY u(t, n) ORDER BY n),
  o.pronargs - o.pronargdefaults
FROM pg_proc o WHERE o.prorettype <> 'trigger'::regtype AND {OURS} ORDER BY 1
"""


@pytest.fixture(scope="module")
def site(server: Server) -> Iterator[Site]:
    """All facades, and every right on them for every hostile role."""
    url = server.url(server.create_database())
    install(url)
    for name in available_facades():
        install_facade(url, Facade.choose("watchbill", name))
    with make_logins(server, url) as logins:
        enable_tenants(url, "watchbill")
        made = build_site(logins)
        for role in ROLES:
            to = sql.Identifier(f"{logins.database}_{role}")
            for grant in ("USAGE ON SCHEMA seesaw", "ALL ON ALL TABLES IN SCHEMA public, seesaw"):
                logins.run(sql.SQL(f"GRANT {grant} TO {{}}").format(to))
            logins.run(sql.SQL("GRANT EXECUTE ON ALL ROUTINES IN SCHEMA public, seesaw TO {}").format(to))
        yield made


def value_of(name: str, type: str, site: Site, *, exists: bool) -> Any:
    """Always tenant b: a facade tells the tenant of the session from any other, which the session knows itself."""
    meaning = name.removeprefix("p_").removesuffix("_id")
    return "b" if (meaning, type) == ("tenant", "text") else argument(meaning, type, site, exists=exists)


@pytest.mark.parametrize("role", SAMPLE)
def test_no_function_of_a_facade_tells_or_changes_anything_of_another_tenant(site: Site, role: str) -> None:
    attacker, called, differing = Attacker(site, role), 0, []
    with attacker.session:
        for signature, name, names, types, required in attacker.session.execute(FUNCTIONS).fetchall():
            inputs = list(zip(names, types, strict=False))
            for count in {required, len(types)}:
                answers = []
                for exists in (True, False):
                    values = [value_of(n, t, site, exists=exists) for n, t in inputs[:count]]
                    casts = ", ".join(f"%s::{t}" for _, t in inputs[:count])
                    text = attacker.call(f"SELECT * FROM {name}({casts})", values, changes=True)
                    assert SECRET not in text, signature
                    answers.append(masked(text, values))
                called += "42501" not in answers[0]
                differing += [(signature, *answers)] * (answers[0] != answers[1])
    assert not differing, "\n".join(map(str, differing))
    assert not attacker.changed, "\n".join(attacker.changed)
    assert called > 5


@pytest.mark.parametrize("role", SAMPLE)
def test_no_view_of_a_facade_shows_or_changes_a_row_of_another_tenant(site: Site, role: str) -> None:
    attacker = Attacker(site, role)
    with attacker.session:
        views = [view for (view,) in attacker.session.execute(VIEWS).fetchall()]
        assert len(views) > 5
        for view in views:
            assert SECRET not in attacker.call(f"SELECT x::text FROM {view} x", [], changes=False), view
            assert KNOWN not in attacker.call(f"SELECT x::text FROM {view} x", [], changes=False), view
            attacker.call(f"DELETE FROM {view} RETURNING 1", [], changes=True)
            attacker.call(f"UPDATE {view} SET tenant_id = 'b' RETURNING 1", [], changes=True)
            attacker.call(f"UPDATE {view} SET status = 'canceled' RETURNING 1", [], changes=True)
    assert not attacker.changed, "\n".join(attacker.changed)


def test_reader_of_a_tenant_reads_its_rows_in_every_view_to_which_it_has_select(site: Site) -> None:
    expected = {
        "SELECT DISTINCT tenant_id FROM jobforge_jobs": [("a",)],
        "SELECT tenant_id, locked_by FROM jobforge_jobs WHERE status = 'running'": [("a", "node")],
        "SELECT name FROM scheduled_jobs": [("nightly_a",)],
        "SELECT status FROM job_queue": [("pending",)],
        "SELECT job_type FROM seesaw.jobs WHERE status = 'running'": [("type_a",)],
        "SELECT holder FROM watchbill.running_job": [("node",)],
        "SELECT count(*) FROM watchbill.timer": [(1,)],
    }
    with site.session("bound_reader", "a") as session:
        views = [view for (view,) in session.execute(VIEWS).fetchall()]
        assert len(views) > 10
        for view in views:
            session.execute(f"SELECT * FROM {view}".encode())
        assert {query: session.execute(query.encode()).fetchall() for query in expected} == expected


def test_producer_works_for_its_own_tenant_through_jobforge(site: Site) -> None:
    with site.session("bound_producer", "a") as session:
        [(job,)] = session.execute("SELECT jobforge_enqueue_job('a', 't', '{}'::jsonb)").fetchall()
        [(listed,)] = session.execute("""SELECT jobforge_list_jobs('a', '{"type": "t"}')""").fetchall()
        assert [found["id"] for found in listed] == [job["id"]]
        session.execute("SELECT jobforge_cancel_job(%s::uuid, 'a'::text)", (job["id"],))
        for refused in ("enqueue_job('b', 't', '{}'::jsonb)", "list_jobs('b'::text)"):
            with pytest.raises(psycopg.Error, match="is not the tenant of this session"):
                session.execute(f"SELECT jobforge_{refused}".encode())
        session.execute("SELECT set_config('watchbill.tenant', '', false)")
        with pytest.raises(psycopg.Error, match="tenant 'b' is invalid here"):
            session.execute("SELECT jobforge_enqueue_job('b', 't', '{}'::jsonb)")
        assert session.execute("SELECT jobforge_list_jobs('b'::text)").fetchall() == [([],)]
        with pytest.raises(errors.InsufficientPrivilege):
            session.execute("SELECT FROM jobforge_jobs")
