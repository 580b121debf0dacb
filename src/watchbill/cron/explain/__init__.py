"""Describes a schedule in English. Schedules with different instants have different texts."""

from watchbill.cron.explain.schedule import explain

__all__ = ["explain"]
