"""Alembic's own, with two lines for Foliot: its schemas are migrated by `foliot db migrate`."""

import os

from alembic import context
from models import Base
from sqlalchemy import create_engine

from foliot.integrations.alembic import without_foliot

engine = create_engine(os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://", 1))

with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        include_schemas=True,
        include_name=without_foliot(),
    )
    with context.begin_transaction():
        context.run_migrations()
