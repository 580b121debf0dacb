"""Reads migrations and function files from a package, and rejects those that break the rules.

A migration is `NNNN_name.sql`, numbered from 1 without a gap, and never changes once released. Its first comment lines
may say:

    -- no transaction           run statement by statement outside a transaction; every statement must be repeatable
    -- oldest_compatible: 7     programs that know migration 7 can use the schema after this one (else: as before)

Function files are every `*.sql` of the functions directory; they are re-applied as a whole, so they use CREATE OR
REPLACE. No file names the schema: all run with search_path set to it. A package states in `settings.txt` with which
settings functions run (see function_settings.py), and in `rights.txt` who may call them (see rights.py).

Function files lie in rooms: folders, which `rooms.txt` in the functions directory lists in the order in which they are
applied. Inside a room files are applied in the order of their names, unless the first line of one says which others
must come before it:

    -- after: new_job, lanes
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Self

from watchbill._version import __version__
from watchbill.errors import SchemaError
from watchbill.postgres.function_settings import FunctionSettings
from watchbill.postgres.rights import Rights

_FILE_NAME = re.compile(r"(?P<version>\d{4})_(?P<name>[a-z0-9_]+)\.sql")
_AFTER = re.compile(r"-- after: (?P<names>\w+(?:, \w+)*)\n")
_COMPATIBLE = re.compile(r"^--\s*oldest_compatible:\s*(\d+)\s*$", re.MULTILINE)
_INDEX = re.compile(
    r"\bCREATE\s+(?:UNIQUE\s+)?INDEX\s+CONCURRENTLY\s+(?:(?P<safe>IF\s+NOT\s+EXISTS)\s+(?P<name>\w+))?", re.IGNORECASE
)


@dataclass(frozen=True)
class SqlFile:
    """One .sql file: its name, which messages show, and its text."""

    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True)
class Migration(SqlFile):
    """One numbered step of the schema."""

    version: int
    oldest_compatible: int

    @property
    def in_transaction(self) -> bool:
        return not self.text.startswith("-- no transaction")


@dataclass(frozen=True)
class Source:
    """What this program's release needs in a schema: its migrations in order, its functions, and the rights on them."""

    migrations: tuple[Migration, ...]
    functions: tuple[SqlFile, ...]
    watchbill_version: str = __version__

    @classmethod
    def of_package(cls, package: str) -> Self:
        """Reads `migrations/`, `sql/`, `settings.txt` and `rights.txt` inside an importable package."""
        root = files(package)
        source = cls.of_directories(root / "migrations", root / "sql")
        settings = FunctionSettings.read(root / "settings.txt")
        settings.ensure_known(file.text for file in source.functions)
        after = (
            SqlFile("settings.txt", settings.as_sql()),
            SqlFile("rights.txt", Rights.read(root / "rights.txt").as_sql()),
        )
        return replace(source, functions=(*source.functions, *after))

    @classmethod
    def of_directories(cls, migrations: Traversable, functions: Traversable) -> Self:
        return cls(_make_migrations(_read_sql_files(migrations)), tuple(_read_function_files(functions)))

    @property
    def newest(self) -> int:
        return len(self.migrations)

    @property
    def functions_checksum(self) -> str:
        parts = (f"{file.name} {file.checksum}\n" for file in self.functions)
        return hashlib.sha256("".join(parts).encode()).hexdigest()


def find_concurrent_index(statement: str) -> str | None:
    """Returns the name of the index that this statement builds concurrently, or None for another statement."""
    match = _INDEX.search(statement)
    return match["name"] if match else None


def _read_sql_files(directory: Traversable) -> list[SqlFile]:
    if not directory.is_dir():
        return []
    found = sorted((file for file in directory.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [SqlFile(file.name, file.read_text(encoding="utf-8")) for file in found]


def _read_function_files(directory: Traversable) -> Iterator[SqlFile]:
    rooms = directory / "rooms.txt"
    if not rooms.is_file():
        yield from _read_sql_files(directory)
        return
    listed = [line.split()[0] for line in rooms.read_text(encoding="utf-8").splitlines()]
    present = {entry.name for entry in directory.iterdir() if entry.is_dir() or entry.name.endswith(".sql")}
    if differing := ", ".join(sorted(present.symmetric_difference(listed))):
        raise SchemaError(
            f"{differing}: rooms.txt must list exactly the folders beside it.", hint="No SQL file lies outside a room."
        )
    for room in listed:
        for file in _order_files(room, _read_sql_files(directory / room)):
            yield SqlFile(f"{room}/{file.name}", file.text)


def _order_files(room: str, found: list[SqlFile]) -> list[SqlFile]:
    """By name, but each file after those that its first line names."""
    waiting = {file.name.removesuffix(".sql"): file for file in found}
    ordered: list[SqlFile] = []
    while waiting:
        free = [name for name, file in waiting.items() if waiting.keys().isdisjoint(_names_before(file))]
        if not free:
            raise SchemaError(f"Room {room}: the lines `-- after:` of {', '.join(waiting)} form a circle.")
        ordered.append(waiting.pop(free[0]))
    known = {file.name.removesuffix(".sql") for file in found}
    for file in found:
        if unknown := ", ".join(_names_before(file) - known):
            raise SchemaError(f"Room {room}: {file.name} is to come after {unknown}, which is not in this room.")
    return ordered


def _names_before(file: SqlFile) -> set[str]:
    first_line = _AFTER.match(file.text)
    return set(first_line["names"].split(", ")) if first_line else set()


def _make_migrations(found: list[SqlFile]) -> tuple[Migration, ...]:
    migrations: list[Migration] = []
    for expected, file in enumerate(found, start=1):
        name = _FILE_NAME.fullmatch(file.name)
        if not name or int(name["version"]) != expected:
            message = f"Migration {file.name}: expected {expected:04d}_name.sql here."
            raise SchemaError(message, hint="Numbers have no gap.")
        previous = migrations[-1].oldest_compatible if migrations else 1
        migrations.append(_make_migration(file, expected, previous))
    return tuple(migrations)


def _make_migration(file: SqlFile, version: int, previous: int) -> Migration:
    declared = _COMPATIBLE.search(file.text)
    oldest = int(declared[1]) if declared else previous
    if not previous <= oldest <= version:
        raise SchemaError(
            f"Migration {file.name}: oldest_compatible must be from {previous} to {version}, not {oldest}."
        )
    migration = Migration(file.name, file.text, version, oldest)
    for statement in () if migration.in_transaction else split_statements(migration.text):
        index = _INDEX.search(statement)
        if index and not index["safe"]:
            raise SchemaError(
                f"Migration {migration.name}: an index built concurrently needs IF NOT EXISTS and a plain name.",
                hint="A killed build leaves an invalid index, which the next run finds by that name and drops.",
            )
    return migration


# Matches everything in which a semicolon does not end a statement, longest forms first. Block comments nest, so this
# pattern only finds their start, and _find_comment_end finds their end.
_TOKEN = re.compile(
    r"""
      (?P<line_comment> --[^\n]* )
    | (?P<block_comment> /\* )
    | (?P<dollar> \$ (?P<tag> (?:[^\W\d]\w*)? ) \$ .*? \$ (?P=tag) \$ )
    | (?P<escape_string> (?<!\w) [eE] ' (?: [^'\\] | \\. | '' )* ' )
    | (?P<string> ' (?: [^'] | '' )* ' )
    | (?P<identifier> " (?: [^"] | "" )* " )
    | (?P<word> \w [\w$]* )
    | (?P<open> \( )
    | (?P<close> \) )
    | (?P<end> ; )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")


def split_statements(text: str) -> Iterator[str]:
    """Yields the statements of a SQL text, without their semicolons, so that they can run one at a time.

    Comments stay with the statement that follows them.
    """
    start = position = depth = 0
    has_content = False
    while token := _TOKEN.search(text, position):
        kind = token.lastgroup or ""
        has_content = has_content or bool(text[position : token.start()].strip())
        position = _find_comment_end(text, token.start()) if kind == "block_comment" else token.end()
        depth += {"open": 1, "close": -1}.get(kind, 0)
        if kind == "end" and depth == 0:
            if has_content:
                yield text[start : token.start()].strip()
            start, has_content = position, False
        elif kind not in {"line_comment", "block_comment"}:
            has_content = True
    if has_content or text[position:].strip():
        yield text[start:].strip()


def _find_comment_end(text: str, start: int) -> int:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)
