"""What the documentation site adds to the pages in `docs/`: a hook of MkDocs, named in `mkdocs.yml`.

The pages stay readable as plain files, so their links lead to files of the repository. The site has no repository
beside it: this hook gives it the pages that lie outside `docs/`, and leads the links there. The menu is read from
`docs/index.md`, so that a page which is missing there is missing in the menu too, and the build fails.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from posixpath import dirname, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(path.name for path in (ROOT / "examples").iterdir() if path.is_dir() and path.name != "__pycache__")
# Where a file outside `docs/` is in the site.
ADDED_PAGES = {
    "README.md": "project/readme.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "RELEASING.md": "project/releasing.md",
    **{f"examples/{name}": f"examples/{name}.md" for name in EXAMPLES},
    "docs/decisions": "decisions/index.md",
}
_LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
_SHOWN_SUFFIXES = {".py": "python", ".sh": "sh", ".ini": "ini", ".html": "html"}


def on_config(config: MkDocsConfig) -> None:
    config.nav = make_menu((ROOT / "docs" / "index.md").read_text())


def on_files(files: Files, config: MkDocsConfig) -> None:
    for source, place in ADDED_PAGES.items():
        files.append(File.generated(config, place, content=read_page(source)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return lead_links(markdown, page.file.src_uri)


def on_page_context(context: dict[str, object], page: Page, config: MkDocsConfig, nav: object) -> None:
    """In the list of contents a function is its name alone: a heading of SQL lists thirty parameters."""
    for heading in page.toc:
        for item in (heading, *heading.children, *(below for child in heading.children for below in child.children)):
            item.title = re.sub(r"^([\w.]+)\(.*$", r"\1", item.title)


def make_menu(index: str) -> list[object]:
    """The sections of the index, each with the pages that it links to; after them the examples and the project."""
    menu: list[object] = [{"Home": "index.md"}, {"Tutorial": "tutorial.md"}]
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        pages = dict.fromkeys(target for target, _ in _LINK.findall(text) if target.endswith(".md"))
        menu.append({title: [page for page in pages if not page.startswith("..")]})
    decisions = sorted(f"decisions/{path.name}" for path in (ROOT / "docs" / "decisions").glob("*.md"))
    menu.append({"Decisions": ["decisions/index.md", *decisions]})
    menu.append({"Examples": [ADDED_PAGES[f"examples/{name}"] for name in EXAMPLES]})
    menu.append({"Project": [place for place in ADDED_PAGES.values() if place.startswith("project/")]})
    return menu


def read_page(source: str) -> str:
    path = ROOT / source
    if path.is_file():
        return path.read_text()
    if source == "docs/decisions":
        return _list_decisions(path)
    return _show_example(path)


def _list_decisions(folder: Path) -> str:
    titles = {path.name: path.read_text().partition("\n")[0].removeprefix("# ") for path in sorted(folder.glob("*.md"))}
    lines = [f"- [{re.sub(r'^[0-9]+[.] ', '', title)}]({name})" for name, title in titles.items()]
    return "# Decisions\n\nWhat was chosen, its price, and what would change our mind.\n\n" + "\n".join(lines)


def _show_example(folder: Path) -> str:
    """Its README, and its files of at most 200 lines."""
    readme = folder / "README.md"
    text = readme.read_text() if readme.is_file() else f"# {folder.name}\n"
    for path in sorted(folder.rglob("*")):
        language = _SHOWN_SUFFIXES.get(path.suffix)
        if language is None or "__pycache__" in path.parts:
            continue
        code = path.read_text()
        if code.strip() and code.count("\n") <= 200:
            text += f"\n\n## {path.relative_to(folder)}\n\n````{language}\n{code}````\n"
    return text


def lead_links(markdown: str, place: str) -> str:
    """Changes the links of a page so that they lead to the page of the site that shows the file."""
    source = next((source for source, added in ADDED_PAGES.items() if added == place), f"docs/{place}")
    folder = source if (ROOT / source).is_dir() else dirname(source)

    def lead(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if re.match(r"[a-z]+:", target):
            return match[0]
        file = normpath(os.path.join(folder, target))  # noqa: PTH118 - a path of the repository, not of this machine
        page = ADDED_PAGES.get(file) or ADDED_PAGES.get(file.removesuffix("/README.md")) or file.removeprefix("docs/")
        return relpath(page, dirname(place) or ".") + anchor

    return _LINK.sub(lead, markdown)
