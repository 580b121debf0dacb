"""Seven tasks with steps: what takes days, waits for people, or has to be undone. README.md says how to try them."""

from __future__ import annotations

import asyncio
from typing import Any

from watchbill import (
    App,
    AsyncConnection,
    AsyncSteps,
    Retry,
    SignalTimeout,
    Steps,
    current_step,
)

app = App()


# What the tasks do outside: replace these by your bank, your mail and your model.


def say(what: str) -> str:
    print(f"{current_step().name}: {what}", flush=True)
    return what


async def charge(order: int) -> str:
    return say(f"payment {order}")


async def book(connection: AsyncConnection, order: int, payment: str) -> None:
    await connection.execute("CREATE TABLE IF NOT EXISTS entries (number int, payment text)")
    await connection.execute("INSERT INTO entries VALUES (%s, %s)", [order, payment])


async def ask_for_review(order: int) -> None:
    say(f"how was order {order}?")


async def look_up(number: int) -> str:
    return say(f"fact {number}")


async def remind(steps: AsyncSteps, user: int) -> str:
    await steps.sleep("1d")
    return await steps.run(look_up, user)


async def wait_for_payment(steps: AsyncSteps) -> Any:
    return (await steps.receive("paid")).payload


async def book_flight(trip: int) -> str:
    return say(f"flight {trip}")


async def cancel_flight(booking: str) -> None:
    say(f"cancel {booking}")


async def book_hotel(trip: int) -> str:
    return say(f"hotel {trip}")


async def cancel_hotel(booking: str) -> None:
    say(f"cancel {booking}")


@app.step(retry=Retry(max_attempts=2, base=0))
async def pay_trip(trip: int) -> None:
    raise ConnectionError("no money")


async def ask_model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    turn = sum(message["role"] == "assistant" for message in messages)
    calls = [{"id": f"call-{turn}-{number}"} for number in range(2)] if turn < 2 else []
    return {"role": "assistant", "text": f"turn {turn}", "calls": calls, "done": turn == 2}


async def use_tool(call: dict[str, Any]) -> dict[str, Any]:
    return {"role": "tool", "id": call["id"], "text": say("looked up")}


def read_export(export: str, turn: int) -> str | None:
    return "rows.csv" if turn == 2 else None


def freeze_books(day: str) -> str:
    return say(f"books until {day}")


@app.task
def render(path: str) -> str:
    return f"<{path}>"


# 1. Steps, a transaction and a sleep.


@app.task
async def fulfil(steps: AsyncSteps, order: int) -> str:
    payment = await steps.run(charge, order)
    await steps.run(book, order, payment)
    await steps.sleep("3d")
    await steps.run(ask_for_review, order)
    return payment


# 2. An approval, with a time-out.


@app.task
async def expense(steps: AsyncSteps, claim: int) -> str:
    try:
        answer = await steps.receive("approval", ask={"claim": claim}, timeout="2d")
    except SignalTimeout:
        answer = await steps.receive("approval", "override", ask={"claim": claim, "late": True})
    return f"{answer.payload['verdict']} by {answer.sent_by}"


# 3. Side by side.


@app.task
async def enrich(steps: AsyncSteps, user: int) -> list[Any]:
    facts = await steps.map(look_up, [user, user + 1, user + 2], key=str, at_once=2)
    return [facts, *await steps.gather(remind(steps, user), wait_for_payment(steps))]


# 4. A def, and other jobs.


@app.task
def report(steps: Steps, paths: list[str]) -> str:
    pages = steps.call_many([render.bind(path) for path in paths])
    return steps.call(render.bind("".join(pages)))


# 5. A saga.


@app.task(retry=Retry(max_attempts=1))
async def travel(steps: AsyncSteps, trip: int) -> None:
    await steps.using(undo=cancel_flight).run(book_flight, trip)
    await steps.using(undo=cancel_hotel).run(book_hotel, trip)
    await steps.run(pay_trip, trip)


# 6. A loop with a model.


@app.task(timeout="10m")
async def agent(steps: AsyncSteps, goal: str) -> str:
    messages: list[dict[str, Any]] = [{"role": "user", "content": goal}]
    while not (reply := await steps.run(ask_model, messages))["done"]:
        tools = [steps.using(key=call["id"]).run(use_tool, call) for call in reply["calls"]]
        messages += [reply, *await asyncio.gather(*tools)]
        steps.publish(turn=len(messages))
    return str(reply["text"])


# 7. Another system that is asked again and again, and a month that is closed by cron.


@app.task
def export(steps: Steps, name: str) -> str:
    turn = 0
    while (file := steps.run(read_export, name, turn)) is None:
        steps.sleep("10m")
        turn += 1
    return file


@app.schedule("0 6 1 * *", tz="Europe/Paris")
@app.task
def close_month(steps: Steps) -> str:
    day = steps.now()
    steps.run(freeze_books, day.date().isoformat())
    answer = steps.receive("auditor", ask={"month": day.month})
    return str(answer.payload)
