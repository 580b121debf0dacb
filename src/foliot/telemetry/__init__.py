"""What Foliot tells about itself: events, logs; later metrics and traces."""
