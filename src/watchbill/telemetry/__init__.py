"""What Watchbill tells about itself: events, logs; later metrics and traces."""

import logging

logging.getLogger("watchbill").addHandler(logging.NullHandler())  # as a library it speaks only where somebody listens
