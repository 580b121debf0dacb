"""The roles of an installation: owner, worker, producer, operator and reader, as groups that login roles join.

`create_roles` makes the five groups, makes the group of the owner the owner of the schema, and applies rights.txt. From
then on the migrator applies rights.txt at every upgrade; it finds the groups by the prefix of their names, in
`installation.role_prefix`. Only the groups have rights, so a login role can do a kind of work if it is a member.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import psycopg
from psycopg import sql

from watchbill.errors import SchemaError
from watchbill.postgres.connect import Connection
from watchbill.postgres.migrate import run_locked
from watchbill.postgres.rights import ROLE_KINDS, Rights
from watchbill.store.facades import installed_facades
from watchbill.store.jcron_schema import JcronSchema
from watchbill.store.queries import queries
from watchbill.store.tenants import bind_role, set_default_tenant, unbind_role

Report = Callable[[str], None]

KINDS = ("owner", *ROLE_KINDS)
DEFAULT_PREFIX = "watchbill"
_FOR_ALL_TENANTS = ("owner", "worker")
_PREFIX = re.compile(r"[a-z_][a-z0-9_]{0,49}")


@dataclass(frozen=True)
class RoleMembers:
    """One group and the roles that are its direct members."""

    kind: str
    role: str
    members: tuple[str, ...]


def create_roles(
    url: str,
    schema: str,
    jcron_schema: str,
    prefix: str = DEFAULT_PREFIX,
    report: Report = lambda _: None,
) -> None:
    """Makes the groups that are missing, and gives each group exactly the rights that rights.txt states."""
    if not _PREFIX.fullmatch(prefix):
        raise SchemaError(
            f"The prefix {prefix!r} is invalid.", hint="Use up to 50 lower-case letters, digits and underscores."
        )

    def create_under_lock(connection: Connection) -> None:
        known = _read_prefix(connection, schema)
        if known not in (None, prefix):
            raise SchemaError(
                f"Schema {schema} has roles already, whose names begin with {known}_.",
                hint=f"Run it with --prefix {known}.",
            )
        for kind in KINDS:
            if _create_role(connection, f"{prefix}_{kind}"):
                report(f"role {prefix}_{kind}")
        if _change_owner(connection, schema, jcron_schema, f"{prefix}_owner"):
            report(f"schema {schema} belongs to {prefix}_owner")
        connection.execute(
            sql.SQL("UPDATE {} SET role_prefix = %s").format(_name_table(schema, "installation")), (prefix,)
        )
        for facade in installed_facades(connection, schema):
            facade.hand_over(connection, with_schema=facade.has_own_schema(connection))
        _grant_rights(connection, schema, jcron_schema, prefix)

    _run_or_explain_refusal(url, schema, create_under_lock)


def grant_role(
    url: str, schema: str, role: str, kind: str | None, tenants: Sequence[str] = (), report: Report = lambda _: None
) -> None:
    """Makes a role a member of the group for one kind of work, and binds it to tenants. Reports what is left to do."""

    if tenants and kind in _FOR_ALL_TENANTS:
        raise SchemaError(
            f"A role that works as {kind} cannot be bound to a tenant: it acts for all tenants.",
            hint="Bind a producer, an operator or a reader.",
        )

    def grant_under_lock(connection: Connection) -> None:
        _check_role(connection, role)
        for tenant in tenants:  # binds before granting, so that the role never has rights on rows of all tenants
            bind_role(connection, schema, role, tenant)
        if tenants:
            _set_default_tenant(connection, schema, role, report)
        if kind is not None:
            _change_membership(connection, schema, "GRANT {} TO {}", role, kind)
        _refuse_bound_worker(connection, schema, role)

    _run_or_explain_refusal(url, schema, grant_under_lock)


def revoke_role(
    url: str, schema: str, role: str, kind: str | None, tenants: Sequence[str] = (), report: Report = lambda _: None
) -> None:
    def revoke_under_lock(connection: Connection) -> None:
        _check_role(connection, role)
        if kind is not None:
            _change_membership(connection, schema, "REVOKE {} FROM {}", role, kind)
        for tenant in tenants:
            unbind_role(connection, schema, role, tenant)
        if tenants:
            _set_default_tenant(connection, schema, role, report)

    _run_or_explain_refusal(url, schema, revoke_under_lock)


def _refuse_bound_worker(connection: Connection, schema: str, role: str) -> None:
    """Raises if a role is bound to a tenant and also acts for all tenants, whichever was granted first."""
    rows = connection.execute(queries(schema)["unbound_groups_of_role"].encode(), (list(_FOR_ALL_TENANTS), role))
    for (group,) in rows.fetchall():
        raise SchemaError(
            f"Role {role} is a member of {group} and bound to a tenant: a role of that group acts for all tenants.",
            hint="Use a role of its own for each, or revoke one of the two first: watchbill db roles revoke.",
        )


def _set_default_tenant(connection: Connection, schema: str, role: str, report: Report) -> None:
    if refused := set_default_tenant(connection, schema, role):
        report(
            "PostgreSQL lets only a superuser change the default tenant of a role. Until one runs this statement, "
            f"programs of {role} have to name the tenant themselves:"
        )
        report(f"{refused};")


def read_bound_roles(url: str, schema: str) -> dict[str, list[str]]:
    """Returns the roles that are bound to tenants, with their tenants."""
    with Connection.connect(url, application_name="watchbill roles") as connection:
        return dict(connection.execute(queries(schema)["bound_roles"].encode()).fetchall())


def read_roles(url: str, schema: str) -> list[RoleMembers]:
    """Returns the groups of the installation with their members; none if `create_roles` was never called."""
    with Connection.connect(url, application_name="watchbill roles") as connection:
        rows = connection.execute(queries(schema)["roles"].encode()).fetchall()
    return [RoleMembers(kind, role, tuple(members)) for kind, role, members in rows]


def _run_or_explain_refusal(url: str, schema: str, work: Callable[[Connection], None]) -> None:
    try:
        run_locked(url, schema, work)
    except psycopg.errors.InsufficientPrivilege as error:
        raise SchemaError(
            f"PostgreSQL refused it: {error.diag.message_primary}.",
            hint="Run it as a superuser, or as the owner of the schema with CREATEROLE and rights on the database.",
        ) from error


def _read_prefix(connection: Connection, schema: str) -> str | None:
    row = connection.execute(
        sql.SQL("SELECT role_prefix FROM {}").format(_name_table(schema, "installation"))
    ).fetchone()
    return row[0] if row else None


def _create_role(connection: Connection, name: str) -> bool:
    if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (name,)).fetchone():
        return False
    connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(name)))
    return True


def _change_owner(connection: Connection, schema: str, jcron_schema: str, owner: str) -> bool:
    """Makes `owner` the owner of the schema and of everything in it. The former owner becomes a member of `owner`, so
    that its programs work on."""
    [(former, user, is_superuser)] = connection.execute(
        "SELECT pg_get_userbyid(n.nspowner), current_user, r.rolsuper"
        " FROM pg_namespace n, pg_roles r WHERE n.nspname = %s AND r.rolname = current_user",
        (schema,),
    )
    if former == owner:
        return False
    for member in {former, user} if not is_superuser else set():
        connection.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(owner), sql.Identifier(member)))
    grant_create = sql.SQL("GRANT CREATE ON DATABASE {} TO {}")
    connection.execute(grant_create.format(sql.Identifier(connection.info.dbname), sql.Identifier(owner)))
    schemas = [schema]
    if JcronSchema(schema, jcron_schema).is_up_to_date(connection):
        schemas.append(jcron_schema)
    connection.execute("SET LOCAL lock_timeout = '2s'")  # while this waits for a lock, workers wait behind it
    for statement in [*_make_ownership_statements(connection, schemas, owner)]:
        connection.execute(statement.encode())
    return True


def _make_ownership_statements(connection: Connection, schemas: list[str], owner: str) -> Iterator[str]:
    """Yields the statements that change the owner of each object. Indexes, row types and the sequences of identity
    columns need none: their owner changes with that of their table."""
    rows = connection.execute(queries(schemas[0])["ownership_statements"].encode(), (schemas, owner)).fetchall()
    return (statement for (statement,) in rows)


def _grant_rights(connection: Connection, schema: str, jcron_schema: str, prefix: str) -> None:
    rights = Rights.read(files("watchbill.store") / "rights.txt")
    apply = sql.SQL("SELECT {}(%s)").format(_name_table(schema, "_apply_rights"))
    connection.execute(apply, (rights.as_json(),))
    if JcronSchema(schema, jcron_schema).is_up_to_date(connection):
        groups = sql.SQL(", ").join(sql.Identifier(f"{prefix}_{kind}") for kind in ROLE_KINDS)
        name = sql.Identifier(jcron_schema)
        connection.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(name, groups))
        connection.execute(sql.SQL("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {} TO {}").format(name, groups))


def _change_membership(connection: Connection, schema: str, statement: Any, role: str, kind: str) -> None:
    prefix = _read_prefix(connection, schema)
    if prefix is None:
        raise SchemaError(f"Schema {schema} has no roles yet.", hint="Run `watchbill db roles create`.")
    if kind not in KINDS:
        raise SchemaError(f"The kind {kind!r} is invalid.", hint=f"It is one of {', '.join(KINDS)}.")
    group = sql.Identifier(f"{prefix}_{kind}")
    connection.execute(sql.SQL(statement).format(group, sql.Identifier(role)))


def _check_role(connection: Connection, role: str) -> None:
    if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone():
        raise SchemaError(f"There is no role {role!r}.", hint="Create it first: CREATE ROLE name LOGIN PASSWORD '...'.")


def _name_table(schema: str, name: str) -> sql.Identifier:
    return sql.Identifier(schema, name)
