"""The chore that sends alerts.

A sender claims a delivery for a minute (`_claim_alert_deliveries`), sends it, and notes how that has ended
(`_end_alert_delivery`). If the process dies in between, another sender takes the delivery after that minute and sends
it again, with the same id: a receiver may get a message twice, and never misses one. Sending takes at most
`LONGEST_SECONDS`, which is less than the minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from watchbill.alerts.config import AlertConfig
from watchbill.alerts.routes import Message, NotSent, Routes
from watchbill.store.node_connection import NodeConnection

logger = logging.getLogger("watchbill.alerts")

HOUR = 3600.0
LEAST_PAUSE_SECONDS = 0.1

Send = Callable[[str, str | None, str | None, Message], Awaitable[None]]


class Delivery(NamedTuple):
    """A row of the SQL function `_claim_alert_deliveries`. Without a kind the route was removed."""

    id: bytes
    tries: int
    route: str
    kind: str | None
    target: str | None
    secret: str | None
    event: str
    message: str


class AlertSender:
    def __init__(
        self, connection: NodeConnection, config: AlertConfig, wakeup: asyncio.Event, send: Send | None = None
    ) -> None:
        """`send` sends a message to a kind of route, its target, with its secret; it raises NotSent."""
        self._connection, self._config, self._wakeup = connection, config, wakeup
        self._abilities = config.abilities
        self._send = send or Routes(config).send

    async def run(self) -> float:
        """Sends what is due. Returns the seconds until the next message is due; the survey wakes the sender when there
        is a new one."""
        self._wakeup.clear()
        rows = await self._connection.execute("claim_alert_deliveries", (self._abilities,))
        # Each end is noted as soon as it is known, and no failure to note one keeps the others from it.
        ends = await asyncio.gather(*(self._deliver(Delivery._make(row)) for row in rows), return_exceptions=True)
        for each in ends:
            if isinstance(each, BaseException):
                raise each
        ((pause,),) = await self._connection.execute("find_next_delivery", (self._abilities,))
        return HOUR if pause is None else min(HOUR, max(LEAST_PAUSE_SECONDS, pause))

    async def _deliver(self, delivery: Delivery) -> None:
        error = await self._try(delivery)
        if error is not None:
            logger.warning("Try %d to send an alert to the route %s failed: %s", delivery.tries, delivery.route, error)
        delivery_id = UUID(bytes=delivery.id)
        params = (delivery_id, delivery.tries, error, delivery.kind is None)
        if await self._connection.execute("end_alert_delivery", params) == [("given_up",)]:
            logger.error(
                "The alert %s was not sent to the route %s and is given up: %s. Mend the route, and try it with "
                "`watchbill alerts test %s`",
                delivery_id, delivery.route, error, delivery.route,
            )  # fmt: skip

    async def _try(self, delivery: Delivery) -> str | None:
        """Returns why the message was not sent."""
        if delivery.kind is None:
            return "the route was removed"
        content: dict[str, Any] = orjson.loads(delivery.message)
        content["data"] = self._config.redaction.hide("alert", content["data"], type=None)
        message = Message(UUID(bytes=delivery.id), delivery.event, content)
        try:
            await self._send(delivery.kind, delivery.target, delivery.secret, message)
        except NotSent as error:
            return self._config.redaction.hide_text(str(error))
        return None
