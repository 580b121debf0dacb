"""Checks who may do what in Watchbill's schema."""

from __future__ import annotations

from watchbill.postgres.checks.target import Finding, Target

_MAX_NAMES = 5
_MEMBERSHIPS = """
SELECT k.kind
FROM {schema}.installation i
CROSS JOIN unnest('{owner,worker,producer,operator,reader}'::text[]) k(kind)
JOIN pg_roles g ON g.rolname = i.role_prefix || '_' || k.kind
WHERE pg_has_role(g.oid, 'USAGE')
"""
_OWNER = """
SELECT current_user::text, r.rolname::text, r.rolsuper, pg_has_role(r.oid, 'USAGE')
FROM pg_namespace n
JOIN pg_roles r ON r.oid = n.nspowner
WHERE n.nspname = %s
"""
# Finds rights of PUBLIC on functions and tables, and its right to create objects. PUBLIC should have none of them.
_PUBLIC_RIGHTS = """
SELECT format('%%s on function %%s', lower(a.privilege_type), p.oid::regprocedure)
FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
WHERE p.pronamespace = to_regnamespace(quote_ident(%s)) AND a.grantee = 0
UNION ALL
SELECT format('%%s on %%s', lower(a.privilege_type), c.oid::regclass)
FROM pg_class c, aclexplode(c.relacl) a
WHERE c.relnamespace = to_regnamespace(quote_ident(%s)) AND a.grantee = 0
UNION ALL
SELECT format('%%s on schema %%I', lower(a.privilege_type), n.nspname)
FROM pg_namespace n, aclexplode(n.nspacl) a
WHERE n.nspname = %s AND a.grantee = 0 AND a.privilege_type = 'CREATE'
ORDER BY 1
"""
_BYPASS = """
SELECT r.rolname::text, r.rolsuper OR r.rolbypassrls
FROM pg_namespace n
JOIN pg_roles r ON r.oid = n.nspowner
WHERE n.nspname = %s
"""
# Finds the roles that are bound to tenants. For each: whether it may call `_is_bound`, without which its binding has no
# effect, and whether it is a member of the owner or worker role, which act for all tenants.
_BOUND_ROLES = """
SELECT
  b.role::regrole::text,
  has_function_privilege(b.role, '{schema}._is_bound_to_tenants()', 'EXECUTE'),
  EXISTS (
    SELECT
    FROM {schema}.installation i
    JOIN pg_roles g ON g.rolname IN (i.role_prefix || '_owner', i.role_prefix || '_worker')
    WHERE pg_has_role(b.role, g.oid, 'MEMBER'))
FROM {schema}.tenant_roles b
JOIN pg_roles r ON r.oid = b.role
GROUP BY b.role
ORDER BY 1
"""
# Lists SQL commands of schedules that a role wrote which is bound to a tenant, and those without a record of their
# writer where such a role could write them. A plain INSERT leaves no record but `created_by`, which its writer chooses.
_COMMANDS_OF_TENANTS = """
SELECT s.tenant || '/' || s.name, w.login_role IS NULL AND c.rolname IS NULL
FROM {schema}.schedules s
LEFT JOIN LATERAL (
  SELECT a.login_role
  FROM {schema}.audit a
  WHERE a.action IN ('add_schedule', 'update_schedule')
    AND a.subject = 'schedule ' || s.name
    AND a.tenant = s.tenant
    AND a.detail->>'command' = s.command
  ORDER BY a.id DESC
  LIMIT 1) w ON true
LEFT JOIN pg_roles c ON w.login_role IS NULL AND c.rolname = s.created_by AND EXISTS (
  SELECT FROM {schema}.tenant_roles b WHERE b.role = c.oid)
WHERE s.command IS NOT NULL
  AND s.declared_definition->>'command' IS DISTINCT FROM s.command
  AND EXISTS (
    SELECT
    FROM {schema}.tenant_roles b
    JOIN pg_roles r ON r.oid = b.role
    WHERE r.rolname = w.login_role
      OR w.login_role IS NULL
      AND b.tenant = s.tenant
      AND has_function_privilege(b.role, '{schema}._may_write_sql_commands()', 'EXECUTE'))
ORDER BY 1
"""
# Finds functions that run with the rights of the owner but have no fixed search_path. _enqueue_plain and _save_result
# need none, because every name in them has a schema.
_LOOSE_FUNCTIONS = """
SELECT p.oid::regprocedure::text
FROM pg_proc p
WHERE p.pronamespace = to_regnamespace(quote_ident(%s))
  AND p.prosecdef
  AND p.proname NOT IN ('_enqueue_plain', '_save_result')
  AND NOT coalesce(array_to_string(p.proconfig, ';') ~ 'search_path=[^;]*, pg_temp(;|$)', false)
ORDER BY 1
"""


def check_roles(target: Target) -> Finding:
    """Says what the current role may do, and finds rights that roles should not have."""
    schema = target.settings.schema
    owners = target.query(_OWNER, schema)
    if not owners:
        return Finding("roles", "skipped", "Not checked: there is no schema yet; see schema.")
    [(user, owner, is_superuser, acts_as_owner)] = owners
    if loose := [name for (name,) in target.query(_LOOSE_FUNCTIONS, schema)]:
        says = f"Functions with the rights of the owner have no fixed search_path: {_join_some_names(loose)}."
        return Finding("roles", "wrong", says, "Run `watchbill db migrate` of this release again, as the owner.")
    if public := [right for (right,) in target.query(_PUBLIC_RIGHTS, schema, schema, schema)]:
        hint = "Revoke it from PUBLIC, and use `watchbill db roles grant`."
        return Finding("roles", "wrong", f"Every role of the database has: {_join_some_names(public)}.", hint)
    kinds = [kind for (kind,) in target.query_schema(_MEMBERSHIPS)]
    says = f"Role {user} acts as {'owner' if acts_as_owner else ', '.join(kinds) or 'nothing here'}."
    if is_superuser:
        says += f" The schema belongs to {owner}, a superuser, and most functions run with its rights."
        return Finding("roles", "note", says, "Run `watchbill db roles create`: it gives the schema to another role.")
    return Finding("roles", "ok", says)


def check_tenants(target: Target) -> Finding:
    """Checks that row security protects all tables or none: a table without a policy shows the rows of every tenant."""
    schema = target.settings.schema
    if not target.query("SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'tenant_roles'", schema):
        return Finding("tenants", "skipped", "Not checked: the schema does not have it yet; see schema.")
    rows = target.query_schema("SELECT relation::text, is_protected FROM {schema}._list_tenant_tables()")
    unprotected = [name for name, is_protected in rows if not is_protected]
    if len(unprotected) == len(rows):
        return Finding("tenants", "ok", "Row security is off: every role that may read jobs sees those of all tenants.")
    if unprotected:
        says = f"Row security is incomplete: {_join_some_names(unprotected)} show the rows of every tenant."
        return Finding("tenants", "wrong", says, "Run `watchbill db tenants enable` again.")
    [(owner, bypasses)] = target.query(_BYPASS, schema)
    if bypasses:
        says = f"Row security is on, but does not bind {owner}, with whose rights most functions run."
        return Finding(
            "tenants", "wrong", says, "Run `watchbill db roles create`: it gives the schema to another role."
        )
    if finding := _find_weak_binding(target):
        return finding
    hint = "Back up with a superuser or a role with BYPASSRLS: pg_dump fails as the owner."
    return Finding("tenants", "ok", f"Row security is on for {len(rows)} tables.", hint)


def _find_weak_binding(target: Target) -> Finding | None:
    """Finds a role whose binding to tenants has no effect. Only the owner may read the bindings, so for other roles
    this returns None."""
    [(may_read,)] = target.query_schema("SELECT has_table_privilege('{schema}.tenant_roles', 'SELECT')")
    if not may_read:
        return None
    rows = target.query_schema(_BOUND_ROLES)
    if unmarked := [role for role, is_marked, _ in rows if not is_marked]:
        says = (
            f"The binding of {_join_some_names(unmarked)} to tenants has no effect: the mark of bound roles is missing."
        )
        return Finding("tenants", "wrong", says, "Run `watchbill db roles create` again: it restores the mark.")
    if wide := [role for role, _, is_wide in rows if is_wide]:
        says = f"{_join_some_names(wide)} may work for all tenants, although bound to some: a worker or owner does."
        return Finding("tenants", "wrong", says, "Run `watchbill db roles revoke ROLE worker`, and use another role.")
    return None


def check_commands(target: Target) -> Finding:
    """Finds SQL commands of schedules that a role of a tenant wrote, when an earlier release still let it: workers run
    them with rights on all tenants."""
    [(is_there, may_read)] = target.query(
        "SELECT t.oid IS NOT NULL, coalesce(has_table_privilege(t.oid, 'SELECT'), false)"
        " FROM (SELECT to_regclass(format('%%I.tenant_roles', %s::text)) AS oid) t",
        target.settings.schema,
    )
    if not may_read:
        why = "only the owner can read which roles are bound" if is_there else "the schema does not have it yet"
        return Finding("commands", "skipped", f"Not checked: {why}.")
    rows = target.query_schema(_COMMANDS_OF_TENANTS)
    hint = (
        "Read each command. Then remove its schedule, or write the command again with `watchbill schedules update` as "
        "an operator that is not bound to a tenant."
    )
    if written := [name for name, is_unknown in rows if not is_unknown]:
        says = f"A role that is bound to a tenant wrote SQL commands that workers run: {_join_some_names(written)}."
        return Finding("commands", "wrong", says, hint)
    if unknown := [name for name, _ in rows]:
        says = f"SQL commands whose writer is not recorded, and may be bound to a tenant: {_join_some_names(unknown)}."
        return Finding("commands", "note", says, hint)
    return Finding("commands", "ok", "No role that is bound to a tenant wrote a SQL command of a schedule.")


def _join_some_names(names: list[str]) -> str:
    return ", ".join(names[:_MAX_NAMES] + ["..."] * (len(names) > _MAX_NAMES))
