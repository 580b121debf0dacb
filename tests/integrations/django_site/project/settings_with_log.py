"""LOGGING as many write it: it says nothing of loggers that are there already."""

from project.settings import *  # noqa: F403

LOGGING = {
    "version": 1,
    "formatters": {"ours": {"format": "as LOGGING says: %(message)s"}},
    "handlers": {"out": {"class": "logging.StreamHandler", "formatter": "ours", "stream": "ext://sys.stdout"}},
    "root": {"handlers": ["out"], "level": "INFO"},
}
