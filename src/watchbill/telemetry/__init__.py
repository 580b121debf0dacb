"""Events and logs."""

import logging

logging.getLogger("watchbill").addHandler(logging.NullHandler())  # a library logs only where the program configures it
