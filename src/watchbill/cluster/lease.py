"""The lease of this node on its own clock: until when it may act as the owner of what it has."""

from __future__ import annotations

import math

USED_PART = 0.8  # of a lease; the rest is for clocks that do not run alike, and for what follows a check


class Lease:
    """Written by the worker and its heartbeat, read from any thread.

    It names its epoch: what a node has read under an epoch that it has lost must not count under the next one.
    """

    __slots__ = ("deadline", "epoch", "sent")

    def __init__(self) -> None:
        self.deadline, self.epoch = -math.inf, 0
        self.sent: float | None = None  # when the last heartbeat was sent that was confirmed

    def begin(self, epoch: int, sent: float, seconds: float) -> None:
        """`sent`: when the registration was sent. The server has counted from a later moment."""
        self.deadline, self.epoch, self.sent = sent + seconds * USED_PART, epoch, sent

    def renew(self, epoch: int, sent: float, seconds: float) -> None:
        """`sent`: when the heartbeat was sent that is confirmed now."""
        if epoch == self.epoch:
            self.deadline, self.sent = sent + seconds * USED_PART, sent

    def end(self) -> None:
        self.deadline, self.epoch = -math.inf, 0
