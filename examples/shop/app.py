"""A small shop. Run it with `watchbill up` in this directory (or `make up` at the top) and watch.

A thread places orders. Each order is a row and a job that commit together. Some payments fail and are retried. The job
for a stolen card is dead at once. Some customers cancel in time. Schedules restock the shop every ten seconds, count
the till every minute and close the books at night.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from decimal import Decimal

import watchbill
from watchbill import App, Permanent, Retry, Snooze, current_job

app = App(name="shop")

TABLES = """
CREATE SCHEMA IF NOT EXISTS shop;
CREATE TABLE IF NOT EXISTS shop.orders (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  customer text NOT NULL,
  total numeric NOT NULL,
  state text NOT NULL DEFAULT 'placed');
CREATE TABLE IF NOT EXISTS shop.shipments (order_id bigint PRIMARY KEY, shipped_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS shop.deliveries (slot timestamptz PRIMARY KEY, crates int NOT NULL);
"""


@app.task(queue="payments", retry=Retry(max_attempts=4, base=0.5, cap=5), timeout=10)
async def charge(order: int, customer: str, total: Decimal) -> str:
    """The bank is slow, and sometimes fails."""
    await asyncio.sleep(random.uniform(0.05, 0.3))
    if customer == "mallory":
        raise Permanent("the card was reported stolen")
    if random.random() < 0.35:
        raise ConnectionError("the bank does not answer")
    await ship.aenqueue(order=order)
    await send_mail.aenqueue(to=f"{customer}@example.com", subject=f"Order {order}: {total} paid")
    return f"receipt for {total}"


@app.task(queue="warehouse")
def ship(connection: watchbill.Connection, order: int) -> None:
    """Transactional: the shipment and the end of the job commit together, so nothing is shipped twice."""
    if random.random() < 0.1:
        raise Snooze(2)  # the van is full
    connection.execute("INSERT INTO shop.shipments (order_id) VALUES (%s)", (order,))
    connection.execute("UPDATE shop.orders SET state = 'shipped' WHERE id = %s", (order,))


@app.task(queue="mail", priority=-5)
async def send_mail(to: str, subject: str) -> int:
    current_job().progress({"to": to})
    return len(subject)


@app.task(queue="mail")
async def remind(customer: str) -> None:
    """Runs after a delay, and is often canceled before."""


@app.schedule(every=10, name="restock", description="Goods come in")
@app.task(queue="warehouse")
def restock(connection: watchbill.Connection) -> int:
    """The slot is the key, so a slot that fired twice would be rejected."""
    crates = random.randint(1, 9)
    connection.execute("INSERT INTO shop.deliveries VALUES (coalesce(%s, now()), %s)", (current_job().slot, crates))
    return crates


@app.schedule("* * * * *", missed="skip", arguments={"minutes": 1}, name="count-the-till")
@app.schedule("0 3 * * *", tz="Europe/Paris", arguments={"minutes": 24 * 60}, deadline=3600, name="close-the-books")
@app.task(queue="office")
def takings(connection: watchbill.Connection, minutes: int) -> str:
    row = connection.execute(
        "SELECT coalesce(sum(o.total), 0) FROM shop.orders o JOIN shop.shipments s ON s.order_id = o.id"
        " WHERE s.shipped_at > now() - make_interval(mins => %s)",
        (minutes,),
    ).fetchone()
    assert row is not None
    return f"{row[0]} in {minutes} min"


app.declare_schedule("tidy-up", "0 4 * * SUN", tz="Europe/Paris", command="VACUUM ANALYZE shop.orders", timeout=600)


def place_order(customer: str) -> None:
    """The order and its payment commit together: there is never one without the other."""
    total = Decimal(random.randint(500, 20_000)) / 100
    with app.client.connection() as connection, connection.transaction():
        row = connection.execute(
            "INSERT INTO shop.orders (customer, total) VALUES (%s, %s) RETURNING id", (customer, total)
        ).fetchone()
        assert row is not None
        charge.using(connection=connection, idempotency_key=f"order-{row[0]}").enqueue(row[0], customer, total)


def customers() -> None:
    with app.client.connection() as connection:
        connection.execute(TABLES)
    while True:
        place_order(random.choice(["alice", "bob", "carol", "dave", "mallory"]))
        reminder = remind.using(delay=random.uniform(1, 30)).enqueue("bob")
        if random.random() < 0.5:
            app.jobs.cancel(reminder.id, reason="the customer came by")
        time.sleep(random.uniform(0.2, 1.5))


@app.on("node_started")
def open_doors(name: str, epoch: int) -> None:
    threading.Thread(target=customers, name="customers", daemon=True).start()
