"""Schedules that the code declares, in an App or a Tasks; a node that starts writes them to the database.

A declaration has a fixed name, an owner (the App's name) and a hash of its definition. The database writes it only if
the hash is new, so that an operator's changes stay until the code changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from watchbill.app.schedule_definition import Definition, FindTask, Rule
    from watchbill.app.task import Task


class Declaration:
    """A declared schedule. It is checked at once, so that a mistake is found at import."""

    def __init__(
        self,
        name: str,
        pattern: str | None,
        rule: Rule,
        find: FindTask,
        tenant: str = "default",
        tz: str | None = None,
        cell: str | None = None,
    ) -> None:
        self.name, self.tenant, self._tz, self.cell = name, tenant, tz, cell
        self._pattern, self._rule, self._find = pattern, rule, find
        # NameError: an annotation of its task is defined further down. The definition is checked when a node starts.
        with contextlib.suppress(NameError):
            _ = self.definition

    @cached_property
    def definition(self) -> Definition:
        from watchbill.app.schedule_definition import define  # slow to import: it has the whole cron language

        return define(self.name, self._pattern, self._rule, self._find_known, self.tenant, self._tz)

    def in_zone(self, tz: str | None) -> Declaration:
        """The declaration for an App that has this zone. A declaration that names a zone keeps its own."""
        return Declaration(self.name, self._pattern, self._rule, self._find, self.tenant, tz, self.cell)

    def _find_known(self, type: str) -> Task[..., Any]:
        task = self._find(type)
        if task is None:
            from watchbill.app.schedule_definition import invalid

            raise invalid(
                self.name, f"there is no task {type!r} here", "Give the task itself, or declare it further up."
            )
        return task

    @property
    def hash(self) -> str:
        from watchbill.app.schedule_definition import fingerprint

        return fingerprint(self.definition)

    @property
    def meaning(self) -> str:
        """When it fires, in English."""
        from watchbill.cron import Cron
        from watchbill.model.durations import show_duration

        found = self.definition
        if "every" in found:
            return f"every {show_duration(timedelta(seconds=found['every']))}"
        if "pattern" not in found:
            at_start = "when the cluster starts" if found.get("run_on_start") else "on demand"
            return f"at {found['at']}" if "at" in found else at_start
        return Cron(found["pattern"], found.get("tz", "UTC"), found.get("dst", "default")).explain()

    def __repr__(self) -> str:
        return f"<Declaration {self.name}>"


class Declarations:
    """The declarations of one App or Tasks, by tenant and name."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], Declaration] = {}

    def add(self, declared: Declaration) -> None:
        if self._by_name.setdefault((declared.tenant, declared.name), declared) is not declared:
            raise ValueError(
                f"two schedules are named {declared.name!r}; give one of them another name= (default: the task's type)"
            )

    def remove(self, name: str, tenant: str = "default") -> None:
        """Does nothing if there is no such declaration."""
        self._by_name.pop((tenant, name), None)

    def __iter__(self) -> Iterator[Declaration]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def as_json(self, is_wanted: Callable[[Declaration], bool] = lambda declared: True) -> bytes:
        """Makes a JSON array of the definitions that are wanted, each with its hash, for the database."""
        import orjson

        chosen = [declared for declared in self if is_wanted(declared)]
        return orjson.dumps([{**declared.definition, "hash": declared.hash} for declared in chosen])
