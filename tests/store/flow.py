"""Jobs with limit keys, order and lanes, written behind the functions' back: what producers compute is tested there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from tests.store.harness import Db


def declare_limit(db: Db, name: str, max: int | None = None, **more: Any) -> None:
    """A rule; `rates=[(count, seconds), ...]`, each `evenly` or not."""
    rates = [(count, timedelta(seconds=per), more.get("evenly", False)) for count, per in more.get("rates", ())]
    db.change(
        """INSERT INTO {schema}.limits (name, max, rates, when_full, when_dead)
           VALUES (
             %s, %s,
             (SELECT array_agg(ROW(r.count, r.per, r.evenly)::{schema}.rate)
              FROM unnest(%s::int[], %s::interval[], %s::boolean[]) r(count, per, evenly)),
             %s, %s)""",
        name, max, *([list(each) for each in zip(*rates, strict=True)] or ([], [], [])),
        more.get("when_full", "wait"), more.get("when_dead", "continue"),
    )  # fmt: skip


def declare_queue(db: Db, name: str, lanes: str = "none", max: int | None = None) -> None:
    db.change(
        "INSERT INTO {schema}.queues (name, lanes, fair_by, token_group, max) VALUES (%s, %s, %s, %s, %s)",
        name, lanes, "{tenant}" if lanes == "share" else None, "cells" if lanes == "route" else None, max,
    )  # fmt: skip


def enqueue(db: Db, *keys: str, order: str | None = None, lane: int = 0, is_rated: bool = False, **more: Any) -> UUID:
    """A job with these limit keys, with `order` within that key, in this lane."""
    job = db.enqueue(**more)
    order_key = None if order is None else f"order:task:{order}"
    given = [*keys, *([order_key] if order_key else [])] or None
    db.change(
        """UPDATE {schema}.jobs SET limit_keys = %s, order_key = %s, lane = %s,
             class = CASE WHEN %s THEN 1 ELSE class END WHERE id = %s""",
        given, order_key, lane, is_rated, job,
    )  # fmt: skip
    return job


def waits(db: Db, *jobs: UUID) -> list[tuple[str | None, str | None]]:
    """What these jobs wait for."""
    found = {row.id: (row.wait, row.wait_key) for row in db.rows("jobs")}
    return [found[job] for job in jobs]


def assert_within_limits(db: Db) -> None:
    """No key has more holds than its maximum, each hold is of a running job (or of an unfinished ordered one), and each
    running job holds its keys."""
    over = db.execute("""
        SELECT h.key, count(*) FROM watchbill.holds h
        LEFT JOIN watchbill.limits l ON l.name = watchbill._limit_name(h.key)
        LEFT JOIN watchbill.queues q ON 'queue:' || q.name = h.key
        GROUP BY h.key, l.max, q.max
        HAVING count(*) > coalesce(q.max, l.max, CASE WHEN h.key LIKE 'order:%' THEN 1 END, 1000000)""")
    assert over == []
    stray = db.execute("""
        SELECT h.* FROM watchbill.holds h LEFT JOIN watchbill.jobs j ON j.id = h.job_id
        WHERE j.id IS NULL OR j.fence = 0 AND h.key IS DISTINCT FROM j.order_key""")
    assert stray == []
    without = db.execute("""
        SELECT j.id, k FROM watchbill.jobs j CROSS JOIN unnest(j.limit_keys) k
        WHERE j.fence <> 0 AND NOT EXISTS (SELECT FROM watchbill.holds h WHERE h.key = k AND h.job_id = j.id)""")
    assert without == []
