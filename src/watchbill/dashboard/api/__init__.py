"""The HTTP API under `/api/v1`. `endpoints.py` has the table of all endpoints; the other files have their handlers,
one file per resource."""
