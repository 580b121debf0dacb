"""The caller's own connection: what is done through it commits and rolls back with everything else he does there.

Watchbill imports none of the libraries whose connections it takes. An object is recognised by the names of its classes,
and spoken to in the few words that all of them have in common (`drivers.py`). The statements are written so that each
driver and each of its configurations means the same by them: text, boolean, bigint and float8 go in and come out.

What fails is the caller's business as well: PostgreSQL has aborted his transaction, or rolled back the one statement
in autocommit. His driver's errors reach him unchanged, so that his own retries work; only what our state machine
refuses, and a database without Watchbill, become errors of ours (`runners.py`).
"""

from watchbill.client.foreign.drivers import belongs_to_loop, copies
from watchbill.client.foreign.runners import arun, run

__all__ = ["arun", "belongs_to_loop", "copies", "run"]
