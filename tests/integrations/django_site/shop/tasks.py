"""Found by Watchbill because it is called tasks.py."""

import os

import django
from django.db import connection, transaction

from shop.models import Order
from watchbill import Retry, current_job
from watchbill.integrations.django import app

backends_seen: list[int] = []


def backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


@app.task
def ship(order: int) -> str:
    backends_seen.append(backend())
    Order.objects.filter(pk=order).update(state="shipped")
    return Order.objects.get(pk=order).item


@app.task(queue="mail")
async def ship_async(order: int) -> int:
    found = await Order.objects.aget(pk=order)
    found.state = "shipped"
    await found.asave()
    return int(await Order.objects.filter(state="shipped").acount())


@app.task(executor="process")
def ship_in_process(order: int) -> int:
    ship(order)
    return os.getpid()


@app.task(retry=Retry(max_attempts=1))
def ship_and_complete(order: int) -> str:
    with transaction.atomic():
        Order.objects.filter(pk=order).update(state="shipped")
        current_job().complete("done", connection=connection)
    return "done"


@app.task
def chain(order: int) -> None:
    """Enqueues in its own transaction, and rolls one back."""
    with transaction.atomic():
        ship.enqueue(order)
    try:
        with transaction.atomic():
            ship.enqueue(order)
            raise LookupError
    except LookupError:
        return


@app.schedule("0 9 * * MON-FRI")
@app.task
def report() -> int:
    return int(Order.objects.count())


if django.VERSION >= (6, 0):
    from shop import tasks_of_django

    __all__ = ["tasks_of_django"]
