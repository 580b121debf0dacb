"""An installation with row security on and the data of two tenants, for attacks on tenant `b`.

Tenant `b` has a job in each state, a schedule, keys, limits and everything that comes with them. All of it contains the
word SECRET, which no caller but b names. Its keys are KNOWN, so that an attack can name them. Tenant `a` has the same
with other words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from tests.role_logins import Logins, make_logins
from tests.servers import Server
from tests.store.conftest import template
from watchbill.store.roles import grant_role
from watchbill.store.tenants import enable_tenants

SECRET = "hush"
KNOWN = "known"
HOSTILE = {  # login role -> the tenant that it names first
    "producer": "a",
    "reader": "a",
    "bound_producer": "b",
    "bound_reader": "b",
    "bound_operator": "b",
    "unset_producer": "",
}
BOUND = {"bound_producer": "producer", "bound_reader": "reader", "bound_operator": "operator"}
# What belongs to tenant b, in each table that has something of it.
_WITH_TENANT = ("jobs", "finished_jobs", "attempts", "idempotency", "uniques", "schedules", "audit")
_OF_SCHEDULES = ("timers", "slots", "pruned_slot_counts")
_SHARED = (  # what no tenant may change for another
    "limits", "queues", "shares", "limit_states", "pauses", "locks", "nodes", "beats", "tenant_roles", "installation",
    "token_groups", "declarations",
)  # fmt: skip
_SCHEDULES_OF_B = "SELECT s.id FROM watchbill.schedules s WHERE s.tenant = 'b'"
_ROWS_OF_B = {
    **dict.fromkeys(_WITH_TENANT, "x.tenant = 'b'"),
    **dict.fromkeys(_OF_SCHEDULES, f"x.schedule_id IN ({_SCHEDULES_OF_B})"),
    "dependencies": "x.child = ANY (%(ids)s) OR x.parent = ANY (%(ids)s)",
    "dependency_checks": "x.id = ANY (%(ids)s)",
    "cancels": "x.job_id = ANY (%(ids)s)",
    "runs": "x.job_id = ANY (%(ids)s)",
    "holds": "x.job_id = ANY (%(ids)s)",
    "claims": "x.job_ids && %(ids)s",
    **dict.fromkeys(_SHARED, "true"),
}
DIGEST = " UNION ALL ".join(
    f"(SELECT '{table}', md5(string_agg(x::text, '|' ORDER BY x::text)) FROM watchbill.{table} x WHERE {rows})"
    for table, rows in _ROWS_OF_B.items()
)


@dataclass
class Site:
    """A protected installation with the data of tenants `a` and `b`."""

    logins: Logins
    job_ids: list[UUID]
    epoch: int
    fence: int

    def session(self, role: str, tenant: str | None = None) -> psycopg.Connection[Any]:
        connection = self.logins.connect(role)
        if tenant is not None:
            connection.execute("SELECT set_config('watchbill.tenant', %s, false)", (tenant,))
        return connection

    def digest(self) -> list[tuple[Any, ...]]:
        """Everything of tenant b, as the superuser sees it."""
        with psycopg.connect(self.logins.owner_url) as connection:
            return self.digest_on(connection)

    def digest_on(self, connection: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
        """In the order of the tables' names: a parallel plan returns the parts of the query in any order."""
        return sorted(connection.execute(DIGEST, {"ids": self.job_ids}).fetchall(), key=lambda row: str(row[0]))


def build_site(logins: Logins) -> Site:
    for name, kind in BOUND.items():
        logins.add(name, kind)
        grant_role(logins.owner_url, "watchbill", f"{logins.database}_{name}", None, ["a"])
    logins.add("unset_producer", "producer")
    with logins.connect("worker") as worker:
        ids: list[UUID] = []
        ((epoch,),) = worker.execute("SELECT watchbill.register('node')").fetchall()
        worker.execute("""SELECT watchbill.ensure_limits('app', '[{"name": "shared", "max": 1}]', '[]')""")
        for tenant in ("a", "b"):
            word, key = (SECRET, KNOWN) if tenant == "b" else ("open", "own")
            payload = json.dumps({"word": word, "key": key})

            def enqueue(more: str = "", tenant: str = tenant, payload: str = payload) -> UUID:
                row = worker.execute(
                    f"SELECT id FROM watchbill.enqueue(%s, %s, tenant => %s, meta => %s {more})".encode(),
                    (f"type_{tenant}", payload, tenant, payload),
                ).fetchone()
                assert row is not None
                return UUID(str(row[0]))

            done, failed = enqueue(), enqueue()
            running = enqueue(""", limit_keys => '{"shared:{word}", "shared:{key}"}', ordered_by => '{key}'""")
            claimed = worker.execute("SELECT id, fence FROM watchbill.claim(%s, max => 2)", (epoch,)).fetchall()
            fences = {UUID(str(job)): fence for job, fence in claimed}
            worker.execute("SELECT watchbill.complete(%s, %s, %s)", (done, fences[done], payload))
            worker.execute(
                "SELECT watchbill.fail(%s, %s, %s, false)", (failed, fences[failed], json.dumps({"message": payload}))
            )
            ((_, fence),) = worker.execute("SELECT id, fence FROM watchbill.claim(%s, max => 1)", (epoch,)).fetchall()
            waiting = enqueue(f", idempotency_key => '{key}', queue => 'queue_b', unique_by => '{{key}}'")
            child = enqueue(f", depends_on => '{{{waiting}}}'")
            worker.execute(
                "SELECT watchbill.add_schedule(%s, '@daily', 'type', payload => %s, tenant => %s,"
                " queue => 'queue_b', description => %s)",
                (f"nightly_{tenant}", payload, tenant, payload),
            )
            worker.execute("SELECT watchbill.run_schedule(%s, %s)", (f"nightly_{tenant}", tenant))
            if tenant == "b":
                ids = [done, failed, running, waiting, child]
    return Site(logins, ids, epoch, fence)


@contextmanager
def open_sites() -> Iterator[Callable[[Server], Site]]:
    """One site per server."""
    made: dict[str, Site] = {}
    with ExitStack() as stack:

        def ask(server: Server) -> Site:
            if server.url() not in made:
                url = server.url(server.create_database(template(server)))
                logins = stack.enter_context(make_logins(server, url))
                enable_tenants(url, "watchbill")
                made[server.url()] = build_site(logins)
            return made[server.url()]

        yield ask


def make_spy(site: Site) -> None:
    """A function that reads a table with the rights of the owner, as the functions of a producer do."""
    owner = sql.Identifier(f"{site.logins.prefix}_owner")
    site.logins.run(
        sql.SQL("""
        CREATE OR REPLACE FUNCTION public.spy(relation regclass) RETURNS SETOF text LANGUAGE plpgsql SECURITY DEFINER AS
        $$ BEGIN RETURN QUERY EXECUTE format('SELECT x::text FROM %s x', relation); END $$;
        ALTER FUNCTION public.spy(regclass) OWNER TO {};
        """).format(owner)
    )


# -- attacks


def argument(name: str, type: str, site: Site, *, exists: bool) -> Any:
    """A value of tenant b, or one of the same kind that does not exist."""
    ids = site.job_ids if exists else [UUID(int=job.int ^ 0xFFFF) for job in site.job_ids]
    job = {"id": str(ids[3]), "type": "type_b", "tenant": "b", "name": "nightly_b"}
    texts = {
        "tenant": "b", "type": "type_b", "queue": "queue_b", "name": "nightly_b",
        "idempotency_key": KNOWN, "key": KNOWN, "parent": "attempts", "overlap": "allow", "run_if": "all_finished",
        "outcome": "succeeded", "path": "watchbill",
    }  # fmt: skip
    if not exists:
        texts |= {
            "tenant": "c",
            "type": "type_c",
            "queue": "queue_c",
            "name": "nightly_c",
            "idempotency_key": "new",
            "key": "new",
        }
        job |= {"tenant": "c", "type": "type_c", "name": "nightly_c"}
    values: dict[str, Any] = {
        "uuid": ids[3],
        "uuid[]": ids,
        "text": texts.get(name, "x"),
        "text[]": ["dead", "succeeded"] if name == "states" else [texts["queue"]],
        "jsonb": json.dumps({"jobs": [job], "schedules": [job], "changes": {"description": "x"}}.get(name, job)),
        "bigint": {"epoch": site.epoch, "fence": site.fence if exists else 1}.get(name, 1),
        "bigint[]": [site.fence] if exists else [1],
        "integer": 5, "smallint": 1, "real": 1.0, "double precision": 1.0, "boolean": False,
        "interval": "1 hour", "timestamp with time zone": "2031-01-01 00:00+00", "regclass": "pg_class", "name": "x",
    }  # fmt: skip
    return values.get(type)


def describe(error: psycopg.Error) -> str:
    return f"{error.sqlstate} {error.diag.message_primary} {error.diag.message_hint} {error.diag.message_detail}"


class Attacker:
    """Calls functions as a role, in a session that can also look at what the call has changed before it is undone."""

    def __init__(self, site: Site, role: str) -> None:
        self.site = site
        self.session = psycopg.connect(site.logins.owner_url, autocommit=True)
        name = sql.Identifier(f"{site.logins.database}_{role}").as_string(None)
        tenant = sql.Literal(HOSTILE[role]).as_string(None)
        self.begin = (
            f"BEGIN; SET LOCAL SESSION AUTHORIZATION {name}; SET LOCAL watchbill.tenant = {tenant}; SAVEPOINT call"
        ).encode()
        self.before = site.digest_on(self.session)
        self.changed: list[str] = []

    def call(self, statement: str, parameters: list[Any], *, changes: bool) -> str:
        """What the role learns. `changes`: the function may write; what it changes of b is noted."""
        self.session.execute(self.begin)
        try:
            answer = repr(self.session.execute(statement.encode(), parameters).fetchall())
            if changes:
                self.session.execute("RESET SESSION AUTHORIZATION")
                after = dict(self.site.digest_on(self.session))
                self.changed += [f"{statement} changes {t}" for t, digest in self.before if after[t] != digest]
            return answer
        except psycopg.Error as error:
            return describe(error)
        finally:
            self.session.execute("ROLLBACK")


def masked(text: str, parameters: list[Any]) -> str:
    """Without what the caller has said itself, and without ids and times that differ from call to call."""
    for value in sorted((str(p) for p in parameters if isinstance(p, str | UUID)), key=len, reverse=True):
        text = text.replace(value, "?") if len(value) > 2 else text
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "?", text)
    return re.sub(r"type_[bc]|queue_[bc]|nightly_[bc]|'[bc]'|datetime\([^)]*\)|\d+", "?", text)
