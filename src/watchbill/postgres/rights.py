"""Reads a package's rights.txt: who may call each function of the schema, and with whose rights it runs.

The file itself says how its lines are written. The migrator applies it after the function files, so that these files
need no GRANT; the SQL function `_apply_rights` does the work.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib.resources.abc import Traversable

from watchbill.errors import SchemaError

ROLE_KINDS = ("producer", "worker", "operator", "reader")


@dataclass(frozen=True)
class FunctionRight:
    """A line of rights.txt about a function, or about all functions of one name."""

    name: str
    definer: bool
    roles: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class RelationRight:
    """A line of rights.txt about a table, view or sequence."""

    name: str
    privileges: str
    roles: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Rights:
    """The lines of a rights.txt."""

    functions: tuple[FunctionRight, ...]
    relations: tuple[RelationRight, ...]

    @classmethod
    def read(cls, file: Traversable) -> Rights:
        functions: list[FunctionRight] = []
        relations: list[RelationRight] = []
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            stated, _, why = line.partition("|")
            words = stated.split()
            if not words or words[0].startswith("#"):
                continue
            try:
                kind, name, how, *roles = words
                named = _read_roles(roles)
                if kind == "function" and how in ("definer", "invoker") and why:
                    functions.append(FunctionRight(name, how == "definer", named, why.strip()))
                elif kind == "relation" and why:
                    relations.append(RelationRight(name, how, named, why.strip()))
                else:
                    raise ValueError
            except ValueError:
                raise SchemaError(
                    f"{file.name}, line {number} is invalid: {line}", hint="The head of the file says what a line has."
                ) from None
        return cls(tuple(functions), tuple(relations))

    def as_json(self) -> str:
        return json.dumps({"functions": [*map(asdict, self.functions)], "relations": [*map(asdict, self.relations)]})

    def as_sql(self) -> str:
        """Returns the SQL statement with which the migrator applies these rights to the schema."""
        return f"SELECT _apply_rights($rights${self.as_json()}$rights$);\n"


def _read_roles(words: list[str]) -> tuple[str, ...]:
    if words == ["all"]:
        return ROLE_KINDS
    if words == ["owner"]:
        return ()
    if not words or not set(words) <= set(ROLE_KINDS):
        raise ValueError
    return tuple(words)
