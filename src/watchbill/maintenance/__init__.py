"""Chores that keep the queue healthy. There is no leader: any node may run any of them at any time."""
