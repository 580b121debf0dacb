"""Queue: what a program's code declares about a queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from watchbill.model.option_names import suggest_options

LARGEST_SHARE = 1000


@suggest_options
@dataclass(frozen=True)
class Queue:
    """A rule for a queue. `limit`: at most so many of its jobs run at once, in the whole installation. `fair_by`: its
    jobs take turns between the values of a format such as `"{tenant}"`; `shares` gives some values more than one job
    per turn."""

    name: str
    limit: int | None = None
    fair_by: str | None = None
    shares: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= 100:
            raise ValueError(f"Queue({self.name!r}) is invalid: a queue has 1 to 100 characters")
        if self.limit is not None and (type(self.limit) is not int or self.limit < 0):
            raise ValueError(f"Queue(limit={self.limit!r}) is invalid: it must be a whole number from 0 on")
        if self.fair_by is not None and not isinstance(self.fair_by, str):
            raise TypeError(f"Queue(fair_by={self.fair_by!r}) is invalid: give a format, such as '{{tenant}}'")
        if not isinstance(self.shares, Mapping):
            raise TypeError(f"Queue(shares={self.shares!r}) is invalid: give a dictionary, such as {{'acme': 3}}")
        if self.shares and self.fair_by is None:
            raise ValueError("Queue(shares=...) needs fair_by, which says whose shares they are")
        for share, weight in self.shares.items():
            if type(weight) is not int or not 1 <= weight <= LARGEST_SHARE:
                raise ValueError(
                    f"Queue(shares={{{share!r}: {weight!r}}}) is invalid: a share is a whole number from 1 to "
                    f"{LARGEST_SHARE}"
                )

    @property
    def definition(self) -> dict[str, Any]:
        """The queue in the form that the SQL function declare_queues() takes."""
        return (
            {"name": self.name}
            | ({} if self.limit is None else {"max": self.limit})
            | ({} if self.fair_by is None else {"fair_by": self.fair_by})
            | ({"shares": dict(self.shares)} if self.shares else {})
        )
