"""The dashboard's own connections. Each transaction acts for one identity, so the database checks rights and tenants
again: `SET LOCAL ROLE` to the group role of the identity, watchbill.tenant, watchbill.actor, and READ ONLY to look.
Nothing of this outlives the transaction, so a pooler may stand between.
"""

from __future__ import annotations

import copy
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg import sql
from psycopg_pool import PoolTimeout

from watchbill.client.client import AsyncClientConnection, aexecute
from watchbill.client.loop_pools import LoopPools, OnConnect
from watchbill.client.operations import Operation, Rows, Statement, adrive
from watchbill.dashboard.identity import Identity
from watchbill.errors import NoDatabase, WatchbillError
from watchbill.postgres.connect import AsyncConnection, AsyncPool
from watchbill.store.queries import Queries, queries
from watchbill.store.refusals import translate

R = TypeVar("R")
CONNECTIONS = 3
READ_TIMEOUT_SECONDS = 5.0
WRITE_TIMEOUT_SECONDS = 30.0
FREE_CONNECTION_SECONDS = 10.0  # how long a request waits for one of the connections
FACTS_SECONDS = 10.0  # how long roles and row security are remembered
REPLY_SECONDS = 60.0
NAME = "watchbill dashboard"


class NotSeparated(WatchbillError):
    """The database does not keep this tenant apart, so its identities may not act here."""


class NoMember(WatchbillError):
    """The login of the dashboard may not act as the role that this needs."""


@dataclass(frozen=True)
class Facts:
    """What the database knows of roles and tenants."""

    role_prefix: str | None
    row_security: bool
    login: str
    groups: frozenset[str]  # the kinds of work of which the login is a member


class Transaction:
    """What a request does in one transaction."""

    data_age: timedelta | None = None  # set if it reads a standby: how old the data is

    def __init__(self, connection: AsyncConnection, names: Queries) -> None:
        self.connection, self.queries = connection, names

    async def run(self, operation: Operation[R]) -> R:
        """Runs an operation of watchbill.client."""
        return await run_on(self.connection, operation, self.queries)

    async def fetch(self, query: str, params: Any = ()) -> Rows:
        """The rows of a named query."""

        def ask() -> Operation[Rows]:
            return (yield Statement(query, params))

        return await self.run(ask())


async def run_on(connection: AsyncConnection, operation: Operation[R], names: Queries) -> R:
    try:
        return await adrive(operation, aexecute, connection, names)
    except psycopg.Error as error:
        raise translate(error, names.schema) from error


class Standby(Protocol):
    """The part of `replica.py` that this module uses."""

    @property
    def database(self) -> Database: ...
    @property
    def age(self) -> timedelta | None: ...
    def note_change(self) -> None: ...
    async def is_usable(self) -> bool: ...


class Database:
    """A small pool, so that viewers can never use up the connections of workers."""

    def __init__(self, find_url: Callable[[], str], schema: str, *, prepare: bool = True) -> None:
        self._find_url, self._prepare = find_url, prepare
        self.queries = queries(schema)
        self._pools = LoopPools(self._open_pool)
        self._facts: Facts | None = None
        self._facts_until = 0.0
        self.most_seconds: float | None = None
        self.standby: Standby | None = None  # for transactions that only read

    def with_limit(self, seconds: float) -> Database:
        """The same connections, with at most so many seconds for each statement."""
        limited = copy.copy(self)
        limited.most_seconds = seconds
        return limited

    @asynccontextmanager
    async def acting(
        self,
        identity: Identity,
        *,
        read_only: bool = False,
        tenant: str | None = None,
        limit: float | None = None,
        may_lag: bool = True,
    ) -> AsyncIterator[Transaction]:
        """A transaction in the name of this identity. `tenant` is what an identity without a tenant names; `limit` is
        how many seconds each statement may take. One that only reads may read the standby, unless `may_lag` is
        False."""
        limit = self.most_seconds or limit or (READ_TIMEOUT_SECONDS if read_only else WRITE_TIMEOUT_SECONDS)
        if self.standby is not None and not read_only:
            self.standby.note_change()
        elif self.standby is not None and may_lag and await self.standby.is_usable():
            reading = self.standby.database.acting(identity, read_only=True, tenant=tenant, limit=limit)
            async with reading as transaction:
                transaction.data_age = self.standby.age
                yield transaction
            return
        facts = await self.read_facts()
        role = _choose_role(identity, facts, read_only=read_only)
        begin = _write_begin(role, identity.tenant or tenant, identity.name, read_only=read_only, timeout=limit)
        async with self._transaction(begin) as transaction:
            yield transaction

    @asynccontextmanager
    async def acting_as_itself(self, *, actor: str = NAME) -> AsyncIterator[Transaction]:
        """A transaction with the rights of the dashboard's own login, for keys and saved filters."""
        begin = _write_begin(None, None, actor, read_only=False, timeout=READ_TIMEOUT_SECONDS)
        async with self._transaction(begin) as transaction:
            yield transaction

    async def read_facts(self) -> Facts:
        if self._facts is None or time.monotonic() >= self._facts_until:
            try:
                async with self.connection() as connection:
                    cursor = await connection.execute(self.queries["web_facts"].encode())
                    ((prefix, row_security, login, groups),) = await cursor.fetchall()
            except psycopg.Error as error:
                raise translate(error, self.queries.schema) from error
            self._facts = Facts(prefix, row_security, login, frozenset(groups))
            self._facts_until = time.monotonic() + FACTS_SECONDS
        return self._facts

    async def close(self) -> None:
        await self._pools.close()
        if self.standby is not None:
            await self.standby.database.close()

    @asynccontextmanager
    async def _transaction(self, begin: bytes) -> AsyncIterator[Transaction]:
        async with self.connection() as connection:
            try:
                await connection.execute(begin, prepare=False)
                yield Transaction(connection, self.queries)
                await connection.execute(b"COMMIT", prepare=False)
            except psycopg.Error as error:
                await _roll_back(connection)
                raise translate(error, self.queries.schema) from error
            except BaseException:
                await _roll_back(connection)
                raise

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        try:
            pool = await self._pools.get_for_running_loop()
            connection = await pool.getconn()
        except PoolTimeout as error:
            raise NoDatabase(
                f"No connection of the dashboard became free within {FREE_CONNECTION_SECONDS:g} s.",
                hint="Try again; if it stays, see `watchbill doctor`.",
            ) from error
        try:
            yield connection
        finally:
            await pool.putconn(connection)

    async def _open_pool(self, on_connect: OnConnect) -> AsyncPool:
        pool = AsyncPool(
            self._find_url(),
            connection_class=AsyncClientConnection,
            configure=on_connect,
            open=False,
            min_size=0,
            max_size=CONNECTIONS,
            timeout=FREE_CONNECTION_SECONDS,
            name=NAME,
            kwargs={
                "autocommit": True,
                "prepare_threshold": 5 if self._prepare else None,
                "reply_timeout": REPLY_SECONDS,
                "application_name": NAME,
            },
        )
        await pool.open()
        return pool


def _choose_role(identity: Identity, facts: Facts, *, read_only: bool) -> str | None:
    """The group role of the transaction; None if the installation has no group roles, so that only the web checks.

    Who looks at one tenant is its reader. Who looks at all tenants is an operator in a transaction that cannot write:
    with row security, a reader without a tenant sees nothing.
    """
    if identity.tenant is not None and (facts.role_prefix is None or not facts.row_security):
        raise NotSeparated(
            f"{identity.name} may act for tenant {identity.tenant} only, and here tenants are not kept apart.",
            hint="Run `watchbill db roles create` and `watchbill db tenants enable`.",
        )
    if facts.role_prefix is None:
        return None
    kind = identity.database_role
    if read_only:
        kind = "reader" if identity.tenant is not None or not facts.row_security else "operator"
    if kind not in facts.groups:
        raise NoMember(
            f"The login {facts.login} of the dashboard is not a member of {facts.role_prefix}_{kind}.",
            hint=f"Run `watchbill db roles grant {facts.login} {kind}`.",
        )
    return f"{facts.role_prefix}_{kind}"


def _write_begin(role: str | None, tenant: str | None, actor: str, *, read_only: bool, timeout: float) -> bytes:
    """One text, so that a transaction begins with one round trip."""
    parts = [
        sql.SQL("BEGIN ISOLATION LEVEL READ COMMITTED {}").format(sql.SQL("READ ONLY" if read_only else "READ WRITE")),
        sql.SQL("SET LOCAL statement_timeout = {}").format(sql.Literal(round(timeout * 1000))),
        sql.SQL("SELECT set_config('watchbill.tenant', {}, true), set_config('watchbill.actor', {}, true)").format(
            sql.Literal(tenant or ""), sql.Literal(actor)
        ),
    ]
    if role is not None:
        parts.append(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
    return sql.SQL("; ").join(parts).as_bytes(None)


async def _roll_back(connection: AsyncConnection) -> None:
    with suppress(psycopg.Error):  # a broken connection has rolled back, and the pool replaces it
        await connection.execute(b"ROLLBACK", prepare=False)
