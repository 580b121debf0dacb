"""Settings: who wins, and what a wrong one says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from watchbill.errors import SettingsError
from watchbill.settings import Settings, describe_settings


def load(project: Path, environ: Mapping[str, str] | None = None, **arguments: Any) -> Settings:
    return Settings.load(project=project, environ=environ or {}, **arguments)


def refusal(project: Path, environ: Mapping[str, str] | None = None, **arguments: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        load(project, environ, **arguments)
    return str(caught.value)


def write(project: Path, text: str, name: str = "watchbill.toml") -> Path:
    (project / name).write_text(text)
    return project / name


def test_defaults_need_no_file_and_no_variable(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert (settings.schema, settings.lease, settings.max_payload) == ("watchbill", 30, 100_000)
    assert settings.database_url is None


def test_settings_cannot_be_changed(tmp_path: Path) -> None:
    with pytest.raises(FrozenInstanceError):
        load(tmp_path).schema = "other"  # type: ignore[misc]


def test_arguments_beat_environment_beats_file_beats_defaults(tmp_path: Path) -> None:
    write(tmp_path, 'schema = "of_file"\nlease = 11\nmax_payload = 12\n')
    settings = load(tmp_path, {"WATCHBILL_SCHEMA": "of_environment", "WATCHBILL_LEASE": "21"}, schema="of_argument")
    assert (settings.schema, settings.lease, settings.max_payload) == ("of_argument", 21, 12)


def test_the_address_in_database_url_comes_after_the_file(tmp_path: Path) -> None:
    shared = {"DATABASE_URL": "postgresql://shared/x"}
    assert load(tmp_path, shared).database_url == "postgresql://shared/x"
    write(tmp_path, 'database_url = "postgresql://file/x"')
    assert load(tmp_path, shared).database_url == "postgresql://file/x"
    own = shared | {"WATCHBILL_DATABASE_URL": "postgresql://own/x"}
    assert load(tmp_path, own).database_url == "postgresql://own/x"
    assert load(tmp_path, own, database_url="postgresql://argument/x").database_url == "postgresql://argument/x"


def test_each_value_remembers_where_it_came_from(tmp_path: Path) -> None:
    file = write(tmp_path, "# ours\nlease = 5\n")
    settings = load(tmp_path, {"WATCHBILL_SCHEMA": "a"}, processes=2)
    assert settings.origins == {
        "lease": f"{file}:2",
        "schema": "WATCHBILL_SCHEMA",
        "processes": "the argument processes",
    }


def test_pyproject_has_its_own_table(tmp_path: Path) -> None:
    write(tmp_path, '[project]\nname = "x"\n[tool.watchbill]\nqueues = ["a", "b"]\n', "pyproject.toml")
    assert load(tmp_path).queues == ("a", "b")


def test_settings_in_both_files_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "lease = 5")
    write(tmp_path, "[tool.watchbill]\n", "pyproject.toml")
    message = refusal(tmp_path)
    assert "watchbill.toml" in message
    assert "pyproject.toml" in message


def test_pyproject_without_our_table_is_not_a_second_file(tmp_path: Path) -> None:
    write(tmp_path, "lease = 5")
    write(tmp_path, '[tool.other]\nwatchbill = "x"\n', "pyproject.toml")
    assert load(tmp_path).lease == 5


def test_the_nearest_project_upwards_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "lease = 7")
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert Settings.load(environ={}).lease == 7
    write(deep.parent, "", "pyproject.toml")
    assert Settings.load(environ={}).lease == 30


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(45, 45), ("45", 45), ("45s", 45), ("5m", 300), ("1h", 3600), ("1h30m", 5400), ("1.5s", 1.5), ("1500ms", 1.5)],
)
def test_durations_are_seconds_or_words(tmp_path: Path, given: object, seconds: float) -> None:
    assert load(tmp_path, lease=given).lease == seconds


def test_a_duration_may_be_a_timedelta(tmp_path: Path) -> None:
    assert load(tmp_path, lease=timedelta(minutes=2)).lease == 120


@pytest.mark.parametrize("given", ["", "5 m", "-5s", "0.5", "1e400", "nan", "inf", "5y", True, [5], "m"])
def test_invalid_duration_error_names_value_place_and_format(tmp_path: Path, given: object) -> None:
    message = refusal(tmp_path, lease=given)
    assert f"Setting lease={given!r} is invalid (in the argument lease)." in message
    assert "Allowed for lease: seconds, a timedelta, or a text such as" in message


@pytest.mark.parametrize(
    "name", ["Weird-Name", "Upper", "größe", "pg_mine", "1st", "a" * 64, "a b", 'a"b', "", "a;b", "%s", "a\n"]
)
def test_only_plain_schema_names_are_allowed(tmp_path: Path, name: str) -> None:
    assert f"Setting schema={name!r} is invalid" in refusal(tmp_path, schema=name)


@pytest.mark.parametrize("name", ["watchbill", "_", "a" * 63, "jobs_2"])
def test_plain_schema_names_are_taken(tmp_path: Path, name: str) -> None:
    assert load(tmp_path, schema=name).schema == name


def test_an_unknown_key_in_a_file_names_file_line_and_the_likely_one(tmp_path: Path) -> None:
    file = write(tmp_path, '[project]\nleese = 1\n[tool.watchbill]\n\nleese = "5s"\n', "pyproject.toml")
    assert refusal(tmp_path) == f"Unknown setting leese in {file}:5 [tool.watchbill].\nDid you mean lease?"


def test_an_unknown_variable_is_refused(tmp_path: Path) -> None:
    assert "Unknown setting log_levle in WATCHBILL_LOG_LEVLE" in refusal(tmp_path, {"WATCHBILL_LOG_LEVLE": "x"})


def test_an_unknown_argument_lists_the_settings(tmp_path: Path) -> None:
    assert "Settings are: alert_commands, app, archive_to, cell, cells, client_timeout" in refusal(tmp_path, zzz=1)


def test_kubernetes_service_variables_are_ignored(tmp_path: Path) -> None:
    services = {
        "WATCHBILL_SERVICE_HOST": "10.0.0.1",
        "WATCHBILL_SERVICE_PORT_HTTP": "80",
        "WATCHBILL_PORT": "tcp://10.0.0.1:80",
        "WATCHBILL_DB_PORT_5432_TCP_ADDR": "10.0.0.1",
    }
    assert load(tmp_path, services) == load(tmp_path)


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert load(tmp_path, {"WATCHBILL_DATABASE_URL": "", "WATCHBILL_LEASE": "", "DATABASE_URL": ""}) == load(tmp_path)


def test_error_lists_every_invalid_value(tmp_path: Path) -> None:
    message = refusal(tmp_path, {"WATCHBILL_LOG_LEVEL": "loud", "WATCHBILL_PROCESSES": "none"})
    assert "Setting log_level='loud' is invalid (in WATCHBILL_LOG_LEVEL)." in message
    assert "Setting processes='none' is invalid (in WATCHBILL_PROCESSES)." in message
    assert "Allowed for log_level: debug, info, warning, error." in message


def test_error_suggests_a_similar_value(tmp_path: Path) -> None:
    assert "Did you mean warning?" in refusal(tmp_path, log_level="warn")
    assert "Did you mean false?" in refusal(tmp_path, embedded="fasle")
    assert "Did you mean" not in refusal(tmp_path, lease="30 sec")


@pytest.mark.parametrize("given", [0, -1, 1.5, True, "many", [1]])
def test_counts_are_whole_and_positive(tmp_path: Path, given: object) -> None:
    assert "Setting processes=" in refusal(tmp_path, processes=given)


@pytest.mark.parametrize("url", ["mysql://kai:secret@h/x", "sqlite:///secret", ""])
def test_invalid_address_is_not_printed(tmp_path: Path, url: str) -> None:
    message = refusal(tmp_path, database_url=url)
    assert "database_url" in message
    assert "secret" not in message


def test_address_with_a_driver_suffix_is_accepted(tmp_path: Path) -> None:
    url = load(tmp_path, {"DATABASE_URL": "postgresql+asyncpg://kai@h/x"}).database_url
    assert url == "postgresql://kai@h/x"


def test_repr_contains_no_password(tmp_path: Path) -> None:
    settings = load(tmp_path, database_url="postgresql://kai:secret@h/x", listen_url="postgresql://kai:secret@h/x")
    assert "secret" not in repr(settings)


def test_names_are_split_at_commas(tmp_path: Path) -> None:
    assert load(tmp_path, {"WATCHBILL_QUEUES": "mail, bills"}).queues == ("mail", "bills")
    assert "Setting queues='mail,,' is invalid" in refusal(tmp_path, {"WATCHBILL_QUEUES": "mail,,"})


def test_binaries_are_a_word_or_a_directory(tmp_path: Path) -> None:
    assert load(tmp_path, embedded_binaries=str(tmp_path)).embedded_binaries == str(tmp_path)
    assert "embedded_binaries='whele' is invalid" in refusal(tmp_path, embedded_binaries="whele")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"lease = ", "is not valid TOML"),
        (b"\xff\xfe", "is not valid TOML"),
        (b"lease = 5\nlease = 6", "is not valid TOML"),
    ],
)
def test_invalid_file_error_names_the_file(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "watchbill.toml").write_bytes(content)
    message = refusal(tmp_path)
    assert f"{tmp_path / 'watchbill.toml'} {says}" in message


def test_unreadable_file_error_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "watchbill.toml").mkdir()
    assert f"{tmp_path / 'watchbill.toml'} cannot be read: Is a directory." in refusal(tmp_path)


@pytest.mark.parametrize("text", ["[tool]\nwatchbill = 5", "tool = 5", "[[tool.watchbill]]\nlease = 5"])
def test_a_table_of_the_wrong_kind_is_refused(tmp_path: Path, text: str) -> None:
    write(tmp_path, text, "pyproject.toml")
    assert "pyproject.toml" in refusal(tmp_path)


def test_a_table_in_watchbill_toml_is_an_unknown_setting(tmp_path: Path) -> None:
    write(tmp_path, "[worker]\nlease = 5")
    assert "Unknown setting worker" in refusal(tmp_path)


def test_every_default_is_a_valid_value(tmp_path: Path) -> None:
    defaults = {name: default for name, default, *_ in describe_settings() if default is not None}
    assert load(tmp_path, **defaults) == load(tmp_path)


@pytest.mark.parametrize(
    "given",
    ["gpu=a100, zone=eu", ["zone=eu", "gpu=a100"], {"zone": "eu", "gpu": "a100"}, [("gpu", "a100"), ("zone", "eu")]],
)
def test_labels_are_pairs_in_every_form(tmp_path: Path, given: object) -> None:
    settings = Settings.load(project=tmp_path, environ={}, labels=given)
    assert settings.labels == (("gpu", "a100"), ("zone", "eu"))


@pytest.mark.parametrize("given", ["gpu", "gpu=", "=a100", "gpu=a,gpu=b", 7])
def test_labels_without_a_name_or_a_value_are_refused(tmp_path: Path, given: object) -> None:
    with pytest.raises(SettingsError, match="labels"):
        Settings.load(project=tmp_path, environ={}, labels=given)


def test_the_label_node_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="none named node, which is the node's name"):
        Settings.load(project=tmp_path, environ={}, labels="node=gpu-1")
