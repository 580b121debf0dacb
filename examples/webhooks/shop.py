"""The sender: a webhook is enqueued in the transaction in which an order is paid."""

import os
import sys

from watchbill import App
from watchbill.connectors import Endpoint, Signature, add_connectors

app = App()
add_connectors(app, allow_http=True)  # only because the receiver of this example has no certificate
app.endpoint(Endpoint("crm", os.environ["RECEIVER"], Signature("env:WATCHBILL_SECRET_OLD")))


def pay(order: int) -> None:
    # Store the payment on the same connection: connection=..., as docs/howto/transactions.md shows.
    app.enqueue("connector.webhook.deliver", {"endpoint": "crm", "type": "order.paid", "data": {"order": order}})


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        pay(int(argument))
    app.close()
