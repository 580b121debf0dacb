"""Frozen values such as jobs, schedules, states and the retry policy. This package does no I/O and reads no clock."""
