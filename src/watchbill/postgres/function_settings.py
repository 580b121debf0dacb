"""Reads a package's settings.txt: the settings with which each function of the schema runs.

The file itself says how its lines are written. The migrator applies it after the function files, in their transaction,
because CREATE OR REPLACE takes every setting away that the statement itself does not have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from psycopg import sql

from watchbill.errors import SchemaError

_MADE = re.compile(r"\bCREATE OR REPLACE FUNCTION (\w+)")


@dataclass(frozen=True)
class FunctionSettings:
    """The lines of a settings.txt: patterns of names whose search_path is not pinned, and settings by function."""

    unpinned: tuple[str, ...]
    functions: dict[str, dict[str, str]]

    @classmethod
    def read(cls, file: Traversable) -> FunctionSettings:
        unpinned: list[str] = []
        sets: dict[str, dict[str, str]] = {}
        functions: dict[str, dict[str, str]] = {}
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            stated, _, why = line.partition("|")
            try:
                match stated.split():
                    case []:
                        pass
                    case [first, *_] if first.startswith("#"):
                        pass
                    case ["unpinned", pattern] if why:
                        unpinned.append(pattern.replace("_", r"\_").replace("*", "%"))
                    case ["set", name, *settings] if why and settings and name not in sets:
                        sets[name] = dict(_read_setting(setting) for setting in settings)
                    case ["function", name, *used] if used and name not in functions:
                        functions[name] = {setting: value for one in used for setting, value in sets[one].items()}
                    case _:
                        raise ValueError
            except (KeyError, ValueError):
                raise SchemaError(
                    f"{file.name}, line {number} is invalid: {line}", hint="The head of the file says what a line has."
                ) from None
        return cls(tuple(unpinned), functions)

    def ensure_known(self, texts: Iterable[str]) -> None:
        """Refuses a line about a function that no function file makes."""
        made = {name for text in texts for name in _MADE.findall(text)}
        if unknown := ", ".join(sorted(self.functions.keys() - made)):
            raise SchemaError(f"settings.txt names functions that no file makes: {unknown}.", hint="Correct the names.")

    def as_sql(self) -> str:
        """Returns the SQL statement with which the migrator applies these settings to the functions."""
        template = (files("watchbill.postgres") / "sql" / "function_settings.sql").read_text(encoding="utf-8")
        stated = json.dumps({"unpinned": self.unpinned, "functions": self.functions})
        return sql.SQL(template).format(settings=stated).as_string(None)


def _read_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ValueError
    return name, value
