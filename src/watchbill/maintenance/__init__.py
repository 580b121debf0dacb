"""Chores that keep the queue healthy. No leader: any node does them, at any time, as often as it likes."""
