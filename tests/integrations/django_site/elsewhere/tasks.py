import celery  # noqa: F401
