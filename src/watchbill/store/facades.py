"""Facades: the relations and functions of another system, under its own names, on Watchbill's engine.

Each facade is a directory `compat/<name>/` of SQL files. They create views, functions, and materialized views of
constants, so installing a facade again, or removing it, touches no data. In the files, `@facade@` stands for the schema
of the facade and `@prefix@` for the beginning of every name; all other names are Watchbill's, because the files run
with its schema as search_path.

The table `facades` records which facades are installed and where, and a comment on each object names its facade. If an
object of the same name lacks that comment, it belongs to another program, and nothing is installed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any, NamedTuple

from psycopg import errors, sql
from psycopg.types.json import Jsonb

from watchbill.errors import SchemaError, SettingsError
from watchbill.postgres.connect import Connection
from watchbill.postgres.migrate import run_locked

Report = Callable[[str], None]

_CREATED = re.compile(r"CREATE (?:OR REPLACE (?:VIEW|FUNCTION)|MATERIALIZED VIEW) @facade@\.@prefix@(\w+)")
_SIGNATURE = "Watchbill's facade {name}, of the installation in schema {engine}"
_OBJECTS = """
    SELECT o.oid, o.kind, o.name, o.signature, o.comment, pg_get_userbyid(o.owner),
      (SELECT coalesce(jsonb_agg(jsonb_build_array(a.grantee::regrole::text, a.privilege_type, a.is_grantable)), '[]')
       FROM aclexplode(o.acl) a WHERE a.grantee <> 0 AND a.grantee <> o.owner)
    FROM (
      SELECT c.oid, CASE c.relkind WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'VIEW' END AS kind, c.relname AS name,
        c.oid::regclass::text AS signature, obj_description(c.oid, 'pg_class') AS comment, c.relacl AS acl,
        c.relowner AS owner
      FROM pg_class c
      WHERE c.relnamespace = to_regnamespace(%(schema)s) AND c.relkind IN ('r', 'v', 'm', 'f', 'p', 'S')
      UNION ALL
      SELECT p.oid, 'ROUTINE', p.proname, p.oid::regprocedure::text,
        obj_description(p.oid, 'pg_proc'), p.proacl, p.proowner
      FROM pg_proc p
      WHERE p.pronamespace = to_regnamespace(%(schema)s)) o
    ORDER BY o.kind DESC, o.signature
"""


# Finds the role that owns everything of the installation, if the installation has roles; whether that role may create
# objects in the facade's schema; who owns the facade's schema; and the role of workers.
_OWNER = """
    SELECT r.rolname, has_schema_privilege(r.oid, f.oid, 'CREATE'), pg_get_userbyid(f.nspowner),
      i.role_prefix || '_worker'
    FROM {installation} i
    JOIN pg_roles r ON r.rolname = i.role_prefix || '_owner'
    JOIN pg_namespace f ON f.oid = to_regnamespace(%(schema)s)
"""


class Default(NamedTuple):
    schema: str
    prefix: str


# In which schema, and with which prefix, each facade has its names. A facade without a directory of SQL files does not
# exist yet.
DEFAULTS = {
    "jcron": Default("public", ""),
    "jobforge": Default("public", "jobforge_"),
    "jobsync": Default("public", "sync_"),
    "seesaw": Default("seesaw", ""),
}


class _Object(NamedTuple):
    oid: int
    kind: str
    name: str
    signature: str
    comment: str | None
    owner: str
    grants: list[list[Any]]  # grantee, privilege, and whether the grantee may grant the privilege to others


@dataclass(frozen=True)
class Facade:
    """One facade, with the schema and the prefix under which it is installed."""

    engine: str
    name: str
    schema: str
    prefix: str

    @classmethod
    def choose(cls, engine: str, name: str, schema: str | None = None, prefix: str | None = None) -> Facade:
        if name not in available_facades():
            raise SettingsError(f"{name!r} is not a facade.", hint=f"Give one of {', '.join(available_facades())}.")
        default = DEFAULTS[name]
        schema, prefix = schema or default.schema, default.prefix if prefix is None else prefix
        if not re.fullmatch(r"([a-z_][a-z0-9_]{0,29})?", prefix):
            raise SettingsError(
                f"The prefix {prefix!r} is invalid.",
                hint="Give up to 30 lower-case letters, digits and underscores; the first is not a digit.",
            )
        if schema == engine:
            raise SettingsError(
                f"The facade cannot be in schema {engine}, which is the engine's.", hint="Give another --schema."
            )
        return cls(engine, name, schema, prefix)

    @cached_property
    def script(self) -> str:
        """The text of the SQL files, with schema and prefix filled in."""
        return self._fill_names_in("\n".join(_read_files(self.name)))

    @cached_property
    def checksum(self) -> str:
        return hashlib.sha256(self.script.encode()).hexdigest()[:16]

    @cached_property
    def names(self) -> set[str]:
        return {self.prefix + name for text in _read_files(self.name) for name in _CREATED.findall(text)}

    @property
    def comment(self) -> str:
        return _SIGNATURE.format(name=self.name, engine=self.engine)

    def install(self, connection: Connection) -> bool:
        """Installs or updates the facade. Returns whether anything was changed. The caller holds the migration lock and
        has an open transaction."""
        self._set_search_path(connection)
        found = self.find_objects(connection)
        if self._is_current(connection, found):
            return False
        self._refuse_foreign_objects(found)
        grants = self._read_grants(connection, found)
        self._drop_objects(connection, found)
        created_schema = self._create_schema(connection)
        before = {o.oid for o in self.find_objects(connection)}
        connection.execute(self.script.encode())
        for made in self.find_objects(connection):
            if made.oid not in before:
                self._add_comment(connection, made)
        self._restore_grants(connection, grants)
        self.hand_over(connection, with_schema=created_schema)
        connection.execute(
            sql.SQL(
                "INSERT INTO {} (name, schema, prefix, checksum, created_schema) VALUES (%s, %s, %s, %s, %s) "
                "ON CONFLICT (name) DO UPDATE SET checksum = EXCLUDED.checksum, grants = EXCLUDED.grants, "
                "installed_at = EXCLUDED.installed_at"
            ).format(self._table),
            (self.name, self.schema, self.prefix, self.checksum, created_schema),
        )
        return True

    def hand_over(self, connection: Connection, *, with_schema: bool = False) -> None:
        """Makes the owner role of the installation, if it has roles, the owner of the facade's objects, so that each
        member of that role can migrate them. Lets workers use them."""
        self._set_search_path(connection)
        statement = sql.SQL(_OWNER).format(installation=sql.Identifier(self.engine, "installation"))
        row = connection.execute(statement, self._query_parameters).fetchone()
        if row is None:
            return
        owner, may_create, owner_of_schema, workers = row
        name = sql.Identifier(owner).as_string(None)
        place = self._query_parameters["schema"]
        if with_schema and owner_of_schema != owner:
            connection.execute(f"ALTER SCHEMA {place} OWNER TO {name}".encode())
        elif not may_create:
            self._allow_creating(connection, owner)
        for found in self.find_objects(connection):
            if found.comment == self.comment and found.owner != owner:
                connection.execute(f"ALTER {found.kind} {found.signature} OWNER TO {name}".encode())
        self._let_workers_use(connection, workers)

    def _let_workers_use(self, connection: Connection, role: str) -> None:
        """Grants workers all functions and views of the facade. These run with the rights of their caller, so a worker
        gets no more rights on what is behind them."""
        name = sql.Identifier(role).as_string(None)
        place = self._query_parameters["schema"]
        asks = "SELECT has_schema_privilege(%(role)s, to_regnamespace(%(schema)s), 'USAGE')"
        if connection.execute(asks, {**self._query_parameters, "role": role}).fetchone() == (False,):
            connection.execute(f"GRANT USAGE ON SCHEMA {place} TO {name}".encode())
        for kind, privilege in (("ROUTINE", "EXECUTE"), ("VIEW", "SELECT")):
            ours = [o.signature for o in self.find_objects(connection) if (o.kind, o.comment) == (kind, self.comment)]
            what = "ROUTINE" if kind == "ROUTINE" else "TABLE"
            if ours:
                connection.execute(f"GRANT {privilege} ON {what} {', '.join(ours)} TO {name}".encode())

    def suspend(self, connection: Connection) -> None:
        """Drops the facade's objects, but records the rights on them, so that install() can make them again."""
        self._set_search_path(connection)
        found = self.find_objects(connection)
        connection.execute(
            sql.SQL("UPDATE {} SET checksum = '', grants = %s WHERE name = %s").format(self._table),
            (Jsonb(self._read_grants(connection, found)), self.name),
        )
        self._drop_objects(connection, found)

    def uninstall(self, connection: Connection) -> None:
        self._set_search_path(connection)
        self._drop_objects(connection, self.find_objects(connection))
        row = connection.execute(
            sql.SQL("DELETE FROM {} WHERE name = %s RETURNING created_schema").format(self._table), (self.name,)
        ).fetchone()
        if row == (True,) and not self.find_objects(connection):
            connection.execute(sql.SQL("DROP SCHEMA {}").format(sql.Identifier(self.schema)))

    def find_objects(self, connection: Connection) -> list[_Object]:
        """Returns all relations and routines in the facade's schema, also those of other programs."""
        return [_Object(*row) for row in connection.execute(_OBJECTS.encode(), self._query_parameters)]

    @property
    def _query_parameters(self) -> dict[str, str]:
        return {"schema": sql.Identifier(self.schema).as_string(None)}

    @property
    def _table(self) -> sql.Identifier:
        return sql.Identifier(self.engine, "facades")

    def _set_search_path(self, connection: Connection) -> None:
        """Sets the search_path to the engine's schema, because the SQL files use names of that schema. PostgreSQL then
        also writes the signatures of functions always in the same way."""
        connection.execute(sql.SQL("SET LOCAL search_path = {}, pg_temp").format(sql.Identifier(self.engine)))

    def _fill_names_in(self, text: str) -> str:
        return text.replace("@facade@", sql.Identifier(self.schema).as_string(None)).replace("@prefix@", self.prefix)

    def _is_current(self, connection: Connection, found: list[_Object]) -> bool:
        """Whether the SQL files of this release were installed, and every object that they create exists."""
        row = connection.execute(
            sql.SQL("SELECT checksum FROM {} WHERE name = %s").format(self._table), (self.name,)
        ).fetchone()
        ours = {o.name for o in found if o.comment == self.comment}
        return row == (self.checksum,) and self.names <= ours

    def _refuse_foreign_objects(self, found: list[_Object]) -> None:
        foreign = [o for o in found if o.name in self.names and o.comment != self.comment]
        if foreign:
            names = ", ".join(sorted({o.signature for o in foreign}))
            raise SchemaError(
                f"Schema {self.schema} has {names}, which is not Watchbill's facade {self.name}.",
                hint="Rename it, or give another --schema or --prefix.",
            )

    def _create_schema(self, connection: Connection) -> bool:
        row = connection.execute("SELECT to_regnamespace(%(schema)s) IS NULL", self._query_parameters).fetchone()
        if row == (True,):
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self.schema)))
            return True
        return False

    def has_own_schema(self, connection: Connection) -> bool:
        """Whether install() has created the schema."""
        row = connection.execute(
            sql.SQL("SELECT created_schema FROM {} WHERE name = %s").format(self._table), (self.name,)
        ).fetchone()
        return row == (True,)

    def _allow_creating(self, connection: Connection, owner: str) -> None:
        """Lets the role `owner` create objects in the facade's schema, because PostgreSQL makes a role the owner of an
        object only if the role may create it."""
        name = sql.Identifier(owner).as_string(None)
        grant = f"GRANT USAGE, CREATE ON SCHEMA {self._query_parameters['schema']} TO {name}"
        asks = "SELECT has_schema_privilege(%(owner)s, to_regnamespace(%(schema)s), 'CREATE')"
        try:
            with connection.transaction():
                connection.execute(grant.encode())
                [(may_create,)] = connection.execute(asks, {**self._query_parameters, "owner": owner})
        except errors.InsufficientPrivilege:
            may_create = False
        if not may_create:  # checked, because PostgreSQL may only warn when it refuses a GRANT
            raise SchemaError(
                f"The facade {self.name} must belong to {owner}, which may not create objects in schema {self.schema}.",
                hint=f"Run this as the owner of the schema, and then this command again: {grant}",
            )

    def _drop_objects(self, connection: Connection, found: list[_Object]) -> None:
        """Drops the facade's objects: views first, together with their triggers, because these use the functions."""
        for kind in ("VIEW", "MATERIALIZED VIEW", "ROUTINE"):
            signatures = ", ".join(o.signature for o in found if o.kind == kind and o.comment == self.comment)
            if not signatures:
                continue
            try:
                connection.execute(f"DROP {kind} {signatures}".encode())
            except errors.DependentObjectsStillExist as error:
                raise SchemaError(
                    f"Something of yours uses the facade {self.name}: {error.diag.message_detail}",
                    hint="Drop it first, and create it again afterwards.",
                ) from error

    def _add_comment(self, connection: Connection, made: _Object) -> None:
        comment = sql.Literal(self.comment).as_string(connection)
        connection.execute(f"COMMENT ON {made.kind} {made.signature} IS {comment}".encode())
        if made.kind == "ROUTINE":
            connection.execute(f"REVOKE ALL ON ROUTINE {made.signature} FROM PUBLIC".encode())

    def _read_grants(self, connection: Connection, found: list[_Object]) -> list[list[Any]]:
        """Returns the rights on the facade's objects, including those that were recorded when it was suspended."""
        row = connection.execute(
            sql.SQL("SELECT grants FROM {} WHERE name = %s").format(self._table), (self.name,)
        ).fetchone()
        present = [[o.kind, o.signature, *grant] for o in found if o.comment == self.comment for grant in o.grants]
        return [*(row[0] if row else []), *present]

    def _restore_grants(self, connection: Connection, grants: list[list[Any]]) -> None:
        """Grants the recorded rights again on the new objects, as far as these objects still exist."""
        present = {o.signature for o in self.find_objects(connection)}
        for kind, signature, grantee, privilege, is_grantable in grants:
            if signature in present:
                what = f"ROUTINE {signature}" if kind == "ROUTINE" else signature
                option = " WITH GRANT OPTION" if is_grantable else ""
                connection.execute(f"GRANT {privilege} ON {what} TO {grantee}{option}".encode())


def available_facades() -> list[str]:
    """Lists the names of the facades that have SQL files."""
    return [name for name in DEFAULTS if (files("watchbill.store") / "compat" / name).is_dir()]


def installed_facades(connection: Connection, engine: str) -> list[Facade]:
    rows = connection.execute(
        sql.SQL("SELECT name, schema, prefix FROM {} ORDER BY name").format(sql.Identifier(engine, "facades"))
    )
    return [Facade(engine, *row) for row in rows]


def install_facade(url: str, facade: Facade, report: Report = lambda _: None) -> None:
    """Installs a facade, or brings it up to date. Raises SchemaError if it is installed in another schema or with
    another prefix."""

    def install_under_lock(connection: Connection) -> bool:
        for other in installed_facades(connection, facade.engine):
            if other.name == facade.name and other != facade:
                raise SchemaError(
                    f"The facade {facade.name} is installed in schema {other.schema} with prefix {other.prefix!r}.",
                    hint=f"Run `watchbill db uninstall {facade.name}` first.",
                )
        return facade.install(connection)

    changed = run_locked(url, facade.engine, install_under_lock, report=report)
    place = f"facade {facade.name} in schema {facade.schema}"
    report(place if changed else f"{place}: already installed")


def uninstall_facade(url: str, engine: str, name: str, report: Report = lambda _: None) -> None:
    """Removes the views and functions of a facade. Jobs and schedules stay."""

    def uninstall_under_lock(connection: Connection) -> bool:
        for facade in installed_facades(connection, engine):
            if facade.name == name:
                facade.uninstall(connection)
                return True
        return False

    removed = run_locked(url, engine, uninstall_under_lock, report=report)
    report(f"facade {name} removed" if removed else f"facade {name} is not installed")


def suspend_facades(url: str, engine: str) -> bool:
    """Drops the objects of all facades, because a migration changes functions that they use. Returns whether any facade
    was installed."""

    def suspend_under_lock(connection: Connection) -> bool:
        installed = installed_facades(connection, engine)
        for facade in installed:
            facade.suspend(connection)
        return bool(installed)

    return run_locked(url, engine, suspend_under_lock)


def refresh_facades(url: str, engine: str, report: Report = lambda _: None) -> None:
    """Updates the installed facades to this release, after a migration."""

    def refresh_under_lock(connection: Connection) -> list[str]:
        return [
            facade.name
            for facade in installed_facades(connection, engine)
            if facade.name in available_facades() and facade.install(connection)
        ]

    for name in run_locked(url, engine, refresh_under_lock, report=report):
        report(f"facade {name}")


def _read_files(name: str) -> list[str]:
    directory = files("watchbill.store") / "compat" / name
    found = sorted((file for file in directory.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [file.read_text(encoding="utf-8") for file in found]
