"""The application's own engine, on the database in DATABASE_URL, where the jobs are too."""

import os

from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

engine = create_async_engine(os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://", 1))
sessions = async_sessionmaker(engine, expire_on_commit=False)
