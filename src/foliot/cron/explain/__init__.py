"""A schedule in English. What differs in instants differs in words: every clause says all that the schedule says."""

from foliot.cron.explain.schedule import explain

__all__ = ["explain"]
