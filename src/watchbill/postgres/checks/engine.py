"""Checks which engine serves the database, and whether the settings fit a server that fails over."""

from __future__ import annotations

from typing import NamedTuple

from watchbill.postgres.address import parse_url
from watchbill.postgres.checks.target import Finding, Target

LEAST_FAILOVER_LEASE_SECONDS = 60.0
LEASES_PER_FAILOVER = 2.2
_HOWTO = "See docs/howto/scale.md."

# Pairs: a part of version(), and what we say about that engine.
_NOT_SUPPORTED = (
    ("-YB-", "YugabyteDB is not supported: each row lock is a message to another server."),
    ("CockroachDB", "CockroachDB is not supported: it has no LISTEN and no PL/pgSQL triggers."),
    ("Greenplum", "Greenplum is not supported: it is made for analysis."),
    ("Redshift", "Redshift is not supported: it is made for analysis."),
)


class Engine(NamedTuple):
    """What a server says about itself."""

    version: str
    has_aurora: bool = False  # the function aurora_version, which only Aurora has
    has_neon: bool = False
    has_citus: bool = False
    distributed_tables: int = 0  # tables of Watchbill's schema that Citus has distributed


def judge(engine: Engine) -> Finding:
    for sign, says in _NOT_SUPPORTED:
        if sign in engine.version:
            return Finding("engine", "wrong", says, f"Use PostgreSQL 15 or newer. {_HOWTO}")
    if engine.distributed_tables:
        says = f"Not supported: Citus has distributed {engine.distributed_tables} tables of this schema."
        return Finding("engine", "wrong", says, f"Keep Watchbill's schema on the coordinator. {_HOWTO}")
    if engine.has_citus:
        return Finding("engine", "ok", "Citus: supported, with Watchbill's schema on the coordinator only.")
    if engine.has_aurora:
        says = "Aurora: supported at the cluster endpoint. Fences do without the timeline of the server."
        return Finding("engine", "ok", says)
    if engine.has_neon:
        says = "Neon: supported, with a direct host in listen_url. A node keeps the compute from scaling to zero."
        return Finding("engine", "note", says)
    return Finding("engine", "ok", "PostgreSQL: supported.")


def check_engine(target: Target) -> Finding:
    return judge(_read_engine(target))


def _read_engine(target: Target) -> Engine:
    [(version, has_aurora, has_neon, has_citus)] = target.query("""
        SELECT version(), to_regproc('aurora_version') IS NOT NULL,
               current_setting('neon.timeline_id', true) IS NOT NULL,
               EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')
    """)
    distributed = 0
    if has_citus and target.query("SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL") == [(True,)]:
        [(distributed,)] = target.query(
            """
            SELECT count(*) FROM pg_catalog.pg_dist_partition p JOIN pg_class c ON c.oid = p.logicalrelid
            JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s
            """,
            target.settings.schema,
        )
    return Engine(version, has_aurora, has_neon, has_citus, distributed)


def check_failover(target: Target) -> Finding:
    """Compares the lease with the time that an ordinary failover takes, if the address has several hosts. A node stops
    its handlers when 0.8 leases have passed since its last heartbeat, which may be a third of a lease old."""
    host = str(parse_url(target.url).get("host") or "")
    if "," not in host:
        return Finding("failover", "ok", "One host in the address; something else must move it to a new primary.")
    hosts, lease = host.count(",") + 1, target.settings.lease
    longest = lease / LEASES_PER_FAILOVER
    if lease < LEAST_FAILOVER_LEASE_SECONDS:
        says = f"{hosts} hosts, lease {lease:g} s: a failover that takes longer than {longest:.0f} s stops handlers."
        hint = "Set lease to 2.2 times the failover time: 60s for Patroni's ttl 20, 90s for ttl 30."
        return Finding("failover", "note", says, hint)
    return Finding("failover", "ok", f"{hosts} hosts; a failover of up to {longest:.0f} s stops no handlers.")
