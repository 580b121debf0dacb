"""Webhook: what `task.using(notify=...)` takes: the webhook that a job sends when it has ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from watchbill.model.option_names import suggest_options

Ending = Literal["succeeded", "dead", "canceled"]
_ENDINGS = ("succeeded", "dead", "canceled")
WEBHOOK_DELIVERY = "connector.webhook.deliver"  # the type of the job that sends it
WEBHOOK_QUEUE = "webhooks"


@suggest_options
@dataclass(frozen=True)
class Webhook:
    """A webhook to an endpoint of kind webhook, or to a free address, when a job has ended in one of the states `on`.
    With `result=True` it has the result of the job."""

    endpoint: str | None = None
    on: Sequence[Ending] = ("succeeded", "dead")
    result: bool = False
    url: str | None = None

    def __post_init__(self) -> None:
        if (self.endpoint is None) == (self.url is None):
            raise ValueError("Webhook() is invalid: give endpoint or url")
        if isinstance(self.on, str) or not self.on or not set(self.on) <= set(_ENDINGS):
            raise ValueError(f"Webhook(on={self.on!r}) is invalid: give some of {', '.join(_ENDINGS)}")

    @property
    def definition(self) -> dict[str, Any]:
        """The webhook in the form in which a job's `meta` has it."""
        place = {"url": self.url} if self.endpoint is None else {"endpoint": self.endpoint}
        return {**place, "on": list(self.on), "result": self.result}
