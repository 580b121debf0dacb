"""The dashboard and the HTTP API: `Dashboard(app, auth=...)` is an ASGI application."""

from __future__ import annotations

from watchbill.dashboard.application import Dashboard
from watchbill.dashboard.gate import open_to_all
from watchbill.dashboard.identity import Identity

__all__ = ["Dashboard", "Identity", "open_to_all"]
