"""What the System page shows of the settings of its process: every reader may open it."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

from watchbill import App
from watchbill.dashboard.pages.system import list_settings


def test_no_setting_that_may_contain_a_secret_is_shown() -> None:
    settings = App("postgresql://ann:hunter2@localhost/shop").producer.runtime.settings
    everything = {each.name: "here" for each in fields(settings)}
    proxy, place = "http://ann:hunter2@proxy.example", "s3://ann:hunter2@days"
    settings = replace(settings, connector_proxy=proxy, archive_to=place, origins=everything)
    producer = SimpleNamespace(runtime=SimpleNamespace(settings=settings))
    board: Any = SimpleNamespace(app=SimpleNamespace(producer=producer))
    shown = {name: value for name, value, _ in list_settings(board)}
    secret = {each.name for each in fields(settings) if not each.repr} - {"origins"}
    assert {"cells", "connector_proxy", "alert_commands"} < secret
    assert {name for name in secret if shown[name] != "hidden"} == set()
    assert shown["archive_to"] == "s3://hidden@days"
    assert "hunter2" not in str(shown)
