"""What an installation must hold for roles and tenants. Each check returns what it finds wrong.

The tests of rights and tenants expect no findings. The mutants in test_security_mutants.py take one protection away at
a time, and expect one.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import psycopg

from watchbill.postgres.rights import ROLE_KINDS, Rights

RIGHTS = Rights.read(files("watchbill.store") / "rights.txt")
STATED = {right.name: right for right in RIGHTS.functions}
# In these every name has a schema.
UNPINNED = {"_enqueue_plain", "_save_result"}
FUNCTIONS = """
SELECT p.proname, p.oid::regprocedure::text, p.prosecdef, p.proconfig, p.prosqlbody IS NOT NULL, p.prosrc
FROM pg_proc p WHERE p.pronamespace = 'watchbill'::regnamespace ORDER BY 1
"""
CALLERS = """
SELECT p.oid::regprocedure::text, p.proname, a.grantee
FROM pg_proc p
CROSS JOIN LATERAL (
  SELECT DISTINCT CASE x.grantee WHEN 0 THEN 'PUBLIC' ELSE x.grantee::regrole::text END AS grantee
  FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) x
  WHERE x.grantee <> p.proowner) a
WHERE p.pronamespace = 'watchbill'::regnamespace
"""
HOLDERS = """
SELECT c.oid::regclass::text, c.relname, a.grantee, a.privileges
FROM pg_class c
CROSS JOIN LATERAL (
  SELECT
    CASE x.grantee WHEN 0 THEN 'PUBLIC' ELSE x.grantee::regrole::text END AS grantee,
    array_agg(x.privilege_type ORDER BY 1) AS privileges
  FROM aclexplode(c.relacl) x
  WHERE x.grantee <> c.relowner
  GROUP BY 1) a
WHERE c.relnamespace = 'watchbill'::regnamespace
"""
POLICIES = """
SELECT
  t.relation::text, t.by_schedule, t.is_protected, p.permissive, p.cmd, p.roles::text,
  regexp_replace(p.qual, '\\s+', ' ', 'g'), regexp_replace(p.with_check, '\\s+', ' ', 'g')
FROM watchbill._list_tenant_tables() t
JOIN pg_class c ON c.oid = t.relation
LEFT JOIN pg_policies p ON p.schemaname = 'watchbill' AND p.tablename = c.relname
ORDER BY 1
"""
_SCOPE = "( SELECT _find_visible_tenant() AS _find_visible_tenant)"
_BY_TENANT = f"CASE {_SCOPE} WHEN ''::text THEN true WHEN tenant THEN true ELSE false END"


def read_functions(connection: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return connection.execute(FUNCTIONS).fetchall()


def find_wrong_callers(connection: psycopg.Connection[Any], prefix: str) -> list[str]:
    """Who may call a function: exactly the stated roles, and nobody through PUBLIC."""
    granted: dict[str, set[str]] = {}
    names: dict[str, str] = {signature: name for name, signature, *_ in read_functions(connection)}
    for signature, _, grantee in connection.execute(CALLERS).fetchall():
        granted.setdefault(signature, set()).add(grantee)
    groups = {f"{prefix}_{kind}" for kind in ROLE_KINDS}
    wrong = []
    for signature, name in names.items():
        stated = {f"{prefix}_{kind}" for kind in STATED[name].roles} if name in STATED else set()
        found = granted.get(signature, set()) & (groups | {"PUBLIC"})
        wrong += [f"{signature}: {grantee}" for grantee in sorted(found ^ stated)]
    return wrong


def find_wrong_relation_rights(connection: psycopg.Connection[Any], prefix: str) -> list[str]:
    """What the roles and PUBLIC may do with a relation."""
    stated: dict[tuple[str, str], set[str]] = {}
    for right in RIGHTS.relations:
        for kind in right.roles:
            stated.setdefault((right.name, f"{prefix}_{kind}"), set()).update(right.privileges.split(","))
    groups = {f"{prefix}_{kind}" for kind in ROLE_KINDS} | {"PUBLIC"}
    found = {
        (name, grantee): set(privileges)
        for _, name, grantee, privileges in connection.execute(HOLDERS).fetchall()
        if grantee in groups
    }
    return [
        f"{name}: {grantee}"
        for name, grantee in sorted({*stated, *found})
        if stated.get((name, grantee)) != found.get((name, grantee))
    ]


def find_wrong_modes(connection: psycopg.Connection[Any]) -> list[str]:
    """Whether a function runs with the rights of the owner or of its caller."""
    return [
        signature
        for name, signature, is_definer, *_ in read_functions(connection)
        if is_definer != (name in STATED and STATED[name].definer)
    ]


def find_loose_functions(connection: psycopg.Connection[Any]) -> list[str]:
    """Functions without a pinned search_path that ends with pg_temp. Not meant are bodies that were parsed when they
    were made, and the private functions of the cron engine: only the owner may call those directly."""
    return [
        signature
        for name, signature, is_definer, settings, is_parsed, _ in read_functions(connection)
        if "search_path=watchbill, pg_temp" not in (settings or [])
        and not (is_parsed and not is_definer)
        and not (name.startswith("_cron_") and name not in STATED)
        and name not in UNPINNED
    ]


def find_wrong_policies(connection: psycopg.Connection[Any]) -> list[str]:
    """Tables whose rows belong to tenants, and that do not have exactly the policy that keeps them apart."""
    connection.execute("SET LOCAL search_path = watchbill, pg_temp")
    wrong = []
    for relation, by_schedule, is_protected, permissive, command, roles, using, check in connection.execute(POLICIES):
        visible, tenant = _BY_TENANT, "tenant"
        if by_schedule:
            table = relation.removeprefix("watchbill.")
            rows = f"( SELECT FROM schedules s WHERE (s.id = {table}.schedule_id))"
            visible, tenant = f"(({_SCOPE} = ''::text) OR (EXISTS {rows}))", "NULL::text"
        expected = (True, "PERMISSIVE", "ALL", "{public}", visible, f"({visible} OR _refuse_tenant({tenant}))")
        found = (is_protected, permissive, command, roles, using, check)
        if _without_brackets(found) != _without_brackets(expected):
            wrong.append(f"{relation}: {found}")
    return wrong


def _without_brackets(values: tuple[Any, ...]) -> list[str]:
    """Servers differ in the brackets that they write."""
    return [str(value).replace("(", "").replace(")", "").replace(" ", "") for value in values]


def find_open_views(connection: psycopg.Connection[Any]) -> list[str]:
    """Views on rows of tenants that evaluate a reader's conditions before the policies."""
    rows = connection.execute(
        "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'watchbill'::regnamespace AND c.relkind = 'v'"
        " AND NOT coalesce((SELECT o.option_value::boolean FROM pg_options_to_table(c.reloptions) o"
        " WHERE o.option_name = 'security_barrier'), false) ORDER BY 1"
    ).fetchall()
    return [name for (name,) in rows if name not in {"caller_scope", "lock", "node"}]  # no rows of tenants
