"""Watchbill in other frameworks. Each module imports its framework, so it is imported only by those who use it."""
