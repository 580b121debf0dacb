"""What the checker reads: the records of producers, handlers and operators, and the tables as they are in the end."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

Row = dict[str, Any]
TABLES = ("jobs", "finished_jobs", "attempts", "claims", "runs", "cancels", "beats", "nodes", "holds")


@dataclass
class Sent:
    """A job as its producer knows it. `fate`: acknowledged, rolled_back, unknown (the answer to a commit was lost)."""

    id: str
    type: str
    key: str | None = None
    not_before: float = 0.0
    fate: str = "unknown"
    answers: list[tuple[str, bool]] = field(default_factory=list)  # the job that stands, and whether it was created
    arguments: Row = field(default_factory=dict)
    began: float = 0.0  # before it was sent for the first time
    asked_at: float = 0.0  # before it was sent for the last time
    acknowledged_at: float = math.inf

    @property
    def names_itself(self) -> bool:
        """Not so a job whose idempotency key or unique key another one had."""
        return all(answer == self.id for answer, _ in self.answers)

    @property
    def others(self) -> list[str]:
        """The earlier jobs that it was told of."""
        return [answer for answer, _ in self.answers if answer != self.id]


@dataclass(frozen=True)
class Start:
    """A handler began. A worker in another language tells neither fence nor run."""

    id: str
    at: float
    fence: int | None = None
    run: int | None = None
    more: Row = field(default_factory=dict)  # what else the handler tells: its revision, its item


@dataclass(frozen=True)
class End:
    """A handler ended: `how` is "returned" or the name of what it raised."""

    id: str
    at: float
    how: str
    fence: int | None = None


@dataclass(frozen=True)
class Cancel:
    """An operator's request; `answer` None: it was lost."""

    id: str
    at: float
    answer: str | None


@dataclass(frozen=True)
class Claim:
    """A fence was given to a job, at this time of the database."""

    id: str
    fence: int
    epoch: int
    at: float


@dataclass(frozen=True)
class Change:
    """What a producer has written in one transaction with an enqueue that was answered with this job."""

    job_id: str
    n: int


@dataclass
class LimitChange:
    """An operator's; `answered` infinite: nobody knows whether it was made."""

    max: int
    asked: float
    answered: float = math.inf


@dataclass
class History:
    sent: dict[str, Sent] = field(default_factory=dict)
    starts: dict[str, list[Start]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[str, list[End]] = field(default_factory=lambda: defaultdict(list))
    cancels: dict[str, list[Cancel]] = field(default_factory=lambda: defaultdict(list))
    tables: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    effects: list[tuple[str, int]] = field(default_factory=list)  # (job, fence) in the order of their numbers
    claims: dict[str, list[Claim]] = field(default_factory=lambda: defaultdict(list))
    releases: dict[tuple[str, int], float] = field(default_factory=dict)  # when a job lost its fence
    changes: list[Change] = field(default_factory=list)
    seen: dict[tuple[str, int], list[int]] = field(default_factory=dict)  # the changes that a run saw
    clears: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # of ordered keys: when asked
    retries: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # of dead jobs: when asked
    limits: dict[str, list[LimitChange]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of_records(cls, records: list[Row]) -> Self:
        history = cls()
        for record in records:
            history._enter(record)
        return history

    def _enter(self, record: Row) -> None:
        match record["what"]:
            case "sent":
                known = self.sent.setdefault(record["id"], Sent(record["id"], record["type"], record.get("key")))
                known.not_before = record.get("not_before") or 0.0
                known.began, known.arguments = record["at"], record.get("arguments") or {}
            case "acknowledged":
                known = self.sent[record["id"]]
                known.fate, known.acknowledged_at = "acknowledged", record["at"]
                known.asked_at = record.get("asked", known.began)
                known.answers.append((record["answer"], record["created"]))
                if record.get("change") is not None:
                    self.changes.append(Change(record["answer"], record["change"]))
            case "rolled_back":
                self.sent[record["id"]].fate = "rolled_back"
            case "start":
                more: Row = {name: record[name] for name in ("revision", "item", "batch") if name in record}
                start = Start(record["id"], record["at"], record.get("fence"), record.get("run"), more)
                self.starts[start.id].append(start)
            case "end":
                self.ends[record["id"]].append(End(record["id"], record["at"], record["how"], record.get("fence")))
            case "cancel":
                self.cancels[record["id"]].append(Cancel(record["id"], record["at"], record["answer"]))
            case _:
                self._enter_flow(record)

    def _enter_flow(self, record: Row) -> None:
        match record["what"]:
            case "saw":
                self.seen[record["id"], record["fence"]] = record["changes"]
            case "clear":
                self.clears[record["key"]].append(record["at"])
            case "retry":
                self.retries[record["id"]].append(record["at"])
            case "limit_asked":
                self.limits[record["key"]].append(LimitChange(record["max"], record["at"]))
            case "limit_set":
                self.limits[record["key"]][-1].answered = record["at"]

    def limit_at(self, key: str, declared: int, since: float, until: float) -> int:
        """The largest limit of a key that may have been in force in this time."""
        found, declared_at = [], LimitChange(declared, -math.inf, -math.inf)
        changes = [declared_at, *self.limits.get(key, [])]
        for place, change in enumerate(changes):
            over = min((later.answered for later in changes[place + 1 :]), default=math.inf)
            if change.asked <= until and over >= since:
                found.append(change.max)
        return max(found)

    def read_tables(self, url: str, schema: str = "watchbill") -> None:
        with psycopg.connect(url, row_factory=dict_row) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            for name in TABLES:
                table = sql.Identifier(schema, name)
                self.tables[name] = connection.execute(sql.SQL("SELECT * FROM {}").format(table)).fetchall()
            found = connection.execute("SELECT job_id, fence FROM effects ORDER BY n").fetchall()
            self.effects = [(str(row["job_id"]), row["fence"]) for row in found]
            for row in connection.execute("SELECT * FROM claim_log"):
                claim = Claim(str(row["job_id"]), row["fence"], row["epoch"], row["at"].timestamp())
                self.claims[claim.id].append(claim)
            for row in connection.execute("SELECT * FROM release_log"):
                self.releases[str(row["job_id"]), row["fence"]] = row["at"].timestamp()

    def keep(self, path: Path) -> None:
        """What was read from the database, which is gone when somebody looks for the cause of a violation."""
        releases = [[*key, at] for key, at in self.releases.items()]
        claims = [asdict(claim) for found in self.claims.values() for claim in found]
        told = {"tables": self.tables, "effects": self.effects, "claims": claims, "releases": releases}
        path.write_text(json.dumps(told, default=str, indent=1))

    def by_job(self, table: str, key: str) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = defaultdict(list)
        for row in self.tables[table]:
            found[str(row[key])].append(row)
        return found
