"""Lists long files and long functions of src/, as hints for a second look: `make hints`. It never fails."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
LONG_FILE_LINES = 500
LONG_FUNCTION_LINES = 30
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def long_files() -> Iterator[str]:
    for path in sorted([*SOURCE.rglob("*.py"), *SOURCE.rglob("*.sql")]):
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines > LONG_FILE_LINES:
            yield f"{path.relative_to(SOURCE.parent)}: {lines} lines"


def long_functions() -> Iterator[str]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, _Function) and (lines := _body_lines(node)) > LONG_FUNCTION_LINES:
                yield f"{path.relative_to(SOURCE.parent)}:{node.lineno} {node.name}: {lines} lines"


def _body_lines(function: _Function) -> int:
    """Without the signature and the docstring: the options of a command are not code to follow."""
    first = function.body[1] if ast.get_docstring(function) and len(function.body) > 1 else function.body[0]
    return (function.end_lineno or 0) - first.lineno + 1


if __name__ == "__main__":
    print(*long_files(), *long_functions(), sep="\n")
