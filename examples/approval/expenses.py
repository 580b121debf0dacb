"""A claim for expenses waits for a person, for days if need be, and is paid once. `watchbill up expenses` runs it."""

from __future__ import annotations

import os

from watchbill import App, AsyncConnection, AsyncSteps, Retry, SignalTimeout, current_step

app = App(name="expenses")
FREE_AMOUNT = 50  # no person is asked
ANSWER_TIME = os.environ.get("ANSWER_TIME", "2d")

TABLE = "CREATE TABLE IF NOT EXISTS payments (claim bigint PRIMARY KEY, amount bigint NOT NULL)"


async def ask(person: str, claim: int, amount: int) -> None:
    """Send a mail here, with a link whose handler calls `app.jobs.signal(...)`."""
    print(f"{person}: is {amount} for claim {claim} all right?  ({current_step().key})", flush=True)


async def pay(connection: AsyncConnection, claim: int, amount: int) -> int:
    """Transactional: the payment and the result of the step commit together, so it happens once."""
    await connection.execute(TABLE)
    await connection.execute("INSERT INTO payments VALUES (%s, %s)", [claim, amount])
    return amount


async def tell(claim: int, what: str) -> None:
    print(f"claim {claim}: {what}", flush=True)


@app.task(retry=Retry(max_attempts=5, base="30s"))
async def expense(steps: AsyncSteps, claim: int, amount: int) -> str:
    """Between two steps the job uses no slot, no connection and no memory, and a worker may be replaced."""
    if amount > FREE_AMOUNT:
        await steps.run(ask, "manager", claim, amount)
        try:
            answer = await steps.receive("approval", ask={"claim": claim, "amount": amount}, timeout=ANSWER_TIME)
        except SignalTimeout:
            await steps.run(ask, "director", claim, amount)
            answer = await steps.receive("approval", "late", ask={"claim": claim, "amount": amount, "late": True})
        if answer.payload["verdict"] != "yes":
            await steps.run(tell, claim, "refused")
            return f"refused by {answer.sent_by}"
    paid = await steps.run(pay, claim, amount)
    await steps.run(tell, claim, f"{paid} paid")
    return f"{paid} paid"
