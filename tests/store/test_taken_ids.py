"""A job with the id of a finished job of another tenant: nobody who sees both takes one for the other.

Row security hides finished jobs of other tenants from a producer, so it can give a job of its own such an id.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

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
STORE_STEP = """count(*) FROM watchbill.save_steps(ARRAY[%(id)s], ARRAY[%(fence)s]::bigint[], '{step}', '{run}',
    '{done}', '{1}', '{1}', '{1}', '{1}', results => ARRAY['"secret of b"'::jsonb])"""
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


def keep_order_of_dead_jobs(site: Site) -> None:
    """Lets dead jobs of the type `t` keep their ordered keys."""
    with psycopg.connect(site.logins.owner_url) as owner:
        owner.execute(
            "INSERT INTO watchbill.limits (name, when_dead) VALUES ('order:t', 'pause') ON CONFLICT DO NOTHING"
        )


def test_purge_frees_no_ordered_key_of_another_tenant_through_a_taken_id(site: Site) -> None:
    keep_order_of_dead_jobs(site)
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


@pytest.mark.parametrize("is_new", ["true", "false"])
@pytest.mark.parametrize("how", ["one", "many"])
def test_no_job_takes_the_id_of_a_dead_one_that_keeps_the_same_ordered_key(site: Site, how: str, is_new: str) -> None:
    """The end of the new job would let go of the key that the dead job of another tenant keeps."""
    keep_order_of_dead_jobs(site)
    job = finish_job_of_b(site, BURY, ", ordered_by => '7'")
    enqueue = f"watchbill.enqueue('t', id => %(id)s, id_is_new => {is_new}, ordered_by => '7')"
    many = f"""watchbill.enqueue_many(
        jsonb_build_array(jsonb_build_object('type', 't', 'id', %(id)s::uuid, 'ordered_by', '7')),
        ids_are_new => {is_new})"""
    with site.session("bound_producer") as producer, pytest.raises(psycopg.Error, match="is taken"):
        call(producer, enqueue if how == "one" else many, id=job)
    with site.session("operator") as operator:
        assert call(operator, "watchbill.purge('{dead}', tenant => 'b', ids => ARRAY[%(id)s])", id=job) == 1


@pytest.mark.parametrize(("first_end", "second_end"), [(COMPLETE, BURY), (BURY, COMPLETE)], ids=["complete", "bury"])
def test_the_number_of_a_finished_id_is_that_of_the_first_job(site: Site, first_end: str, second_end: str) -> None:
    """The worker sees both jobs with the id, whichever partition it reads first."""
    job = finish_job_of_b(site, first_end)
    with site.session("bound_producer") as producer, site.session("worker") as worker:
        call(producer, "id FROM watchbill.enqueue('taker', id => %(id)s, queue => 'takers')", id=job)
        fence = call(worker, "fence FROM watchbill.claim(%(epoch)s, '{takers}', 1)", epoch=site.epoch)
        call(worker, second_end, id=job, fence=fence)
        rows = "array_agg(seq ORDER BY seq) FROM watchbill.finished_jobs WHERE id = %(id)s"
        first, _ = look(site, rows, id=job)
        assert call(worker, "watchbill._job_seq(%(id)s)", id=job) == first
        assert call(worker, "seq FROM watchbill.enqueue('t', tenant => 'b', id => %(id)s)", id=job) == first
    with site.session("operator") as operator:
        first_state = "succeeded" if first_end == COMPLETE else "dead"
        assert call(operator, "watchbill.cancel(%(id)s)", id=job) == first_state


def test_reschedule_means_the_first_of_two_finished_jobs(site: Site) -> None:
    job = finish_job_of_b(site, BURY)
    take_id(site, job)
    many = "watchbill.reschedule_many('{dead}', tenant => 'b', ids => ARRAY[%(id)s])"
    rows = "array_agg(tenant) FROM watchbill.jobs WHERE id = %(id)s"
    with site.session("operator") as operator, site.session("producer", "b") as producer_of_b:
        assert call(operator, many, id=job) == 0
        with pytest.raises(psycopg.Error, match="another job has the id"):
            call(producer_of_b, "watchbill.reschedule(%(id)s)", id=job)
        cancel_taker(site, job)
        assert call(operator, "tenant FROM watchbill.job_by_id(%(id)s)", id=job) == "b"
        assert call(operator, "watchbill.reschedule(%(id)s)", id=job) == "dead"
        assert look(site, rows, id=job) == ["b"]
        call(operator, "watchbill.cancel(%(id)s)", id=job)
        assert call(operator, many.replace("dead", "canceled"), id=job) == 1
        assert look(site, rows, id=job) == ["b"]
        call(operator, "watchbill.cancel(%(id)s)", id=job)


# -- every function that takes the id of a job

# What is called with the id that jobs of two tenants have.
CALLS = {
    "ancestors": "watchbill.ancestors(%(id)s)",
    "cancel": "watchbill.cancel(%(id)s)",
    "complete": "watchbill.complete(%(id)s, %(fence)s, '{}')",
    "dependency_graph": "array_agg(g) FROM watchbill.dependency_graph(%(id)s) g",
    "enqueue": "id FROM watchbill.enqueue('t', id => %(id)s, depends_on => ARRAY[%(other)s], tenant => 'a')",
    "fail": "watchbill.fail(%(id)s, %(fence)s, '{}', false)",
    "guard": "watchbill.guard(%(id)s, %(fence)s)",
    "job_attempts": "array_agg(x) FROM watchbill.job_attempts(%(id)s) x",
    "job_by_id": "array_agg(x) FROM watchbill.job_by_id(%(id)s) x",
    "job_log": "array_agg(x) FROM watchbill.job_log(%(id)s) x",
    "job_list": "array_agg(x) FROM watchbill.job_list(ids => ARRAY[%(id)s], tenant => 'a') x",
    "job_page": """array_agg(x) FROM watchbill.job_page(jsonb_build_array(
        '{"field": "tenant", "operator": "=", "values": ["a"]}'::jsonb,
        jsonb_build_object('field', 'id', 'operator', '=', 'values', ARRAY[ARRAY[%(id)s, %(id)s]]))) x""",
    "job_steps": "array_agg(x) FROM watchbill.job_steps(%(id)s) x",
    "load_steps": "array_agg(x) FROM watchbill.load_steps(ARRAY[%(id)s]) x",
    "locked_jobs": "array_agg(x) FROM watchbill.locked_jobs(ARRAY[%(id)s]) x",
    "purge": "watchbill.purge('{succeeded,dead,canceled}', ids => ARRAY[%(id)s], tenant => 'a')",
    "release": "watchbill.release(%(id)s)",
    "reschedule": "watchbill.reschedule(%(id)s)",
    "reschedule_many": "watchbill.reschedule_many('{queued,dead,canceled}', ids => ARRAY[%(id)s], tenant => 'a')",
    "save_steps": """count(*) FROM watchbill.save_steps(ARRAY[%(id)s], ARRAY[%(fence)s],
        '{step}', '{run}', '{done}', '{1}', '{1}', '{1}', '{1}')""",
    "settle": "count(*) FROM watchbill.settle(%(epoch)s, ARRAY[%(id)s], ARRAY[%(fence)s])",
    "stop_requests": "count(*) FROM watchbill.stop_requests(%(epoch)s, ARRAY[%(id)s])",
    "unblock": "count(*) FROM watchbill.unblock(ARRAY[%(id)s, %(other)s])",
    "wake": "watchbill.wake(%(id)s)",
    "signal": "watchbill.signal(%(id)s, 'approval')",
    "save_step": "watchbill.save_step(%(id)s, %(fence)s, 'new')",
    "rewind": "watchbill.rewind(%(id)s, 'step')",
    "await_jobs": "watchbill.await_jobs(%(id)s, %(fence)s, 'wait', 9, ARRAY[%(other)s])",
    "restart": "watchbill.restart(%(id)s, %(fence)s, '{}')",
    "collect_jobs": "watchbill.collect_jobs(%(id)s, %(fence)s, 'step', 9)",
    "receive": "watchbill.receive(%(id)s, %(fence)s, 'answer', 9, '{approval}')",
    "watch": "watchbill.watch(%(id)s)",
    "why_job": "array_agg(x) FROM watchbill.why_job(%(id)s) x",
}
OTHER_IDS = {"alert_delivery_list", "claim", "lock_acquire", "register", "sweep_dependencies", "sweep_steps"}
ROWS_OF_B = " UNION ALL ".join(
    f"SELECT x::text FROM watchbill.{table} x WHERE {rows}"
    for table, rows in {
        **dict.fromkeys(
            ("jobs", "finished_jobs", "attempts", "idempotency", "steps", "signals", "job_logs", "watches"),
            "x.tenant = 'b'",
        ),
        "dependencies": "x.child = ANY (%(ids)s) OR x.parent = ANY (%(ids)s)",
    }.items()
)


@dataclass
class Twins:
    """A dead job of tenant b, with a step, and one of tenant a with its id. Each has a parent and a child."""

    id: UUID
    other: UUID  # the parent of the taker
    child: UUID  # of the taker
    fence: int
    relatives: list[UUID]  # the parent and the child of the job of b


def make_twins(site: Site, state: str) -> Twins:
    enqueue = (
        "id FROM watchbill.enqueue('t', '{}', tenant => %(tenant)s, queue => %(queue)s, id => %(id)s,"
        " depends_on => %(parents)s, run_if => %(run_if)s)"
    )
    claim = "fence FROM watchbill.claim(%(epoch)s, ARRAY[%(queue)s], 1)"
    with site.session("worker") as worker, site.session("bound_producer") as producer:

        def add(
            session: psycopg.Connection[Any], tenant: str, queue: str, *parents: UUID, id: UUID | None = None
        ) -> Any:
            run_if = "all_finished" if parents else None
            return call(session, enqueue, tenant=tenant, queue=queue, parents=list(parents), run_if=run_if, id=id)

        def start(queue: str) -> int:
            while worker.execute("SELECT FROM watchbill.unblock()").fetchall():
                pass
            return int(call(worker, claim, epoch=site.epoch, queue=queue))

        parent = add(worker, "b", "twins")
        job = add(worker, "b", "twins", parent)
        call(worker, COMPLETE, id=parent, fence=start("twins"))
        fence = start("twins")
        call(worker, STORE_STEP, id=job, fence=fence)
        call(worker, "watchbill._store_logs(ARRAY[%(id)s], ARRAY[%(fence)s], '{x}')", id=job, fence=fence)
        call(worker, BURY, id=job, fence=fence)
        child = add(worker, "b", "nowhere", job)
        while worker.execute("SELECT FROM watchbill.unblock()").fetchall():
            pass
        other = add(producer, "a", "twins")
        call(worker, "watchbill.complete(%(id)s, %(fence)s, '{}')", id=other, fence=start("twins"))
        add(producer, "a", "twins", other, id=job)
        own_child = add(producer, "a", "nowhere", job)
        fence = start("twins") if state != "queued" else 1
        if state == "dead":
            call(worker, "watchbill.fail(%(id)s, %(fence)s, '{}', false)", id=job, fence=fence)
    return Twins(job, other, own_child, fence, [parent, child])


def test_every_public_function_with_the_id_of_a_job_is_called_here() -> None:
    found = {
        function.splitlines()[0]
        for function in files("watchbill.store").joinpath("public_functions.txt").read_text().split("\n\n")
        if re.search(r"^  \w+ uuid", function, re.MULTILINE)
    }
    assert found - OTHER_IDS == set(CALLS)


@pytest.mark.parametrize("state", ["queued", "running", "dead"])
def test_no_function_takes_a_job_of_another_tenant_for_one_with_its_id(site: Site, state: str) -> None:
    twins = make_twins(site, state)
    roles = ["bound_producer", "bound_reader", "bound_operator"]
    if state != "dead":  # a role that sees both jobs means the unfinished one
        roles += ["operator", "worker"]
    values = {"id": twins.id, "other": twins.other, "fence": twins.fence, "epoch": site.epoch}
    faults = []
    with psycopg.connect(site.logins.owner_url, autocommit=True) as session:
        before = session.execute(ROWS_OF_B.encode(), {"ids": twins.relatives}).fetchall()
        for role, (name, statement) in product(roles, CALLS.items()):
            login = sql.Identifier(f"{site.logins.database}_{role}").as_string(None)
            with session.transaction(force_rollback=True):
                try:
                    with session.transaction():
                        session.execute(f"SET LOCAL SESSION AUTHORIZATION {login}".encode())
                        answer = str(session.execute(f"SELECT {statement}".encode(), values).fetchall())
                        session.execute("RESET SESSION AUTHORIZATION")
                except psycopg.Error as error:
                    answer = str(error)
                after = session.execute(ROWS_OF_B.encode(), {"ids": twins.relatives}).fetchall()
                secrets = ["secret of b", *map(str, twins.relatives)]
                if Counter(after) != Counter(before) or any(secret in answer for secret in secrets):
                    faults.append((role, name, answer, [row for row in after if row not in before]))
    with site.session("operator") as operator:
        call(operator, "watchbill.cancel(%(id)s, force => true)", id=twins.id)
    assert faults == []


def test_unique_key_names_no_job_of_another_type(site: Site) -> None:
    """A producer gave a job the id of a SQL command, replaced it by its unique key, and so wrote the command."""
    with site.session("operator") as operator:
        add = "watchbill.add_schedule('nightly', '@yearly', command => 'SELECT 1', tenant => 'a')"
        call(operator, add)
    with site.session("bound_producer") as producer:
        job = call(producer, "watchbill.run_schedule('nightly', 'a')")
        for is_new in ("true", "false", "NULL"):
            taken = f"watchbill.enqueue('t', id => %(id)s, id_is_new => {is_new}, unique_by => 'mine')"
            with pytest.raises(psycopg.Error, match="is taken"):
                call(producer, taken, id=job)
        replace = """id FROM watchbill.enqueue('t', '{"command": "SELECT 2"}', unique_by => 'mine',
            on_duplicate => 'replace')"""
        assert call(producer, replace) != job
    assert look(site, "payload->>'command' FROM watchbill.jobs WHERE id = %(id)s", id=job) == "SELECT 1"


@pytest.mark.parametrize("until", ["started", "finished"])
def test_unique_key_names_no_job_of_another_tenant(site: Site, until: str) -> None:
    options = f", unique_by => 'bob {until}', unique_until => '{until}'"
    job = finish_job_of_b(site, COMPLETE, options)
    take_id(site, job)
    with site.session("worker") as worker:
        payload = """'{"word": "secret of b"}'"""
        again = f"id FROM watchbill.enqueue('t', {payload}, tenant => 'b', queue => 'b_later' {options})"
        new = call(worker, again)
    assert new != job
    assert look(site, "payload->>'word' FROM watchbill.jobs WHERE id = %(id)s", id=job) is None
    assert look(site, "tenant FROM watchbill.jobs WHERE id = %(id)s", id=new) == "b"


def test_job_is_not_taken_for_a_finished_one_of_another_tenant(site: Site) -> None:
    """A role that sees all tenants sends a job of b whose id a finished job of a has."""
    with site.session("bound_producer") as producer:
        job = call(producer, "id FROM watchbill.enqueue('t', queue => 'nowhere')")
        assert call(producer, "watchbill.cancel(%(id)s)", id=job) == "canceled"
    with site.session("worker") as worker:
        send = "created FROM watchbill.enqueue('t', id => %(id)s, tenant => 'b', queue => 'nowhere')"
        assert call(worker, send, id=job)
        assert call(worker, "watchbill.cancel(%(id)s)", id=job) == "canceled"
