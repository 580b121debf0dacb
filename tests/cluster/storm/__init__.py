"""Storms over token groups: real processes, real faults, and a checker that reads what was recorded."""
