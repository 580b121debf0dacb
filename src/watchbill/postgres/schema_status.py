"""Compares the migrations and functions of a schema with those of this program, and says whether they fit together."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from watchbill.errors import SchemaError
from watchbill.postgres.migration_files import Migration, Source

Verdict = Literal["missing", "too old", "ready", "newer", "too new"]


@dataclass(frozen=True)
class AppliedMigration:
    """One row of the table schema_version: a migration that was applied."""

    version: int
    oldest_compatible: int
    name: str
    applied_at: datetime
    watchbill_version: str
    checksum: str


@dataclass(frozen=True)
class AppliedFunctions:
    """The row of the table schema_functions: which function files were applied last, and by which version."""

    checksum: str
    applied_at: datetime
    watchbill_version: str


@dataclass(frozen=True)
class Status:
    """What a schema in the database has (`applied`, `functions`) and what this program needs (`source`)."""

    schema: str
    source: Source
    exists: bool
    has_tables: bool = False
    applied: tuple[AppliedMigration, ...] = ()
    functions: AppliedFunctions | None = None
    is_standby: bool = False

    @property
    def version(self) -> int:
        return max((row.version for row in self.applied), default=0)

    @property
    def oldest_compatible(self) -> int:
        """The number of the migration that a program must know, or a later one, to use this schema."""
        return max((row.oldest_compatible for row in self.applied), default=0)

    @property
    def pending(self) -> tuple[Migration, ...]:
        done = {row.version for row in self.applied}
        return tuple(migration for migration in self.source.migrations if migration.version not in done)

    @property
    def functions_outdated(self) -> bool:
        """Whether the functions in the schema must be replaced. Functions of a newer Watchbill are kept, because they
        also work for older programs."""
        if self.functions is None:
            return bool(self.source.functions)
        newer = _parse_release(self.functions.watchbill_version) > _parse_release(self.source.watchbill_version)
        return not newer and self.functions.checksum != self.source.functions_checksum

    @property
    def verdict(self) -> Verdict:
        if not self.applied:
            return "missing"
        if self.oldest_compatible > self.source.newest:
            return "too new"
        if self.version > self.source.newest:
            return "newer"
        return "too old" if self.pending or self.functions_outdated else "ready"

    def ensure_usable(self) -> None:
        """Raises if a node cannot start on this schema."""
        known, watchbill = self.source.newest, self.source.watchbill_version
        if self.verdict == "missing":
            raise SchemaError(
                f'The database has no Watchbill schema "{self.schema}".', hint="Run `watchbill db migrate`."
            )
        if self.verdict == "too new":
            raise SchemaError(
                f'Schema "{self.schema}" is too new for Watchbill {watchbill}: it is at version {self.version} and '
                f"supports programs that know version {self.oldest_compatible}; this one knows {known}.",
                hint=f"Install Watchbill {self.applied[-1].watchbill_version} or newer.",
            )
        if self.verdict == "too old":
            self.ensure_unchanged()
            lacks = f"is at version {self.version} of {known}" if self.pending else "has functions of another release"
            raise SchemaError(
                f'Schema "{self.schema}" is too old for Watchbill {watchbill}: it {lacks}.',
                hint="Run `watchbill db migrate`.",
            )

    def ensure_unchanged(self) -> None:
        """Raises if the file of a migration was changed after it was applied: the schema may not match the file
        then."""
        known = {migration.version: migration for migration in self.source.migrations}
        for row in self.applied:
            if row.version in known and known[row.version].checksum != row.checksum:
                schema = sql.Identifier(self.schema).as_string(None)
                raise SchemaError(
                    f'Migration {known[row.version].name} was changed after it was applied to schema "{self.schema}", '
                    f"on {row.applied_at:%Y-%m-%d}.",
                    hint="If you have changed the file, restore it, and add a new migration. Otherwise an earlier "
                    f"state of Watchbill {row.watchbill_version} made the schema, and it cannot be upgraded: let that "
                    f"program finish its jobs, then run `DROP SCHEMA {schema} CASCADE` in psql, which deletes jobs, "
                    "schedules and history, and `watchbill db migrate`.",
                )


def read_status(connection: psycopg.Connection[Any], schema: str, source: Source) -> Status:
    exists, has_tables = connection.execute(
        "SELECT count(n.oid) > 0, count(c.oid) > 0 FROM pg_namespace n"
        " LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = 'schema_version' WHERE n.nspname = %s",
        (schema,),
    ).fetchone() or (False, False)
    if not has_tables:
        return Status(schema, source, exists)
    try:
        return _read_applied(connection, schema, source)
    except (psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedTable, TypeError):
        raise SchemaError(
            f'Schema "{schema}" has a table schema_version that is not Watchbill\'s own.',
            hint="Choose another schema for Watchbill: --schema, WATCHBILL_SCHEMA, or schema in the settings file.",
        ) from None


def _read_applied(connection: psycopg.Connection[Any], schema: str, source: Source) -> Status:
    versions = sql.SQL("SELECT * FROM {} ORDER BY version").format(sql.Identifier(schema, "schema_version"))
    functions = sql.SQL("SELECT checksum, applied_at, watchbill_version FROM {}").format(
        sql.Identifier(schema, "schema_functions")
    )
    with connection.cursor(binary=True, row_factory=class_row(AppliedMigration)) as cursor:
        applied = tuple(cursor.execute(versions).fetchall())
    with connection.cursor(binary=True, row_factory=class_row(AppliedFunctions)) as function_cursor:
        return Status(schema, source, True, True, applied, function_cursor.execute(functions).fetchone())


def _parse_release(version: str) -> tuple[int, ...]:
    """Returns the first two numbers of a version, (1, 12) for `1.12.0rc1`, which tell a newer release from an older."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())
