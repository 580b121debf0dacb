"""The files in deploy/: they parse, name settings that exist, and keep the rules that their comments state."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Any

import kubernetes_validate
import pytest
import yaml

from watchbill.settings import Settings

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
PATRONI = ROOT / "deploy" / "patroni"
KUBERNETES_VERSION = "1.31"


def documents(name: str) -> dict[str, dict[str, Any]]:
    found = yaml.safe_load_all((KUBERNETES / name).read_text())
    return {document["kind"]: document for document in found}


def worker() -> dict[str, Any]:
    pod: dict[str, Any] = documents("watchbill.yaml")["Deployment"]["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize("kind", ["ConfigMap", "Job", "Deployment", "PodDisruptionBudget", "HorizontalPodAutoscaler"])
def test_kubernetes_knows_every_field(kind: str) -> None:
    kubernetes_validate.validate(documents("watchbill.yaml")[kind], KUBERNETES_VERSION, strict=True)


def test_settings_in_the_kubernetes_files_are_valid(tmp_path: Path) -> None:
    values = documents("watchbill.yaml")["ConfigMap"]["data"]
    settings = Settings.load(project=tmp_path, environ=values)
    assert set(values) == {name for name in values if settings.origins.get(name.removeprefix("WATCHBILL_").lower())}
    assert worker()["terminationGracePeriodSeconds"] > settings.drain_timeout
    assert worker()["containers"][0]["ports"][0]["containerPort"] == settings.health_port
    probes = [worker()["containers"][0][name]["httpGet"]["path"] for name in ("livenessProbe", "readinessProbe")]
    assert probes == ["/health/live", "/health/ready"]


def test_workers_in_kubernetes_use_the_pooler_and_listen_at_the_server() -> None:
    database = {document["kind"]: document["metadata"]["name"] for document in documents("database.yaml").values()}
    for pod in (worker(), documents("watchbill.yaml")["Job"]["spec"]["template"]["spec"]):
        addresses = {each["name"]: each.get("value", "") for each in pod["containers"][0]["env"]}
        assert f"@{database['Pooler']}:5432/" in addresses["WATCHBILL_DATABASE_URL"]
        assert f"@{database['Cluster']}-rw:5432/" in addresses["WATCHBILL_LISTEN_URL"]


def test_lease_of_the_patroni_files_covers_a_failover() -> None:
    names = ("NAME", "ADDRESS", "DATA", "BIN", "NETWORK", "PASSWORD", "HAPROXY", "DB1", "DB2", "DB3")
    filled = Template((PATRONI / "patroni.yml").read_text()).substitute(dict.fromkeys(names, "x"))
    settings = yaml.safe_load(filled)["bootstrap"]["dcs"]
    assert settings["synchronous_mode"]
    assert settings["synchronous_mode_strict"]
    assert settings["loop_wait"] + 2 * settings["retry_timeout"] <= settings["ttl"]  # Patroni's own rule
    assert 2.2 * (settings["ttl"] + 2) < 60
