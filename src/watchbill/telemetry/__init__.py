"""Events that a program can observe, and logs."""

import logging

# Without this handler, Python would print warnings of Watchbill in programs that have configured no logging.
logging.getLogger("watchbill").addHandler(logging.NullHandler())
