"""Schedules that stand in the code: declared by App and Tasks, written to the database when a node starts.

A declaration has a name that stays, an owner (the App's name) and a hash of what it says. The database writes it when
the hash is new to it, and otherwise leaves the schedule as it is, so that what an operator changed stands until the
code changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from watchbill.app.rules import Definition, FindTask, Rule
    from watchbill.app.task import Task


class Declared:
    """One of them. What it says is checked where it is written down, so that a slip is found by the import."""

    def __init__(self, name: str, pattern: str | None, rule: Rule, find: FindTask, tenant: str = "default") -> None:
        self.name, self.tenant = name, tenant
        self._pattern, self._rule, self._find = pattern, rule, find
        with contextlib.suppress(NameError):  # an annotation of its task that is defined further down; checked at start
            _ = self.definition

    @cached_property
    def definition(self) -> Definition:
        from watchbill.app.rules import define  # with the whole cron language, which an App without schedules can spare

        return define(self.name, self._pattern, self._rule, self._known, self.tenant)

    def _known(self, type: str) -> Task[..., Any]:
        task = self._find(type)
        if task is None:
            from watchbill.app.rule_checks import wrong

            raise wrong(self.name, f"there is no task {type!r} here", "Give the task itself, or declare it further up.")
        return task

    @property
    def hash(self) -> str:
        from watchbill.app.rules import fingerprint

        return fingerprint(self.definition)

    @property
    def meaning(self) -> str:
        """When it fires, in English."""
        from watchbill.cron import Cron

        said = self.definition
        if "every" in said:
            return f"every {said['every']:g} s"
        if "pattern" not in said:
            at_start = "when the cluster starts" if said.get("run_on_start") else "on demand"
            return f"at {said['at']}" if "at" in said else at_start
        return Cron(said["pattern"], said.get("tz", "UTC"), said.get("dst", "default")).explain()

    def __repr__(self) -> str:
        return f"<Declared {self.name}>"


class Declarations:
    """Those of one App or Tasks, by tenant and name."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], Declared] = {}

    def add(self, declared: Declared) -> None:
        if self._by_name.setdefault((declared.tenant, declared.name), declared) is not declared:
            raise ValueError(
                f"two schedules are named {declared.name!r}; a schedule without a name has that of its task, "
                "so give all but one of them a name="
            )

    def take(self, others: Declarations) -> None:
        for declared in others:
            self.add(declared)

    def __iter__(self) -> Iterator[Declared]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def as_json(self) -> bytes:
        """For the database: an array of definitions, each with its hash."""
        import orjson

        return orjson.dumps([{**declared.definition, "hash": declared.hash} for declared in self])
