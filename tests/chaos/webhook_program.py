"""Workers that send webhooks to the receiver of tests/chaos/test_webhook_deliveries.py, whose address is in RECEIVER,
to so many ENDPOINTS."""

from __future__ import annotations

import os

from watchbill import App
from watchbill.connectors import Endpoint, Signature, add_connectors

app = App(name="chaos-webhooks")
add_connectors(app, allow_http=True)
for number in range(int(os.environ["ENDPOINTS"])):
    address = f"{os.environ['RECEIVER']}/{number}"
    app.endpoint(Endpoint(f"e{number}", address, Signature("env:WATCHBILL_SECRET_CHAOS")))
