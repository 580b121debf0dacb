"""The files in deploy/prometheus, deploy/grafana and deploy/systemd: valid, and true."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer
import yaml

from tests.architecture.reference_tables import _app_command
from tests.worker.test_health import OF_WORKERS
from watchbill.client.metrics import METRICS
from watchbill.model.durations import seconds
from watchbill.settings import Settings
from watchbill.worker.meters import Meters

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "watchbill.rules.yml"
BOARD = json.loads((DEPLOY / "grafana" / "watchbill.json").read_text())

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is in Debian's prometheus")


def known_metrics() -> set[str]:
    families = {family.name for family in Meters().measure()}
    parts = {f"{name}{end}" for name in families for end in ("_bucket", "_sum", "_count")}
    return set(METRICS) | set(OF_WORKERS) | families | parts


def groups() -> dict[str, list[dict[str, Any]]]:
    return {group["name"]: group["rules"] for group in yaml.safe_load(RULES.read_text())["groups"]}


def expressions() -> Iterator[str]:
    for panel in BOARD["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def is_valid_command(words: list[str]) -> bool:
    """Whether the command line takes these words."""
    command: Any = _app_command()
    context = typer.Context(command)
    while getattr(command, "commands", None) and words and not words[0].startswith("-"):
        name, *words = words
        context = typer.Context(command, parent=context, info_name=name)
        command = command.get_command(context, name)
        if command is None:
            return False
    try:
        command.make_context(command.name, list(words), parent=context)
    except typer.Exit:
        return True
    except Exception:  # noqa: BLE001  (click's own errors of usage)
        return False
    return True


@needs_promtool
@pytest.mark.parametrize("name", ["watchbill.rules.yml", "jobforge.rules.yml"])
def test_promtool_accepts_the_rules(name: str) -> None:
    checked = subprocess.run(
        ["promtool", "check", "rules", str(DEPLOY / "prometheus" / name)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@needs_promtool
def test_the_rules_fire_and_end() -> None:
    words = ["promtool", "test", "rules", "watchbill.test.yml"]
    done = subprocess.run(words, cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_the_scrape_configuration_is_valid(tmp_path: Path) -> None:
    key = tmp_path / "watchbill.key"
    key.write_text("secret")
    text = (DEPLOY / "prometheus" / "scrape.yml").read_text().replace("/etc/prometheus/watchbill.key", str(key))
    (tmp_path / "prometheus.yml").write_text(text)
    words = ["promtool", "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_have_the_values_of_watchbills_own(schema_database: str) -> None:
    with psycopg.connect(schema_database) as connection:
        rows = connection.execute("SELECT rule, above, lasting, severity FROM watchbill._alert_rule_defaults()")
        defaults = {rule: (above, lasting, severity) for rule, above, lasting, severity in rows}
    shown = set()
    for rule in groups()["watchbill-rules"]:
        name = rule["labels"].get("rule")
        if name is None:  # passes on alerts of the rules that it names
            shown |= set(re.findall(r"[a-z_]+", "|".join(re.findall(r'rule=~"([^"]+)"', rule["expr"]))))
            continue
        above, lasting, severity = defaults[name]
        assert rule["labels"]["severity"] == severity, name
        assert timedelta(seconds=seconds(rule.get("for", "0s"))) == lasting, name
        limit = float(re.findall(r"[<>] (\d+)\s*$", rule["expr"])[0])
        assert limit == (above if above is not None else {"partitions": 2}.get(name, 0)), name
        shown.add(name)
    assert shown == set(defaults)


def test_rules_and_the_board_name_metrics_that_exist() -> None:
    files = [*(DEPLOY / "prometheus").glob("*.yml")]
    texts = [rule["expr"] for rules in groups().values() for rule in rules] + list(expressions())
    texts += [file.read_text() for file in files if "rules" in file.name]
    named = {word for text in texts for word in re.findall(r"\bwatchbill_\w+", text)}
    assert sorted(named - known_metrics()) == []
    assert len(named) > 30


def test_every_help_of_a_rule_is_a_command(schema_database: str) -> None:
    with psycopg.connect(schema_database) as connection:
        rows = connection.execute("SELECT rule, help FROM watchbill._alert_rule_defaults()").fetchall()
    helps = {rule: words.replace("{}", "x") for rule, words in rows}
    helps |= {rule["alert"]: rule["annotations"]["help"] for rules in groups().values() for rule in rules}
    wrong = {
        rule: words
        for rule, words in helps.items()
        if words.startswith("watchbill ") and not is_valid_command(re.sub(r"\{\{.*?\}\}", "x", words).split()[1:])
    }
    assert wrong == {}


def test_the_board_has_panels_that_do_not_overlap() -> None:
    numbers = [panel["id"] for panel in BOARD["panels"]]
    assert len(numbers) == len(set(numbers))
    cells = [
        (column, line)
        for place in (panel["gridPos"] for panel in BOARD["panels"])
        for column, line in itertools.product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        )
    ]
    assert len(cells) == len(set(cells))
    assert max(column for column, _ in cells) == 23
    variables = {variable["name"] for variable in BOARD["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(BOARD["panels"]))) <= variables
    for panel in BOARD["panels"]:
        assert panel["title"]
        assert panel["type"] == "row" or panel["targets"]


@needs_promtool
def test_promtool_parses_every_query_of_the_board(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{n}", "expr": each} for n, each in enumerate(expressions())]
    text = json.dumps({"groups": [{"name": "board", "rules": rules}]}).replace("$queue", ".*")
    (tmp_path / "board.rules.yml").write_text(text)
    words = ["promtool", "check", "rules", str(tmp_path / "board.rules.yml")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["watchbill-worker", "watchbill-dashboard"])
def test_systemd_accepts_the_units(tmp_path: Path, name: str) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    text = (DEPLOY / "systemd" / f"{name}.service").read_text()
    unit = tmp_path / f"{name}.service"
    unit.write_text(text.replace("/srv/shop/.venv/bin/watchbill", sys.executable))
    words = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count(name)) == (0, 0), done.stderr


def test_the_units_give_valid_commands_and_settings(tmp_path: Path) -> None:
    for file in (DEPLOY / "systemd").glob("*.service"):
        text = file.read_text()
        settings = Settings.load(project=tmp_path, environ=dict(re.findall(r"^Environment=(\w+)=(.*)$", text, re.M)))
        (command,) = re.findall(r"^ExecStart=\S+/watchbill (.*)$", text, re.M)
        assert is_valid_command(command.split()), command
        if patience := re.findall(r"^TimeoutStopSec=(\d+)$", text, re.M):
            assert int(patience[0]) > settings.drain_timeout


def test_the_page_lists_every_metric() -> None:
    page = (DEPLOY.parent / "docs" / "howto" / "monitoring.md").read_text()
    for name, metric in METRICS.items():
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        assert f"| `{name}` | {labels} | {metric.meaning} |" in page
    families = {family.name for family in Meters().measure()} | set(OF_WORKERS)
    assert sorted(name for name in families if f"`{name}`" not in page) == []
