"""Watchbill finds this module because its name is tasks.py and its app is installed."""

import os

from django.db import transaction

from shop.models import Order, Shipment
from watchbill.integrations.django import app


@app.task(queue="warehouse", retry=3)
def ship(order: int) -> int:
    with transaction.atomic():
        Shipment.objects.create(order_id=order, by_process=os.getpid())
        Order.objects.filter(pk=order).update(state="shipped")
    return os.getpid()
