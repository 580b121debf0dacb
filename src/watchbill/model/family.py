"""Jobs that wait for other jobs: what can be read of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

RunIf = Literal["all_succeeded", "all_finished", "any_failed"]


@dataclass(frozen=True, slots=True)
class EarlierJob:
    """What a job has waited for: a parent at depth 1, its parents at 2, ... One that is no longer kept has no type."""

    id: UUID
    depth: int
    type: str | None
    state: str | None
    result: Any
    error: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Dependency:
    """`child` waits for `parent`, whose `outcome` is, to the child: succeeded, failed, skipped; None: no end yet."""

    child: UUID
    parent: UUID
    place: int
    run_if: RunIf
    outcome: str | None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A parent or a child of a job; one that is no longer kept has neither type nor state."""

    relation: Literal["waits for", "then"]
    id: UUID
    run_if: RunIf
    type: str | None
    state: str | None


@dataclass(frozen=True, slots=True)
class Relative:
    """A job among those it is connected with."""

    id: UUID
    type: str
    state: str
    attempt: int
    max_attempts: int
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    error: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Family:
    """Jobs that are connected by dependencies, and how. `complete`: these are all."""

    jobs: list[Relative]
    dependencies: list[Dependency]
    complete: bool
