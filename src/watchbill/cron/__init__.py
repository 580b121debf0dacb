"""Turns cron patterns into instants. Needs the standard library and nothing else.

>>> from datetime import UTC, datetime
>>> from watchbill.cron import Cron
>>> Cron("0 9 * * MON#2", tz="America/New_York").next(datetime(2025, 1, 1, tzinfo=UTC)).isoformat()
'2025-01-13T09:00:00-05:00'
"""

from watchbill.cron.errors import InvalidInstant, InvalidPattern
from watchbill.cron.schedule import Cron, Window

__all__ = ["Cron", "InvalidInstant", "InvalidPattern", "Window"]
