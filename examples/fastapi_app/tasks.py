"""The tasks. `watchbill worker` and `watchbill up` find the App here; nothing in this file knows the web."""

import os

from database import sessions
from models import Order, Shipment

from watchbill import App, Retry

app = App(name="orders")


@app.task(queue="warehouse", retry=Retry(max_attempts=3), timeout=60)
async def ship(order: int) -> int:
    async with sessions() as session, session.begin():
        (await session.get_one(Order, order)).state = "shipped"
        session.add(Shipment(order_id=order, by_process=os.getpid()))
    return os.getpid()
