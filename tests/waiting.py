"""Waiting for something that another process does: by asking until it is true, never by a fixed pause."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], patience: float = 60) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the condition did not come true")
        time.sleep(0.01)
