"""The table in docs/reference/settings.md, made from the class: `python -m tests.architecture.settings_table`."""

from __future__ import annotations

from foliot.settings import describe_settings


def rendered() -> str:
    lines = ["| setting | variable | default | allowed | meaning |", "|---|---|---|---|---|"]
    for name, default, allowed, meaning in describe_settings():
        lines.append(f"| `{name}` | `FOLIOT_{name.upper()}` | {_shown(default)} | {allowed} | {meaning} |")
    return "\n".join(lines)


def _shown(default: object) -> str:
    if default is None or default == ():
        return "not set"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


if __name__ == "__main__":
    print(rendered())
