"""Turns due schedules into jobs, one job per slot. There is no leader: any number of nodes do this at the same time."""
