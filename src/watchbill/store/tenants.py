"""Row security by tenant: switched on and off per installation, and the roles that are bound to tenants.

If row security is off, no table has a policy. If it is on, every table whose rows belong to tenants has a policy, which
binds the owner of the table too, because most functions run with the owner's rights. Each table is changed in a
transaction of its own: the change locks the table for a moment, and one transaction for all tables would hold up the
workers for longer.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import sql

from watchbill.errors import SchemaError
from watchbill.postgres.connect import Connection
from watchbill.postgres.migrate import run_locked
from watchbill.store.queries import queries


@dataclass(frozen=True)
class RowSecurity:
    """Which tables row security protects. It is on if all are protected, off if none is, and otherwise incomplete."""

    protected: tuple[str, ...]
    unprotected: tuple[str, ...]
    bypassing_owner: str | None  # the owner of the schema, if it is a superuser or may bypass policies

    @property
    def state(self) -> str:
        """Whether row security is `on`, `off` or `incomplete`."""
        if not self.protected:
            return "off"
        return "incomplete" if self.unprotected or self.bypassing_owner else "on"


def enable_tenants(url: str, schema: str) -> int:
    """Protects every table that is not protected yet, and returns how many these were. Safe to run again after it was
    killed."""
    found = read_row_security(url, schema)
    if found.bypassing_owner:
        raise SchemaError(
            f"Row security would not bind the owner of schema {schema}: {found.bypassing_owner} is a superuser or has "
            "BYPASSRLS, and most functions run with the rights of the owner.",
            hint="Give the schema to another role: run `watchbill db roles create`.",
        )
    run_locked(url, schema, lambda held: _call_function(held, schema, "_set_view_security_barriers(true)"))
    for table in found.unprotected:
        run_locked(url, schema, lambda held, name=table: _protect_table(held, schema, name))  # type: ignore[misc]
    return len(found.unprotected)


def disable_tenants(url: str, schema: str) -> int:
    """Opens every protected table to all tenants, and returns how many these were."""
    found = read_row_security(url, schema)
    for table in found.protected:
        run_locked(url, schema, lambda held, name=table: _unprotect_table(held, schema, name))  # type: ignore[misc]
    run_locked(url, schema, lambda held: _call_function(held, schema, "_set_view_security_barriers(false)"))
    return len(found.protected)


def read_row_security(url: str, schema: str) -> RowSecurity:
    with Connection.connect(url, application_name="watchbill tenants") as connection:
        rows = connection.execute(queries(schema)["tenant_tables"].encode()).fetchall()
        [(owner, bypasses)] = connection.execute(queries(schema)["schema_owner"].encode(), (schema,)).fetchall()
    return RowSecurity(
        tuple(name for name, is_protected in rows if is_protected),
        tuple(name for name, is_protected in rows if not is_protected),
        owner if bypasses else None,
    )


def bind_role(connection: Connection, schema: str, role: str, tenant: str) -> None:
    """Binds a role to a tenant: it sees and writes only rows of its tenants, whatever the settings of its session."""
    if not tenant:
        raise SchemaError("A tenant without a name is invalid.", hint="Give --tenant NAME.")
    connection.execute(queries(schema)["bind_role"].encode(), (tenant, role))


def unbind_role(connection: Connection, schema: str, role: str, tenant: str) -> None:
    connection.execute(queries(schema)["unbind_role"].encode(), (role, tenant))


def set_default_tenant(connection: Connection, schema: str, role: str) -> str | None:
    """Sets the default tenant of a role that is bound to one tenant only, or else removes it. PostgreSQL allows this
    only to a superuser: otherwise returns the statement that one has to run."""
    rows = connection.execute(queries(schema)["tenants_of_role"].encode(), (role,)).fetchall()
    tenant = rows[0][0] if len(rows) == 1 else None
    (present,) = connection.execute(queries(schema)["default_tenant_of_role"].encode(), (role,)).fetchone() or (None,)
    if tenant == present:
        return None
    name = sql.Identifier(role)
    statement = sql.SQL("ALTER ROLE {} RESET watchbill.tenant").format(name)
    if tenant is not None:
        statement = sql.SQL("ALTER ROLE {} SET watchbill.tenant = {}").format(name, sql.Literal(tenant))
    try:
        with connection.transaction():
            connection.execute(statement)
    except psycopg.errors.InsufficientPrivilege:
        return statement.as_string(connection)
    return None


def _protect_table(connection: Connection, schema: str, table: str) -> None:
    connection.execute("SET LOCAL lock_timeout = '2s'")
    connection.execute(queries(schema)["protect_table"].encode(), (table,))


def _unprotect_table(connection: Connection, schema: str, table: str) -> None:
    connection.execute("SET LOCAL lock_timeout = '2s'")
    connection.execute(queries(schema)["unprotect_table"].encode(), (table,))


def _call_function(connection: Connection, schema: str, call: str) -> None:
    connection.execute(f"SELECT {sql.Identifier(schema).as_string(None)}.{call}".encode())
