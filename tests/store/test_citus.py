"""A database with the extension Citus, which sends new functions and grants to servers that lack Watchbill's tables.

A fake of it is enough: an event trigger that refuses such statements unless the session has switched that off.
"""

from __future__ import annotations

import psycopg
import pytest

from watchbill.store.install import install
from watchbill.store.roles import create_roles

CITUS = """
    CREATE FUNCTION send_to_other_servers() RETURNS event_trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF current_setting('citus.enable_ddl_propagation', true) IS DISTINCT FROM 'off' THEN
        RAISE 'relation does not exist on another server: %', tg_tag;
      END IF;
    END $$;
    CREATE EVENT TRIGGER citus ON ddl_command_end
    WHEN tag IN ('CREATE FUNCTION', 'GRANT', 'CREATE SCHEMA', 'CREATE TABLE')
    EXECUTE FUNCTION send_to_other_servers()"""


def test_migrations_and_roles_work_where_citus_is_installed(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(CITUS)
        with pytest.raises(psycopg.errors.RaiseException, match="another server"):
            connection.execute("CREATE TABLE of_the_application ()")
    install(database, "watchbill", "jcron")
    create_roles(database, "watchbill", "jcron", prefix="citus")
