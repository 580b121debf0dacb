"""Watchbill inside other people's frameworks. Each module imports its framework; only its users import the module."""
