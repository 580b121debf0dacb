"""The documentation site: no broken link, every page in its menu, nothing from another host."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tools import docs_site

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def build(directory: Path, docs: Path = DOCS) -> subprocess.CompletedProcess[str]:
    configuration = (ROOT / "mkdocs.yml").read_text().replace("tools/docs_site.py", str(ROOT / "tools/docs_site.py"))
    config = directory / "mkdocs.yml"
    config.write_text(f"{configuration}\ndocs_dir: {docs}\nsite_dir: {directory / 'site'}\n")
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config)],
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    done = build(directory)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    return directory / "site"


def test_every_page_is_in_the_menu() -> None:
    menu = repr(docs_site.make_menu((DOCS / "index.md").read_text()))
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} | set(docs_site.ADDED_PAGES.values())
    assert sorted(page for page in pages if f"'{page}'" not in menu) == []


def test_nothing_comes_from_another_host(site: Path) -> None:
    loaded = re.compile(r"""(?:src|<link[^>]*href)=["']?(?:https?:)?//[^"' >]+""")
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 80
    assert [(page.name, found) for page in pages for found in loaded.findall(page.read_text())] == []


def test_links_to_files_outside_the_docs_lead_to_pages(site: Path) -> None:
    assert 'href="../examples/fastapi_app.html"' in (site / "howto" / "fastapi.html").read_text()
    assert 'href="../explanation/flow_control.html"' in (site / "project" / "architecture.html").read_text()
    assert (site / "search" / "search_index.json").exists()


def test_broken_links_and_forgotten_pages_are_errors(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    shutil.copytree(DOCS, docs)
    (docs / "howto" / "new.md").write_text("# New\n\n[gone](../reference/gone.md), [nowhere](limits.md#nowhere)\n")
    done = build(tmp_path, docs)
    assert done.returncode != 0
    for words in ("howto/new.md", "'../reference/gone.md'", "#nowhere"):
        assert words in done.stderr
