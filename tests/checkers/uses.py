"""Right and wrong uses of the public surface; never run, only read by mypy and pyright (test_typing.py).

What is right must pass both in their strict modes; what is wrong stands on a line that says so, and both must find it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type
from uuid import UUID

from watchbill import (
    App,
    AsyncConnection,
    Batch,
    Call,
    Connection,
    Depends,
    Job,
    JobRecord,
    Reason,
    Retry,
    ScheduleFilter,
    ScheduleRecord,
    SlotRecord,
    Task,
    Tasks,
    chain,
    current_job,
    group,
)

app = App()
tasks = Tasks()


@app.task(queue="mail", retry=Retry(max_attempts=5), timeout=30, version=2, aliases=["old.name"])
async def send(to: str, subject: str = "") -> int:
    return len(to + subject)


@app.task
def area(width: float, *, height: float) -> float:
    return width * height


@tasks.task(executor="process")
def shout(word: str) -> str:
    return word.upper()


@app.task
def bill(connection: Connection, order: int) -> str:
    return f"{order} {connection.closed}"


@app.task(timeout=timedelta(minutes=1))
async def abill(connection: AsyncConnection, order: int) -> str:
    return f"{order} {connection.closed}"


@send.upgrade(from_version=1)
def with_subject(payload: dict[str, Any]) -> dict[str, Any]:
    return payload | {"subject": "none"}


def enqueue() -> None:
    assert_type(send.enqueue("a@b.c", subject="hi"), Job[int])
    assert_type(send.enqueue("a@b.c").result(timeout=5), int)
    assert_type(area.enqueue(1, height=2).result(), float)
    assert_type(shout.enqueue("hi").result(), str)
    assert_type(area.enqueue(1, height=2).get(), JobRecord)
    assert_type(send.enqueue("a@b.c").id, UUID)
    send.enqueue(1)  # wrong
    send.enqueue()  # wrong
    send.enqueue("a@b.c", subjet="hi")  # wrong
    send.enqueue("a@b.c", "hi", "you")  # wrong
    area.enqueue(1, 2)  # wrong
    area.enqueue(1, height="2")  # wrong
    print(shout.enqueue("hi").result() + 1)  # wrong
    area.enqueue(1, height=2).result().upper()  # wrong
    shout.enqueue("hi").results()  # wrong


async def aenqueue() -> None:
    assert_type(await send.aenqueue("a@b.c", subject="hi"), Job[int])
    assert_type(await (await send.aenqueue("a@b.c")).aresult(timeout=5), int)
    assert_type(await (await area.aenqueue(1, height=2)).aresult(), float)
    await send.aenqueue(None)  # wrong
    await area.aenqueue(width=1)  # wrong
    print(send.aenqueue("a@b.c").id)  # wrong
    await send.enqueue("a@b.c")  # wrong


async def plain_calls() -> None:
    assert_type(area(1, height=2), float)
    later: Coroutine[Any, Any, int] = send("a@b.c")
    assert_type(await later, int)
    area("1", height=2)  # wrong
    await area(1, height=2)  # wrong
    print(send("a@b.c") + 1)  # wrong


def bind() -> None:
    assert_type(send.bind("a@b.c"), Call[int])
    assert_type(app.enqueue_many([send.bind("a@b.c"), send.bind("d@e.f")]), list[Job[int]])
    for job in app.enqueue_many([send.bind("a@b.c"), shout.bind("hi")]):
        print(job.result())
    send.bind(to=1)  # wrong
    shout.bind("hi", "you")  # wrong
    app.enqueue_many([send.enqueue("a@b.c")])  # wrong
    app.enqueue_many([send])  # wrong


def using(connection: Connection) -> None:
    soon = send.using(priority=5, delay=60, idempotency_key="k", connection=connection)
    assert_type(soon.enqueue("a@b.c"), Job[int])
    assert_type(send.using(run_at=datetime.now(UTC)).using(delay=timedelta(hours=1)).bind("a@b.c"), Call[int])
    send.using(prioritty=5)  # wrong
    send.using(priority="high")  # wrong
    send.using(run_at="tomorrow")  # wrong
    send.using(retry=5, delay="5m", timeout="1h30m")
    send.using(retry="5")  # wrong
    send.using(delay=60).enqueue(1)  # wrong


def by_type() -> None:
    assert_type(app.enqueue("mail.send", {"to": "a@b.c"}, queue="mail"), Job[Any])
    app.enqueue(send, {"to": "a@b.c"})  # wrong
    app.enqueue("mail.send", to="a@b.c")  # wrong
    app.enqueue("mail.send", ["a@b.c"])  # wrong


async def transactional(connection: Connection, aconnection: AsyncConnection) -> None:
    assert_type(bill.enqueue(7), Job[str])
    assert_type(await abill.aenqueue(order=7), Job[str])
    assert_type(bill(connection, 7), str)
    assert_type(await abill(aconnection, 7), str)
    bill.enqueue(connection, 7)  # wrong
    bill(7)  # wrong
    await abill(connection, 7)  # wrong
    bill.enqueue("7")  # wrong


def declare() -> None:
    app.include(tasks)
    app.include(shout)  # wrong
    app.task(queu="mail")  # wrong
    app.task(retry=5, timeout="5m")
    app.task(retry="5")  # wrong
    app.task(executor="fork")  # wrong


@app.schedule("0 9 * * MON-FRI", tz="America/New_York", missed="once", arguments={"region": "eu"})
@app.task
def report(region: str = "eu") -> int:
    return len(region)


@tasks.schedule(every=timedelta(minutes=5), overlap="queue", name="polling", tags=["often"])
@tasks.task(queue="slow")
async def poll() -> str:
    return "polled"


def declared() -> None:
    assert_type(report("us"), int)
    assert_type(report.enqueue("us"), Job[int])
    assert_type(poll.bind(), Call[str])
    app.declare_schedule("tidy", "@daily", command="DELETE FROM carts", role="janitor")
    app.declare_schedule("eu", "@daily", task=report.bind("eu"))
    report.enqueue(1)  # wrong
    app.schedule("@daily", timezone="UTC")  # wrong
    app.schedule("@daily", missed="always")  # wrong
    app.schedule(every="5m", retry=3)
    app.schedule(every=[5])  # wrong
    app.schedule("@daily")(print)  # wrong
    app.schedule("@daily", command="SELECT 1")  # wrong
    app.declare_schedule("eu", task=print)  # wrong


async def schedules() -> None:
    assert_type(app.schedules.add("x", "@daily", task=send.bind("a@b.c"), tz="Asia/Tokyo"), ScheduleRecord)
    assert_type(await app.schedules.aadd("x", at=datetime.now(UTC), task="mail.send"), ScheduleRecord)
    assert_type(app.schedules.update("x", pattern=None, every=5, end=None), ScheduleRecord)
    assert_type(app.schedules.list(ScheduleFilter(tag="eu", status="failing")), list[ScheduleRecord])
    assert_type(app.schedules.history("x", limit=5), list[SlotRecord])
    assert_type(await app.schedules.apreview("x", 3), list[datetime])
    assert_type(app.schedules.why("x"), list[Reason])
    assert_type(app.schedules.run_now("x", arguments={"to": "a@b.c"}), Job[Any])
    app.schedules.add("x", "@daily", task=send, overlap="wait")  # wrong
    app.schedules.add("x", at="tomorrow", task=send)  # wrong
    app.schedules.update("x", patern="@daily")  # wrong
    app.schedules.update("x", "@daily")  # wrong
    app.schedules.list(ScheduleFilter(status="broken"))  # wrong
    print(app.schedules.aget("x").next_run)  # wrong


def flows() -> None:
    first = shout.enqueue("hi")
    assert_type(send.using(depends_on=first, run_if="all_finished").enqueue("a@b.c"), Job[int])
    assert_type(group(shout.bind("hi"), shout.bind("you")).enqueue(), list[Job[str]])
    chain(shout.bind("hi"), group(send.bind("a@b.c"), report.bind())).enqueue()
    chain(shout, send)  # wrong
    chain(shout.enqueue("hi"))  # wrong
    group(shout.bind(1))  # wrong
    send.using(run_if="sometimes")  # wrong


def takes_any(task: Task[[str], object]) -> None:
    task.enqueue("hi")
    task.enqueue(1)  # wrong


def hand_on() -> None:
    takes_any(shout)
    takes_any(area)  # wrong


@app.around_run
def timed(job: object) -> Generator[None, None, None]:
    yield


@app.task
def introspective() -> None:
    job = current_job()
    assert_type(job.id, UUID)
    assert_type(job.attempt, int)
    assert_type(job.tenant, str)
    assert_type(job.deadline, float | None)
    assert_type(job.canceled, bool)
    assert_type(job.fence, int)
    job.progress({"done": 1})
    job.complete()  # wrong


def dependencies(earlier: Job[int]) -> None:
    flow = chain(send.bind("a"), group(area.bind(1, height=2), area.bind(2, height=3)), shout.bind("x"))
    assert_type(group(area.bind(1, height=2)).enqueue(), list[Job[float]])
    send.using(depends_on=flow, run_if="all_finished").bind("b")
    send.using(depends_on=[earlier, earlier.id, send.bind("c")]).enqueue("d")
    send.using(run_if="sometimes")  # wrong
    send.using(depends_on="a")  # wrong
    chain(send)  # wrong
    assert_type(send.bind("a").result, int)
    assert_type(group(send.bind("a"), send.bind("b")).results, list[int])
    area.bind(send.bind("a").result, height=2)
    shout.bind(send.bind("a").result)  # wrong
    shout.bind(group(shout.bind("a")).results)  # wrong
    assert_type(current_job().result_of(area), float)
    assert_type(current_job().results_of(send), list[int])
    current_job().result_of("area")  # wrong


class Client:
    def post(self, to: str) -> int:
        return len(to)


async def get_client() -> AsyncIterator[Client]:
    yield Client()


async def get_client_once() -> Client:
    return Client()


def get_generator_client() -> Iterator[Client]:
    yield Client()


def get_size(client: Client = Depends(get_client, per="attempt")) -> int:
    return client.post("x")


@app.task
async def post(to: str, *, client: Client = Depends(get_client), size: int = Depends(get_size, per="attempt")) -> int:
    return client.post(to) + size


@app.task
def bill_with(connection: Connection, order: int, *, client: Client = Depends(get_generator_client)) -> int:
    return client.post(f"{order} {connection.closed}")


async def injected(connection: Connection) -> None:
    assert_type(Depends(get_client), Client)
    assert_type(Depends(get_client_once), Client)
    assert_type(Depends(get_generator_client), Client)
    assert_type(Depends(get_size), int)
    assert_type(Depends(Client), Client)
    assert_type(post.enqueue("a@b.c"), Job[int])
    assert_type(await post("a@b.c", client=Client(), size=1), int)
    assert_type(bill_with(connection, 7, client=Client()), int)
    bill_with.enqueue(7)
    post.enqueue()  # wrong
    await post("a@b.c", client="client")  # wrong
    Depends(Client())  # wrong
    Depends(get_client, per="job")  # wrong
    word: str = Depends(get_client)  # wrong
    print(word)


@app.task(batch=Batch(size=200, wait="500ms"), queue="index", max_per_node=2)
def index(docs: list[int]) -> None:
    print(docs)


@app.task(batch=Batch(size=10))
async def measure(words: list[str], *, client: Client = Depends(get_client)) -> list[int]:
    return [client.post(word) for word in words]


@app.task(batch=Batch(size=10))
def bill_all(connection: Connection, orders: list[int]) -> list[str]:
    return [f"{order} {connection.closed}" for order in orders]


async def batches(connection: Connection) -> None:
    assert_type(index.enqueue(7), Job[None])
    assert_type(measure.enqueue("seven"), Job[int])
    assert_type(await measure.using(delay=5).aenqueue("seven"), Job[int])
    assert_type(bill_all.enqueue(7), Job[str])
    assert_type(measure.bind("seven"), Call[int])
    assert_type(await measure(["seven"], client=Client()), list[int])
    assert_type(bill_all(connection, [7]), list[str])
    index([7])
    app.enqueue_many([index.bind(7), index.bind(8)])
    index.enqueue([7])  # wrong
    index.enqueue("7")  # wrong
    index.enqueue(7, 8)  # wrong
    index(7)  # wrong
    measure.enqueue(7)  # wrong
    print(measure.enqueue("seven").result().upper())  # wrong
    bill_all.enqueue(connection, 7)  # wrong
    Batch(size="200")  # wrong
    app.task(batch=200)  # wrong
    app.task(max_per_node="2")  # wrong


class State:
    client: Client


typed = App[State]()


@typed.lifespan
async def state(app: App[State]) -> AsyncGenerator[State, None]:
    yield State()


@typed.lifespan  # wrong
async def other_state(app: App[State]) -> AsyncGenerator[int, None]:
    yield 1


@typed.task
async def post_with_state(to: str) -> int:
    assert_type(typed.state, State)
    assert_type(app.state, Any)
    print(typed.state.cliemt)  # wrong
    with typed.override(get_client, Client()):
        return typed.state.client.post(to)
