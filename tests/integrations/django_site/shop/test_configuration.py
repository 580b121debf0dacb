"""Where DATABASES say that the database is, as an address for libpq."""

from unittest.mock import patch

from django.db import connection
from django.test import SimpleTestCase, override_settings
from psycopg.conninfo import conninfo_to_dict

from watchbill.errors import SettingsError
from watchbill.integrations.django import app, configuration
from watchbill.integrations.django.discovery import discover
from watchbill.settings import Settings


class Address(SimpleTestCase):
    def parts(self, **place: object) -> dict[str, object]:
        empty = {"NAME": "", "USER": "", "PASSWORD": "", "HOST": "", "PORT": "", "OPTIONS": {}}
        with patch.dict(connection.settings_dict, empty | place):
            url = configuration.make_address("default")
            Settings(database_url=url)
            return dict(conninfo_to_dict(url))

    def test_database_settings_are_passed_to_libpq(self) -> None:
        place = {
            "NAME": "a b/c",
            "USER": "o'neil@x",
            "PASSWORD": "p:/?#[]@ %é",
            "HOST": "db.example.org",
            "PORT": "6432",
        }
        words = {
            "dbname": "a b/c",
            "user": "o'neil@x",
            "password": "p:/?#[]@ %é",
            "host": "db.example.org",
            "port": "6432",
        }
        assert self.parts(**place) == words

    def test_options_for_libpq_are_passed_on_and_others_are_not(self) -> None:
        options = {"sslmode": "verify-full", "connect_timeout": 3, "isolation_level": 3, "server_side_binding": True}
        assert self.parts(NAME="x", OPTIONS=options) == {
            "dbname": "x",
            "sslmode": "verify-full",
            "connect_timeout": "3",
        }

    def test_assume_role_becomes_a_libpq_option(self) -> None:
        found = self.parts(NAME="x", OPTIONS={"assume_role": "my role", "options": "-c jit=off"})
        assert found == {"dbname": "x", "options": "-c jit=off -c role=my\\ role"}

    def test_service_name_is_passed_to_libpq(self) -> None:
        assert self.parts(OPTIONS={"service": "jobs"}) == {"service": "jobs"}


class Setting(SimpleTestCase):
    def test_own_database_url_replaces_the_django_connection(self) -> None:
        with override_settings(WATCHBILL={"DATABASE_URL": "postgresql://nowhere.example/jobs"}):
            assert (configuration.find_alias(), app.connection, app.producer.current_connection) == (None, None, None)
            assert app.settings.database_url == "postgresql://nowhere.example/jobs"
            assert app.settings.origins["database_url"] == "WATCHBILL['DATABASE_URL']"
        assert app.settings.origins["database_url"] == "DATABASES['default']"

    def test_database_none_uses_no_django_connection(self) -> None:
        with override_settings(WATCHBILL={"DATABASE": None}):
            assert (configuration.find_alias(), app.connection) == (None, None)
            assert "database_url" not in configuration.read_given_settings()

    def test_setting_that_is_not_a_dict_is_refused(self) -> None:
        with override_settings(WATCHBILL=["CONCURRENCY"]), self.assertRaisesRegex(SettingsError, "must be a dict"):
            configuration.read_given_settings()

    def test_discover_imports_only_the_named_apps(self) -> None:
        with patch("watchbill.integrations.django.discovery.import_module") as imported:
            discover()
            with override_settings(WATCHBILL={"DISCOVER": ["elsewhere"]}):
                discover()
        assert [call.args for call in imported.call_args_list] == [("shop.tasks",), ("project.urls",)]
