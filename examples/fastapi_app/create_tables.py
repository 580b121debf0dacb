"""Makes the example's own tables; the jobs' are made by `watchbill db migrate`."""

import asyncio

from database import engine
from models import Base


async def main() -> None:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await engine.dispose()


asyncio.run(main())
