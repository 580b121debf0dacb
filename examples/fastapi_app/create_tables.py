"""Creates the tables of the example. `watchbill db migrate` creates those of Watchbill."""

import asyncio

from database import open_engine
from models import Base


async def create_tables() -> None:
    async with open_engine() as engine, engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)


if __name__ == "__main__":
    asyncio.run(create_tables())
