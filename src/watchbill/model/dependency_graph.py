"""Values that are read from the database about jobs that wait for other jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

RunIf = Literal["all_succeeded", "all_finished", "any_failed"]


@dataclass(frozen=True, slots=True)
class EarlierJob:
    """A job that another job has waited for: a parent has depth 1, its own parents depth 2. A purged job has no
    type."""

    id: UUID
    depth: int
    type: str | None
    state: str | None
    result: Any
    error: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Dependency:
    """Job `child` waits for job `parent`. `outcome` is how the parent ended: succeeded, failed or skipped; None
    before. `arguments` are the parameters of the child that take the parent's result, each with its position in a
    list, or None."""

    child: UUID
    parent: UUID
    place: int
    run_if: RunIf
    outcome: str | None
    arguments: dict[str, int | None] | None


@dataclass(frozen=True, slots=True)
class AdjacentJob:
    """A parent or a child of a job. A purged job has neither type nor state."""

    relation: Literal["waits for", "then"]
    id: UUID
    run_if: RunIf
    type: str | None
    state: str | None


@dataclass(frozen=True, slots=True)
class GraphJob:
    """A job in a dependency graph."""

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
class DependencyGraph:
    """Jobs that are connected by dependencies, and these dependencies. `complete` is False if there were too many, so
    that some jobs were left out."""

    jobs: list[GraphJob]
    dependencies: list[Dependency]
    complete: bool
