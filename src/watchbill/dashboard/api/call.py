"""One row of the table of endpoints, and one request to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, RootModel
from starlette.requests import Request

from watchbill.client.operations import Operation
from watchbill.dashboard.api.shapes import Answer
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.identity import Identity, Role
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.visit import Board

MOST_BODY_BYTES = 1_000_000
MOST_BATCH_BYTES = 10_000_000
TENANT_HEADER = "Watchbill-Tenant"
KEY_HEADER = "Idempotency-Key"
B = TypeVar("B")
Q = TypeVar("Q")
R = TypeVar("R")


@dataclass(frozen=True)
class Reply:
    """An answer with another status than the first of its endpoint."""

    value: Any
    status: int


@dataclass(frozen=True)
class Call(Generic[B, Q]):
    """A request that was checked: who asks may ask this, and body and query are as the endpoint wants them."""

    request: Request
    endpoint: Endpoint
    board: Board
    identity: Identity
    path: Mapping[str, str]
    body: B
    query: Q
    tenant: str | None  # for which this request acts; None for all

    @asynccontextmanager
    async def acting(self, *, read_only: bool | None = None) -> AsyncIterator[Transaction]:
        """A transaction in the name of the caller. It cannot write if the endpoint only shows."""
        only_reads = self.endpoint.method == "GET" if read_only is None else read_only
        acting = self.board.database.acting(self.identity, read_only=only_reads, tenant=self.tenant, may_lag=False)
        async with acting as transaction:
            yield transaction

    @asynccontextmanager
    async def acting_for(self, tenant: str) -> AsyncIterator[Transaction]:
        """A transaction that may write, for this tenant: a producer without a tenant sees no other rows."""
        async with self.board.database.acting(self.identity, tenant=tenant) as transaction:
            yield transaction

    async def run(self, operation: Operation[R]) -> R:
        """Runs one operation in a transaction of its own."""
        async with self.acting() as transaction:
            return await transaction.run(operation)

    @property
    def idempotency_key(self) -> str | None:
        found = self.request.headers.get(KEY_HEADER)
        if found is not None and not 1 <= len(found) <= 200:
            raise Problem(422, f"The header {KEY_HEADER} has 1 to 200 characters.")
        return found


Handler = Callable[[Call[Any, Any]], Awaitable[Any]]


@dataclass(frozen=True)
class Endpoint:
    """One row of the table. `role` is None if a stranger may come. `errors` are its own statuses beside those that
    every endpoint may have; `sql` are the functions, views and tables that it calls and reads."""

    method: str
    path: str
    role: Role | None
    summary: str
    handle: Handler
    answer: type[Answer] | None = None  # None: no JSON
    body: type[BaseModel | RootModel[Any]] | None = None
    query: type[BaseModel] | None = None
    errors: tuple[int, ...] = ()
    sql: tuple[str, ...] = ()
    statuses: tuple[int, ...] = (200,)
    most_bytes: int = MOST_BODY_BYTES
    takes_key: bool = False  # the header Idempotency-Key
    takes_lines: bool = False  # newline-delimited JSON as well
    media_type: str = "application/json"

    @property
    def name(self) -> str:
        """The name of the function, which is the operation's id in the OpenAPI document."""
        module = self.handle.__module__.rpartition(".")[2]
        return f"{module}_{self.handle.__name__}"
