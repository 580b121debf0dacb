"""Tasks for large payloads, one of each kind; a child process imports them from here, and its settings from outside."""

from __future__ import annotations

from pydantic import BaseModel

from watchbill import App, AsyncConnection, Connection, Retry

app = App()
ONCE = Retry(max_attempts=1)


class Order(BaseModel):
    number: int
    lines: list[str]


@app.task(retry=ONCE)
async def on_loop(order: Order) -> int:
    return len(order.lines) + order.number


@app.task(retry=ONCE)
def in_thread(order: Order) -> int:
    return len(order.lines) + order.number


@app.task(retry=ONCE, executor="process")
def in_process(order: Order) -> int:
    return len(order.lines) + order.number


@app.task(retry=ONCE)
def in_transaction(connection: Connection, order: Order) -> int:
    connection.execute("SELECT 1")
    return len(order.lines) + order.number


@app.task(retry=ONCE)
async def in_async_transaction(connection: AsyncConnection, order: Order) -> int:
    await connection.execute("SELECT 1")
    return len(order.lines) + order.number


@app.task(retry=ONCE, version=2)
async def renamed(order: Order) -> int:
    return order.number


@renamed.upgrade(from_version=1)
def from_first(payload: dict[str, object]) -> dict[str, object]:
    return {"order": payload["bestellung"]}
