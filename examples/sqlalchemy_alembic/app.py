"""Blocking code and a Session: `python app.py tea` places an order, `watchbill worker` writes its invoice."""

import os
import sys

from models import Invoice, Order
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from watchbill import App, current_job

app = App(name="orders")
engine = create_engine(os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://", 1))


@app.task
def write_invoice(order: int) -> int:
    """The invoice and the end of the job commit together, so an order never gets two invoices."""
    with Session(engine) as session, session.begin():
        invoice = Invoice(order_id=order)
        session.add(invoice)
        session.get_one(Order, order).state = "invoiced"
        session.flush()
        current_job().complete(invoice.id, connection=session)
        return invoice.id


def place_order(item: str) -> int:
    """The order and its job commit together."""
    with Session(engine) as session, session.begin():
        order = Order(item=item)
        session.add(order)
        session.flush()
        write_invoice.using(connection=session).enqueue(order.id)
        return order.id


if __name__ == "__main__":
    print(place_order(sys.argv[1]))
