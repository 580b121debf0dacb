"""Thousands of random calls of a hostile producer: it acts for tenant a, and learns and changes nothing of tenant b.

The calls are made from the catalogue: every function that a producer may call, with arguments that are tenant a's,
tenant b's or made up. A third of them must succeed for a itself, or the fuzz would prove nothing. Everything of b
contains the word SECRET and has ids that the fuzz knows; an answer or an error that has one which the call did not name
is a leak. What b has is compared by its hash.

`pytest -n0 -m long -rP tests/store/test_tenant_fuzz.py` makes 100,000 calls on each server, and prints how many
succeeded.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.servers import Server
from tests.store.tenant_site import KNOWN, SECRET, Site, open_sites
from watchbill.model.ids import new_id

CALLS = """
SELECT p.proname, coalesce(p.proargnames, '{}'),
  ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY u(t, n) ORDER BY n),
  p.pronargs - p.pronargdefaults
FROM pg_proc p
WHERE p.pronamespace = 'watchbill'::regnamespace
  AND has_function_privilege(p.oid, 'EXECUTE')
  AND p.prorettype <> 'trigger'::regtype
ORDER BY 1
"""
# Called more often than the others: they store, read, change and end jobs and schedules.
VERBS = {
    "enqueue": 12, "enqueue_many": 6, "_enqueue_plain": 4, "_enqueue_plain_many": 2, "_enqueue_rows": 2, "cancel": 5,
    "_cancel_job": 2, "reschedule": 5, "job_by_id": 5, "job_list": 2, "why_job": 4, "job_attempts": 3, "ancestors": 4,
    "dependency_graph": 4, "_read_job_ending": 3, "add_schedule": 4, "update_schedule": 5, "run_schedule": 5,
    "job_page": 2, "remove_schedule": 1, "slot_list": 3, "schedule_list": 2, "ensure_limits": 2,
}  # fmt: skip
OPTIONAL_SHARE = 0.12  # of the arguments that have a default
DIGEST_EVERY = 2_000
TEXTS: dict[str, list[str | None]] = {
    "overlap": ["allow", "skip", "cancel_previous"], "run_if": ["all_succeeded", "all_finished", "any_failed"],
    "unique_until": ["started", "finished", "1 hour"], "on_duplicate": ["ignore", "reject", "replace"],
    "unique_by": ["{word}", "{tenant}", "{key}"], "ordered_by": ["{word}", "{key}"], "tz": ["UTC"],
    "route_by": ["{word}"],
    "pattern": ["@daily", "0 0 9 * * *", "* * * * *", "nonsense"], "dst": ["default"], "missed": ["skip", "run_once"],
    "status": ["ok", "disabled"], "app": ["app"], "wait": [None], "command": [None], "role": [None],
}  # fmt: skip


NUMBERS = {"max_payload": 1000, "version": 1, "priority": 0}

T = TypeVar("T")


class Fuzz:
    """Chooses calls and their arguments; remembers what tenant a has."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site, self.random = site, random.Random(seed)
        self.own_ids: list[UUID] = [uuid4()]
        self.own_names: list[str] = ["nightly_a"]
        self.given_ids: set[str] = set()  # to new jobs; such an id is no news to the producer

    def choose(self, own: T, foreign: T, invented: T) -> T:
        return self.random.choices([own, foreign, invented], [70, 20, 10])[0]

    def job_id(self) -> UUID:
        return self.choose(self.random.choice(self.own_ids), self.random.choice(self.site.job_ids), uuid4())

    def tenant(self) -> str:
        return self.choose("a", "b", "c")

    def name(self) -> str:
        return self.choose(self.random.choice(self.own_names), "nightly_b", "nightly_c")

    def key(self) -> str:
        return self.choose(f"key{self.random.randrange(50)}", KNOWN, "other")

    def new_id(self) -> UUID:
        """For a new job. Not that of a finished job of b: docs/explanation/security.md says what remains there."""
        chosen = self.choose(new_id(), self.random.choice(self.site.job_ids[2:]), uuid4())
        self.given_ids.add(str(chosen))
        return chosen

    def new_job(self) -> dict[str, Any]:
        job: dict[str, Any] = {"type": self.text("type"), "payload": {"word": self.key(), "key": self.key()}}
        if self.random.random() < 0.3:
            job["idempotency_key"] = self.key()
        if self.random.random() < 0.2:
            job["tenant"] = self.tenant()
        if self.random.random() < 0.2:
            job["depends_on"] = [str(self.job_id())]
        if self.random.random() < 0.1:
            job["id"] = str(self.new_id())
        return job

    def definition(self) -> dict[str, Any]:
        name = f"own{self.random.randrange(30)}"
        self.own_names = [*{*self.own_names, name}]
        found: dict[str, Any] = {"name": name, "pattern": "@daily", "type": self.text("type")}
        if self.random.random() < 0.3:
            found["tenant"] = self.tenant()
        return found

    def text(self, name: str) -> str | None:
        if name in TEXTS:
            return self.random.choice(TEXTS[name])
        match name:
            case "tenant":
                return self.tenant()
            case "name" | "after":
                return self.name()
            case "type":
                return self.choose("type_a", "type_b", "watchbill.sql" if self.random.random() < 0.1 else "type_c")
            case "queue":
                return self.choose("default", "queue_b", "queue_c")
            case _:
                return self.key()

    def json(self, name: str) -> Any:
        match name:
            case "jobs":
                return [self.new_job() for _ in range(self.random.randrange(1, 4))]
            case "definition":
                return self.definition()
            case "changes":
                field = self.random.choice(["description", "queue", "tenant", "name", "enabled"])
                return {field: {"enabled": False, "tenant": "b", "name": self.name()}.get(field, self.key())}
            case "limits":
                return [{"name": self.key(), "max": self.random.randrange(1, 3)}]
            case "queues":
                return [{"name": self.text("queue"), "max": 1}] if self.random.random() < 0.3 else []
            case "retry":
                return {"kind": "fixed", "base": 1}
            case "runs_on":
                return {"zone": "x"}
            case _:
                return {"word": self.key(), "key": self.key()}

    def argument(self, function: str, name: str, kind: str) -> Any:
        makes_jobs = "enqueue" in function
        kinds: dict[str, Callable[[], Any]] = {
            "uuid": self.new_id if makes_jobs else self.job_id,
            "uuid[]": lambda: [self.new_id() if makes_jobs and name == "ids" else self.job_id()],
            "text": lambda: self.text(name),
            "text[]": lambda: {"states": ["dead", "queued"], "limit_keys": [f"shared:{self.key()}"]}.get(
                name, [self.key()]
            ),
            "jsonb": lambda: Jsonb(self.json(name)),
            "jsonb[]": lambda: [Jsonb({"word": self.key()})],
            "watchbill.new_job[]": lambda: Jsonb([self.new_job() | {"queue": "default", "max_attempts": 2}]),
            "boolean": lambda: self.random.random() < 0.3,
            "real": lambda: 5.0,
            "interval": lambda: self.random.choice(["1 hour", "5 min"]),
            "timestamp with time zone": lambda: None if name in ("now", "t") else "2031-01-01 00:00+00",
            "regclass": lambda: self.random.choice(["watchbill.jobs", "pg_class"]),
            "watchbill.cron": lambda: "@daily",
        }
        for integer in ("integer", "smallint", "bigint"):
            kinds[integer] = lambda: NUMBERS.get(name, self.random.randrange(1, 20))
        return kinds.get(kind, lambda: None)()

    def call(self, name: str, names: list[str], types: list[str], required: int) -> tuple[str, list[Any]]:
        given = [
            (n, t)
            for place, (n, t) in enumerate(zip(names, types, strict=False))
            if place < required or self.random.random() < OPTIONAL_SHARE
        ]
        values, parts = [], []
        for n, t in given:
            values.append(self.argument(name, n, t))
            expression = {
                "watchbill.new_job[]": "ARRAY(SELECT x FROM jsonb_populate_recordset(NULL::watchbill.new_job, %s) x)",
                "watchbill.cron": "watchbill.parse_cron(%s)",
            }.get(t, f"%s::{t}")
            parts.append(f'"{n}" => {expression}' if n else expression)
        return f"SELECT * FROM watchbill.{name}({', '.join(parts)})", values

    def remember(self, name: str, rows: list[tuple[Any, ...]]) -> None:
        if name.startswith(("enqueue", "run_schedule")):
            self.own_ids += [row[0] for row in rows if isinstance(row[0], UUID) and row[0] not in self.site.job_ids]
            self.own_ids = self.own_ids[-200:]


def run_fuzz(site: Site, count: int, seed: int) -> Counter[str]:
    """Makes the calls, each in its own transaction. Returns how often each function succeeded."""
    fuzz, succeeded = Fuzz(site, seed), Counter[str]()
    secrets = {SECRET, *(str(job) for job in site.job_ids)}
    before = site.digest()
    with site.session("bound_producer", "a") as session:
        functions = session.execute(CALLS).fetchall()
        weights = [VERBS.get(name, 0.5) for name, *_ in functions]
        for number in range(count):
            name, names, types, required = fuzz.random.choices(functions, weights)[0]
            statement, values = fuzz.call(name, names, types, required)
            session.execute("SELECT set_config('watchbill.tenant', %s, false)", (fuzz.choose("a", "b", ""),))
            try:
                rows = session.execute(statement.encode(), values).fetchall()
                answer = repr(rows)
                fuzz.remember(name, rows)
                if any(value not in (None, False) for row in rows for value in row):
                    succeeded[name] += 1
            except psycopg.Error as error:
                answer = " ".join(
                    str(getattr(error.diag, part))
                    for part in ("message_primary", "message_detail", "message_hint", "context", "constraint_name")
                )
            said = repr([getattr(value, "obj", value) for value in values])
            leaked = [s for s in secrets - fuzz.given_ids if s in answer and s not in said]
            assert not leaked, f"seed {seed}, call {number}: {statement} {said} says {answer}"
            if number % DIGEST_EVERY == 0:
                assert site.digest() == before, f"seed {seed}, before call {number}: {statement}"
    assert site.digest() == before, f"seed {seed}"
    print(f"seed {seed}: {succeeded.total()} of {count} calls succeeded, by {len(succeeded)} functions: {succeeded}")
    assert succeeded.total() * 3 >= count
    return succeeded


@pytest.fixture
def fuzz_site(server: Server) -> Iterator[Site]:
    with open_sites() as ask:
        yield ask(server)


def test_producer_learns_and_changes_nothing_of_another_tenant(fuzz_site: Site) -> None:
    run_fuzz(fuzz_site, 400, seed=random.randrange(10**6))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_hundred_thousand_calls_leak_and_change_nothing(fuzz_site: Site) -> None:
    succeeded = run_fuzz(fuzz_site, 100_000, seed=random.randrange(10**6))
    assert len(succeeded) > 40  # of the functions that a producer may call
