"""Watchbill in other frameworks. Each module imports its framework, so a program imports only the module it uses."""
