"""What Foliot tells about itself: events, logs; later metrics and traces."""

import logging

logging.getLogger("foliot").addHandler(logging.NullHandler())  # as a library it speaks only where somebody listens
