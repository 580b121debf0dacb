"""Frozen values: jobs, schedules, states, the retry policy. No I/O, no clock."""
