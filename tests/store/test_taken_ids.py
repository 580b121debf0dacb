"""A job with the id of a finished job of another tenant: nobody who sees both takes one for the other.

Row security hides finished jobs of other tenants from a producer, so it can give a job of its own such an id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.servers import Server
from tests.store.tenant_site import Site, open_sites


@pytest.fixture(scope="module")
def sites() -> Iterator[Callable[[Server], Site]]:
    with open_sites() as ask:
        yield ask


@pytest.fixture
def site(server: Server, sites: Callable[[Server], Site]) -> Site:
    return sites(server)


def call(session: psycopg.Connection[Any], statement: str, **values: Any) -> Any:
    rows = session.execute(f"SELECT {statement}".encode(), values).fetchall()
    return rows[0][0] if rows else None


def look(site: Site, statement: str, **values: Any) -> Any:
    """Reads as the superuser, who sees every row."""
    with psycopg.connect(site.logins.owner_url, autocommit=True) as owner:
        return call(owner, statement, **values)


def finish_job_of_b(site: Site, settle: str, options: str = "") -> UUID:
    """Runs a job of tenant b; `settle` ends it."""
    with site.session("worker") as worker:
        job = call(worker, f"id FROM watchbill.enqueue('t', tenant => 'b', queue => 'b_runs' {options})")
        claimed = worker.execute("SELECT id, fence FROM watchbill.claim(%s, '{b_runs}', 1)", (site.epoch,)).fetchall()
        assert [row[0] for row in claimed] == [job]
        call(worker, settle, id=job, fence=claimed[0][1])
    return UUID(str(job))


COMPLETE = """watchbill.complete(%(id)s, %(fence)s, '{"word": "secret of b"}')"""
BURY = """watchbill.fail(%(id)s, %(fence)s, '{"message": "secret of b"}', false)"""


def take_id(site: Site, job: UUID) -> None:
    """Gives a job of tenant a the id of a finished job of tenant b."""
    with site.session("bound_producer") as producer:
        taken = "id FROM watchbill.enqueue('taker', id => %(id)s, queue => 'nowhere')"
        assert call(producer, taken, id=job) == job


def cancel_taker(site: Site, job: UUID) -> None:
    with site.session("bound_producer") as producer:
        assert call(producer, "watchbill.cancel(%(id)s)", id=job) == "canceled"


def test_child_reads_no_result_of_another_tenant_through_a_taken_id(site: Site) -> None:
    job = finish_job_of_b(site, COMPLETE)
    take_id(site, job)
    parents = "SELECT state, result, error->>'kind' FROM watchbill.ancestors(%s)"
    with site.session("worker") as worker, site.session("bound_operator") as operator:
        child = call(
            worker,
            "id FROM watchbill.enqueue("
            "'end', tenant => 'a', queue => 'nowhere', depends_on => ARRAY[%(id)s], run_if => 'all_finished')",
            id=job,
        )
        assert worker.execute(parents, (child,)).fetchall() == [("queued", None, None)]
        cancel_taker(site, job)
        assert worker.execute(parents, (child,)).fetchall() == [("canceled", None, "canceled")]
        assert call(operator, "watchbill.purge('{canceled}', tenant => 'a', ids => ARRAY[%(id)s])", id=job) == 1
        assert worker.execute(parents, (child,)).fetchall() == [(None, None, None)]


def test_child_waits_for_the_job_of_its_own_tenant(site: Site) -> None:
    """The worker sees both jobs with the id, whichever it finds first."""
    job = finish_job_of_b(site, BURY)
    take_id(site, job)
    verdict = "state FROM watchbill.job WHERE id = %(id)s"
    enqueue = (
        "id FROM watchbill.enqueue('t', tenant => %(tenant)s, queue => 'nowhere', depends_on => ARRAY[%(parent)s])"
    )
    with site.session("worker") as worker:
        child_of_a = call(worker, enqueue, tenant="a", parent=job)
        child_of_b = call(worker, enqueue, tenant="b", parent=job)
        while worker.execute("SELECT FROM watchbill.unblock()").fetchall():
            pass
        assert call(worker, verdict, id=child_of_a) == "blocked"
        assert call(worker, verdict, id=child_of_b) == "canceled"
        with pytest.raises(psycopg.Error, match="which is unknown"):
            call(worker, enqueue, tenant="c", parent=job)
    cancel_taker(site, job)


def test_purge_deletes_nothing_of_another_tenant_through_a_taken_id(site: Site) -> None:
    job = finish_job_of_b(site, COMPLETE, ", idempotency_key => 'purged'")
    take_id(site, job)
    cancel_taker(site, job)
    rows = "array_agg(tenant ORDER BY tenant) FROM watchbill.finished_jobs WHERE id = %(id)s"
    keys = "array_agg(tenant) FROM watchbill.idempotency WHERE job_id = %(id)s"
    assert look(site, rows, id=job) == ["a", "b"]
    with site.session("operator") as operator:
        states = "'{canceled,succeeded}'"
        assert call(operator, f"watchbill.purge({states}, tenant => 'a', ids => ARRAY[%(id)s])", id=job) == 1
    assert look(site, rows, id=job) == ["b"]
    assert look(site, keys, id=job) == ["b"]


def test_purge_frees_no_ordered_key_of_another_tenant_through_a_taken_id(site: Site) -> None:
    with psycopg.connect(site.logins.owner_url) as owner:
        owner.execute("INSERT INTO watchbill.limits (name, when_dead) VALUES ('order:t', 'pause')")
    job = finish_job_of_b(site, BURY, ", ordered_by => '{tenant}'")
    take_id(site, job)
    cancel_taker(site, job)
    holders = "array_agg(job_id) FROM watchbill.holds WHERE key = 'order:t:b'"
    with site.session("bound_operator") as bound, site.session("operator") as operator:
        assert look(site, holders) == [job]
        assert call(bound, "watchbill.purge('{canceled}', tenant => 'a', ids => ARRAY[%(id)s])", id=job) == 1
        assert look(site, holders) == [job]
        assert call(operator, "watchbill.purge('{dead}', tenant => 'b', ids => ARRAY[%(id)s])", id=job) == 1
        assert look(site, holders) is None
