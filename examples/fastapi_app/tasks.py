"""The tasks. `watchbill worker` and `watchbill up` find the App here. This file does not import the web application."""

import os
from collections.abc import AsyncIterator

from database import Sessions, app, open_sessions
from models import Order, Shipment

from watchbill import App, Retry


@app.lifespan
async def with_sessions(app: App) -> AsyncIterator[Sessions]:
    async with open_sessions() as sessions:
        yield sessions  # app.state


@app.task(queue="warehouse", retry=Retry(max_attempts=3), timeout=60)
async def ship(order: int) -> int:
    async with app.state() as session, session.begin():
        (await session.get_one(Order, order)).state = "shipped"
        session.add(Shipment(order_id=order, by_process=os.getpid()))
    return os.getpid()
