"""An order and the job that ships it commit together: there is never one without the other."""

import json
from typing import Any

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from shop.models import Order
from shop.tasks import ship
from watchbill.integrations.django import app


@csrf_exempt
@require_POST
@transaction.atomic
def place_order(request: HttpRequest) -> JsonResponse:
    item = json.loads(request.body)["item"]
    order = Order.objects.create(item=item)
    order.job_id = ship.enqueue(order.pk).id
    order.save()
    if item == "unicorn":
        raise ValueError("sold out")  # rolls back the order, and its job with it
    return JsonResponse({"order": order.pk, "job": order.job_id}, status=201)


@require_GET
def show_order(request: HttpRequest, order_id: int) -> JsonResponse:
    order = get_object_or_404(Order, pk=order_id)
    job: Any = app.jobs.get(order.job_id)
    return JsonResponse({"order": order.pk, "state": order.state, "job": job.state, "attempt": job.attempt})
