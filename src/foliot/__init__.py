"""Foliot runs work on time, once, on the right node."""

from foliot._version import __version__

__all__ = ["__version__"]
