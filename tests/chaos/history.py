"""What the checker reads: the records of producers, handlers and operators, and the tables as they are in the end."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Self

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

Row = dict[str, Any]
TABLES = ("jobs", "finished_jobs", "attempts", "claims", "runs", "cancels", "beats", "nodes")


@dataclass
class Sent:
    """A job as its producer knows it. `fate`: acknowledged, rolled_back, unknown (the answer to a commit was lost)."""

    id: str
    type: str
    key: str | None = None
    not_before: float = 0.0
    fate: str = "unknown"
    answers: list[tuple[str, bool]] = field(default_factory=list)  # the job that stands, and whether it was created

    @property
    def names_itself(self) -> bool:
        """Not so a job whose idempotency key another one had."""
        return all(answer == self.id for answer, _ in self.answers)


@dataclass(frozen=True)
class Start:
    """A handler began. A worker in another language tells neither fence nor run."""

    id: str
    at: float
    fence: int | None = None
    run: int | None = None


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


@dataclass
class History:
    sent: dict[str, Sent] = field(default_factory=dict)
    starts: dict[str, list[Start]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[str, list[End]] = field(default_factory=lambda: defaultdict(list))
    cancels: dict[str, list[Cancel]] = field(default_factory=lambda: defaultdict(list))
    tables: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    effects: list[tuple[str, int]] = field(default_factory=list)  # (job, fence) in the order of their numbers

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
            case "acknowledged":
                self.sent[record["id"]].fate = "acknowledged"
                self.sent[record["id"]].answers.append((record["answer"], record["created"]))
            case "rolled_back":
                self.sent[record["id"]].fate = "rolled_back"
            case "start":
                start = Start(record["id"], record["at"], record.get("fence"), record.get("run"))
                self.starts[start.id].append(start)
            case "end":
                self.ends[record["id"]].append(End(record["id"], record["at"], record["how"], record.get("fence")))
            case "cancel":
                self.cancels[record["id"]].append(Cancel(record["id"], record["at"], record["answer"]))

    def read_tables(self, url: str, schema: str = "watchbill") -> None:
        with psycopg.connect(url, row_factory=dict_row) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            for name in TABLES:
                table = sql.Identifier(schema, name)
                self.tables[name] = connection.execute(sql.SQL("SELECT * FROM {}").format(table)).fetchall()
            found = connection.execute("SELECT job_id, fence FROM effects ORDER BY n").fetchall()
            self.effects = [(str(row["job_id"]), row["fence"]) for row in found]

    def by_job(self, table: str, key: str) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = defaultdict(list)
        for row in self.tables[table]:
            found[str(row[key])].append(row)
        return found
