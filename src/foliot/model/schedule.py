"""What can be read of a schedule, its slots, and why it does or does not fire."""

from __future__ import annotations

from typing import Literal

Missed = Literal["skip", "once", "catch_up"]
Overlap = Literal["skip", "queue", "cancel_previous", "allow"]
