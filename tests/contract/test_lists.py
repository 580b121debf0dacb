"""Lists of jobs, asked for in words."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from watchbill import App, JobFilter


def test_list_accepts_keywords_and_a_filter(schema_database: str) -> None:
    app = App(schema_database)
    plain, mail = app.enqueue("a"), app.enqueue("b", queue="mail")
    gone = app.enqueue("a", queue="mail")
    app.jobs.cancel(gone.id)

    def ids(*wanted: JobFilter, **words: Any) -> list[object]:
        return [job.id for job in app.jobs.list(*wanted, **words)]

    assert ids() == [gone.id, mail.id, plain.id]
    assert ids(queue="mail") == [gone.id, mail.id]
    assert ids(state="canceled") == ids(state=("dead", "canceled")) == [gone.id]
    assert ids(JobFilter(type="a"), state="queued") == [plain.id]
    assert ids(after=gone.id, limit=1) == [mail.id]
    app.close()

    async def ask() -> list[object]:
        found: list[object] = [job.id for job in await app.jobs.alist(state="queued")]
        await app.aclose()
        return found

    assert asyncio.run(ask()) == [mail.id, plain.id]


def test_list_refuses_an_unknown_state() -> None:
    wrong: Any = "finished"
    with pytest.raises(ValueError, match=r"there is no state 'finished'; the states are blocked, .*, canceled"):
        App("postgresql://x/y").jobs.list(state=wrong)
