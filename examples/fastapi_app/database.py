"""The App, and sessions on its database: an order and its job commit together, in tests too."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

from watchbill import App

app = App(name="orders")  # the address: DATABASE_URL
Sessions = async_sessionmaker[AsyncSession]


@asynccontextmanager
async def open_engine() -> AsyncIterator[AsyncEngine]:
    """An engine belongs to one event loop: the web server opens one, and so does each worker."""
    engine = create_async_engine(app.database_url.replace("postgresql:", "postgresql+psycopg:", 1))
    try:
        yield engine
    finally:
        await engine.dispose()


@asynccontextmanager
async def open_sessions() -> AsyncIterator[Sessions]:
    async with open_engine() as engine:
        yield async_sessionmaker(engine, expire_on_commit=False)
