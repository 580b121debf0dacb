"""What `watchbill doctor` looks at. Each check says that a thing is well, or what is wrong with it and the way out.

finding.py     what a check returns
machine.py     this machine: Python, time zones, the embedded server
server.py      the server: version, schema, clock, limits, role defaults, old transactions
zone_table.py  the zones that schedules in SQL count on
claims.py      jobs that are claimed by nobody
schedules.py   whether schedules fire
path.py        what stands between: poolers, and whether LISTEN comes through
examine.py     all of them in order; what cannot be looked at without a connection says so
"""

from watchbill.postgres.checks.examine import examine
from watchbill.postgres.checks.finding import Finding

__all__ = ["Finding", "examine"]
