"""Due schedules become jobs, each slot once. No leader: any number of nodes do it at the same time."""
