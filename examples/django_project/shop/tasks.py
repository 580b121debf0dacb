"""Found by Watchbill because it is called tasks.py and its app is installed."""

import os

from django.db import transaction

from watchbill import Retry
from watchbill.integrations.django import app
from shop.models import Order, Shipment


@app.task(queue="warehouse", retry=Retry(max_attempts=3), timeout=60)
def ship(order: int) -> int:
    with transaction.atomic():
        Shipment.objects.create(order_id=order, by_process=os.getpid())
        Order.objects.filter(pk=order).update(state="shipped")
    return os.getpid()
