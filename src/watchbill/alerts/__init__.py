"""Sends alerts to the routes that operators have set."""
