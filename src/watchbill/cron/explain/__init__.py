"""A schedule in English. What differs in instants differs in words: every clause says all that the schedule says."""

from watchbill.cron.explain.schedule import explain

__all__ = ["explain"]
