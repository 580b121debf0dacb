"""Checks that the tables of an installation do not contradict each other, while it works."""
