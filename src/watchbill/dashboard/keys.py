"""API keys as logins: who comes with a key, and what it may do. `client/key_operations.py` says what a key is."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import cast

from watchbill.client import key_operations
from watchbill.dashboard.database import Database
from watchbill.dashboard.identity import Identity, Role

REMEMBERED_SECONDS = 5.0  # so a revoked key is refused within ten seconds
_MOST_REMEMBERED = 10_000


class Keys:
    """Asks the database, and remembers its answers for a few seconds: unknown keys too, so that guessing costs it
    little."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: OrderedDict[tuple[str, bytes | None], tuple[float, Identity | None]] = OrderedDict()

    async def find(self, credential: str) -> Identity | None:
        """Who has this key; None if it is unknown, expired or revoked."""
        key_id = key_operations.find_key_id(credential)
        return None if key_id is None else await self._look_up(key_id, key_operations.hash_key(credential))

    async def find_by_id(self, key_id: str) -> Identity | None:
        """Who has the key with this public part, which the cookie of a session names."""
        return await self._look_up(key_id, None)

    async def _look_up(self, key_id: str, hashed: bytes | None) -> Identity | None:
        until, identity = self._known.get((key_id, hashed), (0.0, None))
        if time.monotonic() >= until:
            identity = await self._ask(key_id, hashed)
            self._known[key_id, hashed] = (time.monotonic() + REMEMBERED_SECONDS, identity)
            self._known.move_to_end((key_id, hashed))
            while len(self._known) > _MOST_REMEMBERED:
                self._known.popitem(last=False)
        return identity

    async def _ask(self, key_id: str, hashed: bytes | None) -> Identity | None:
        async with self._database.acting_as_itself() as transaction:
            found = await transaction.run(key_operations.use_key(key_id, hashed))
        if found is None:
            return None
        return Identity(
            found.name,
            cast("Role", found.role),
            found.tenant,
            tuple(found.queues),
            tuple(found.types),
            key=key_id,
            rate=found.rate,
        )
