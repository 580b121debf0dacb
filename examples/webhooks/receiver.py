"""The receiver: verifies each webhook before it reads it, and acts on each id once."""

import os
from typing import Any

from fastapi import FastAPI, HTTPException, Request

from watchbill.connectors import InvalidSignature, verify_webhook

api = FastAPI()
secrets = [os.environ["WATCHBILL_SECRET_OLD"]]
orders: dict[str, int] = {}  # by webhook-id; a real receiver keeps them in its database
deliveries: list[str] = []


@api.post("/hooks")
async def receive(request: Request) -> dict[str, bool]:
    try:
        event = verify_webhook(request.headers, await request.body(), secrets)
    except InvalidSignature as error:
        raise HTTPException(400, str(error)) from None
    webhook_id = request.headers["webhook-id"]
    deliveries.append(webhook_id)
    is_new = webhook_id not in orders
    orders[webhook_id] = event["data"]["order"]
    return {"is_new": is_new}


@api.get("/orders")
async def list_orders() -> dict[str, Any]:
    return {"orders": sorted(orders.values()), "deliveries": deliveries}


@api.put("/secrets/{variable}")
async def use_secret(variable: str) -> None:
    """Replaces the secret. A real receiver reads it from its configuration."""
    secrets[:] = [os.environ[variable]]
