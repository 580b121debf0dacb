"""The file that Alembic writes, with two lines for Watchbill, whose schemas `watchbill db migrate` changes."""

import os

from alembic import context
from models import Base
from sqlalchemy import create_engine

from watchbill.integrations.alembic import without_watchbill

engine = create_engine(os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://", 1))

with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        include_schemas=True,
        include_name=without_watchbill(),
    )
    with context.begin_transaction():
        context.run_migrations()
