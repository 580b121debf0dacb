"""Cells: one App, several installations. The tenant decides in which cell a job lives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.servers import Server
from tests.store.conftest import template
from watchbill import App, chain, current_job
from watchbill.app.cells import NoCell
from watchbill.client.job_operations import NoSuchJob
from watchbill.errors import NoDatabase, SettingsError
from watchbill.store.refusals import TenantMoved

NOWHERE = "postgresql://postgres@127.0.0.1:1/postgres"


@pytest.fixture(scope="module")
def urls(server: Server) -> Iterator[dict[str, str]]:
    names = {cell: server.create_database(template(server)) for cell in ("a", "b")}
    yield {cell: server.url(name) for cell, name in names.items()}
    for name in names.values():
        server.drop_database(name)


@pytest.fixture
def app(urls: dict[str, str]) -> Iterator[App]:
    """Tenants whose names begin with b are in cell b."""
    app = App(cells=urls, cell_from=lambda tenant: "b" if tenant.startswith("b") else "a", name="shop")

    @app.task(type="bill")
    async def bill(order: int = 1) -> int:
        return order

    yield app
    app.close()


def holds(url: str, job: UUID) -> bool:
    with psycopg.connect(url) as connection:
        return bool(connection.execute("SELECT FROM watchbill.job WHERE id = %s", (job,)).fetchall())


def test_the_tenant_decides_unless_the_call_names_a_cell(app: App, urls: dict[str, str]) -> None:
    bill = app.tasks["bill"]
    with app.tenant("acme"):
        jobs = {"a": [bill.enqueue(order=7), bill.using(tenant="acme").enqueue()]}
        jobs["b"] = [bill.using(cell="b").enqueue(), bill.using(tenant="bolt").enqueue()]
        with app.cell("b"):
            jobs["b"] += [bill.enqueue(), *app.enqueue_many([bill.bind(), bill.bind()])]
    with app.tenant("bolt"):
        jobs["b"] += [app.enqueue("bill", {"order": 1}), *chain(bill.bind(), bill.bind()).enqueue()]
    for cell, found in jobs.items():
        assert {job.cell for job in found} == {cell}
        assert all(holds(urls[cell], job.id) for job in found)
        assert [job.get().type for job in found] == ["bill"] * len(found)


def test_a_call_without_cell_and_tenant_is_refused(app: App) -> None:
    bill = app.tasks["bill"]
    for call in (
        bill.enqueue,
        app.queues.stats,
        app.schedules.list,
        app.cluster.nodes,
        lambda: app.lock("x").acquire(),
    ):
        with pytest.raises(NoCell, match=r"neither a cell nor a tenant") as caught:
            call()
        assert "Cells are: a, b." in str(caught.value)
    with pytest.raises(NoCell, match="There is no cell 'c'"):
        bill.using(cell="c").enqueue()
    with app.cell("b"), app.lock("x") as lock:
        assert app.queues.stats() is not None
        assert lock.is_held
    with app.cell("a"), app.lock("x", wait=0):
        assert lock.name == "x", "locks hold per cell"


def test_one_call_stays_in_one_cell(app: App) -> None:
    bill = app.tasks["bill"]
    calls = [bill.using(cell=cell).bind() for cell in "ab"]
    with pytest.raises(NoCell, match="cannot span cells a and b"):
        app.enqueue_many(calls)
    parent = bill.using(cell="a").enqueue()
    with pytest.raises(NoCell, match="cannot span cells a and b"):
        bill.using(cell="b", depends_on=parent).enqueue()
    assert bill.using(cell="a", depends_on=parent).enqueue().cell == "a"


def test_a_job_is_looked_for_in_all_cells(app: App, urls: dict[str, str]) -> None:
    job = app.tasks["bill"].using(cell="b").enqueue()
    assert app.jobs.get(job.id).id == job.id
    with pytest.raises(NoSuchJob):
        app.jobs.get(uuid4())
    with pytest.raises(NoSuchJob), app.cell("a"):
        app.jobs.get(job.id)
    broken = App(cells={"a": NOWHERE, "b": urls["b"]}, client_timeout=2)
    assert broken.jobs.get(job.id).id == job.id, "the cell that is down may not have it"
    with pytest.raises(NoDatabase, match="cell a cannot say"):
        broken.jobs.get(uuid4())
    broken.close()


def test_the_same_with_asyncio(app: App, urls: dict[str, str]) -> None:
    asyncio.run(_check_asyncio(app, urls))


async def _check_asyncio(app: App, urls: dict[str, str]) -> None:
    bill = app.tasks["bill"]
    with pytest.raises(NoCell):
        await bill.aenqueue()
    with app.tenant("bolt"):
        job = await bill.aenqueue()
        (second,) = await app.aenqueue_many([bill.bind()])
    assert (job.cell, second.cell, holds(urls["b"], job.id)) == ("b", "b", True)
    assert (await app.jobs.aget(job.id)).id == job.id
    await app.aclose()


def test_handlers_enqueue_into_their_own_cell_and_schedules_are_in_one(app: App) -> None:
    asyncio.run(_check_handlers(app))


async def _check_handlers(app: App) -> None:
    bill = app.tasks["bill"]

    @app.task(type="start", queue="cells")
    async def start() -> list[str | None]:
        own = await bill.aenqueue()
        other = await bill.using(tenant="acme" if current_job().tenant == "bolt" else "bolt").aenqueue()
        return [own.cell, other.cell]

    for name, cell in (("first", None), ("second", "b"), ("both", "each")):
        app.declare_schedule(name, "@yearly", task="bill", cell=cell)
    app.declare_schedule("of a tenant", "@yearly", task="bill", tenant="bolt")
    jobs = [await start.using(tenant=tenant).aenqueue() for tenant in ("acme", "bolt")]
    async with app.node(cell="a"), app.node(cell="b"):
        assert [await job.aresult(timeout=60) for job in jobs] == [["a", "b"], ["b", "a"]]
        found = {}
        for cell in "ab":
            with app.cell(cell):
                found[cell] = {schedule.name for schedule in await app.schedules.alist()}
    assert found == {"a": {"first", "both"}, "b": {"second", "both", "of a tenant"}}
    await app.aclose()


def test_a_cell_that_is_down_does_not_slow_the_others(urls: dict[str, str]) -> None:
    app = App(cells={"a": urls["a"], "b": NOWHERE}, client_timeout=2)

    @app.task(type="bill")
    async def bill() -> None: ...

    with pytest.raises(NoDatabase):
        bill.using(cell="b").enqueue()
    assert bill.using(cell="a").enqueue().cell == "a"
    app.close()


def test_cells_are_checked(urls: dict[str, str]) -> None:
    for cells in (
        {"all": urls["a"]},
        {"a": {"listen_url": urls["a"]}},
        {"a": {"database_url": urls["a"], "pool": 3}},
        "a=mysql://x:secret@y/z",
        "b",
    ):
        with pytest.raises(SettingsError, match=r"Setting cells=\.\.\. \(hidden") as caught:
            _ = App(cells=cells).settings
        assert "secret" not in str(caught.value)
    with pytest.raises(SettingsError, match="There is no cell 'c'"):
        _ = App(cells=urls, cell="c").settings
    app = App(urls["a"])

    @app.task
    async def task() -> None: ...

    with pytest.raises(ValueError, match="this App has no cells"):
        task.using(cell="b").enqueue()
    app.close()


def test_an_app_with_one_cell_of_its_own_uses_it_by_default(urls: dict[str, str]) -> None:
    app = App(cells=f"a={urls['a']}; b={urls['b']}", cell="b")
    assert app.settings.database_url == urls["b"]

    @app.task(type="bill")
    async def bill() -> None: ...

    assert (bill.enqueue().cell, bill.using(cell="a").enqueue().cell) == ("b", "a")
    asyncio.run(app.aclose())
    app.close()


def _mark_moved(url: str, tenant: str, cell: str, state: str = "moved") -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DELETE FROM watchbill.tenant_moves WHERE tenant = %s", (tenant,))
        connection.execute(
            """INSERT INTO watchbill.tenant_moves (tenant, move, state, cell, started_at)
               VALUES (%s, gen_random_uuid(), %s, %s, now())""",
            (tenant, state, cell),
        )
        connection.execute("SET search_path = watchbill")
        connection.execute("SELECT watchbill._write_quota_filter()")


def test_a_call_follows_a_tenant_that_has_moved_and_stores_no_job_twice(app: App, urls: dict[str, str]) -> None:
    bill = app.tasks["bill"]
    _mark_moved(urls["a"], "amber", "b")
    with app.tenant("amber"):
        first = bill.enqueue()
        many = app.enqueue_many([bill.bind(), bill.bind()])
        assert [job.cell for job in (first, *many)] == ["b"] * 3
        # As after a lost reply: the job has moved with its tenant before the call is repeated.
        id_of_job = make_id(urls["b"])
        with psycopg.connect(urls["b"], autocommit=True) as connection:
            connection.execute(
                "SELECT watchbill.enqueue('bill', '{\"order\": 1}', tenant => 'amber', id => %s)", (id_of_job,)
            )
        again = bill.using(id=id_of_job).enqueue()
    assert (again.id, again.cell) == (id_of_job, "b")
    with pytest.raises(TenantMoved, match="has moved to cell b"), psycopg.connect(urls["a"]) as own:
        bill.using(tenant="amber", connection=own).enqueue()
    _mark_moved(urls["b"], "bronze", "nowhere")
    with pytest.raises(TenantMoved, match="has moved to cell nowhere"):
        bill.using(tenant="bronze").enqueue()


def make_id(url: str) -> UUID:
    with psycopg.connect(url) as connection:
        found: UUID = connection.execute("SELECT watchbill.uuid7()").fetchall()[0][0]
        return found


def test_a_call_waits_while_a_tenant_is_on_its_way(urls: dict[str, str]) -> None:
    app = App(cells=urls, cell_from=lambda tenant: "a", client_timeout=0.5)

    @app.task(type="bill")
    async def bill(order: int = 1) -> None: ...

    _mark_moved(urls["a"], "azure", "b", "leaving")
    with pytest.raises(TenantMoved, match="is on its way to cell b"):
        bill.using(tenant="azure").enqueue()
    waiting = App(cells=urls, cell_from=lambda tenant: "a", client_timeout=60)
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(waiting.enqueue, "bill", {"order": 1}, tenant="azure")
        _mark_moved(urls["a"], "azure", "b")
        assert job.result(60).cell == "b"
    app.close()
    waiting.close()
