"""Finds the application: by argument, WATCHBILL_APP, the settings file, or in app.py, tasks.py or main.py here."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watchbill.cli.screen import say
from watchbill.errors import AppNotFound

if TYPE_CHECKING:
    from watchbill import App

DEFAULT_MODULES = ("app", "tasks", "main")
_HOW_TO_NAME_IT = "package.module:app as an argument, WATCHBILL_APP, or app in [tool.watchbill] of pyproject.toml."
_OWN_DIRECTORY = str(Path(__file__).parents[1])


class BrokenApp(AppNotFound):
    """The module exists, but importing it fails."""


def find_app(reference: str | None) -> tuple[App, str]:
    """Returns the App, and where it was found, as module:name."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    if not reference:
        return _search_app()
    module, _, name = reference.partition(":")
    module, name = module.removesuffix(".py").replace("/", "."), name or "app"
    return _get_app(_import_module(module), module, name), f"{module}:{name}"


def find_app_or_none(reference: str | None, type: str | None = None) -> tuple[App, str] | None:
    """Finds the App for a command that also works without one. Prints a warning if the App cannot be imported, or is
    not where the reference says.

    Without a reference it imports only files that mention Watchbill, because importing any other file could run a
    program. `type` is the type of a task, which usually begins with the name of its module.
    """
    is_default = not reference and any(map(_mentions_watchbill, DEFAULT_MODULES))
    place = reference or (None if is_default else _find_module_of(type))
    if not place and not is_default:
        return None
    try:
        with hide_output():
            return find_app(place)
    except AppNotFound as error:
        if reference or isinstance(error, BrokenApp):
            reason = error.message.splitlines()[0].rstrip(".:")
            cause = f" ({error.__cause__.__class__.__name__}: {error.__cause__})" if error.__cause__ else ""
            say(f"Continuing without the App and any database address in its code. {reason}{cause}.", err=True)
        return None


def _find_module_of(type: str | None) -> str | None:
    """Returns the module of this project that a type names: for `shop.tasks.ship` it is `shop.tasks`, or else
    `shop`."""
    parts = (type or "").split(".")[:-1]
    names = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((name for name in names if _mentions_watchbill(name)), None)


def _mentions_watchbill(module: str) -> bool:
    file = _find_file(module.replace(".", "/"))
    return file is not None and "watchbill" in file.read_text(errors="ignore")


@contextmanager
def hide_output() -> Iterator[None]:
    """Hides what is printed within this block, such as what a module prints when it is imported."""
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        yield


def _find_file(module: str) -> Path | None:
    return next((file for file in (Path(f"{module}.py"), Path(module, "__init__.py")) if file.is_file()), None)


def _search_app() -> tuple[App, str]:
    """Returns the first `app` in app.py, tasks.py or main.py that is a watchbill.App. Another `app` may be that of a
    web framework."""
    from watchbill import App

    reasons: list[str] = []
    for module in DEFAULT_MODULES:
        if (file := _find_file(module)) is not None:
            imported = _import_module(module)
            found = getattr(imported, "app", None)
            if isinstance(found, App):
                return found, f"{module}:app"
            reasons.append(f"{file} has no app" if found is None else f"app in {file} is a {type(found).__name__}")
            if others := _list_apps(imported):
                raise AppNotFound(f"{reasons[-1]}.", hint=_suggest_apps(module, others))
    why = ", ".join(reasons) or "there is no app.py, tasks.py or main.py"
    raise AppNotFound(f"No application was found in {Path.cwd()}: {why}.", hint=f"Name it: {_HOW_TO_NAME_IT}")


def _import_module(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and module.startswith(error.name):
            raise AppNotFound(
                f"There is no module {module!r} that can be imported from {Path.cwd()}.",
                hint="Write it as in `import`: package.module:app, and start where that import works.",
            ) from None
        raise _explain_failed_import(module, error) from error
    except (Exception, SystemExit) as error:
        raise _explain_failed_import(module, error) from error


def _explain_failed_import(module: str, error: BaseException) -> BrokenApp:
    """Shows the module's own part of the traceback, without Watchbill's frames."""
    frames = traceback.extract_tb(error.__traceback__)
    shown = [frame for frame in frames if "importlib" not in frame.filename and frame.filename != __file__]
    if shown and shown[-1].filename.startswith(_OWN_DIRECTORY):  # Watchbill raised it: end with the line that called it
        shown = shown[: next(i for i, frame in enumerate(shown) if frame.filename.startswith(_OWN_DIRECTORY))]
    text = "".join(traceback.format_list(shown) + traceback.format_exception_only(error))
    return BrokenApp(f"Module {module!r} was found, but importing it failed:\n\n{text.rstrip()}")


def _get_app(module: Any, module_name: str, name: str) -> App:
    from watchbill import App

    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, App):
        return found
    others = _list_apps(module)
    hint = _suggest_apps(module_name, others) if others else "Create one: app = watchbill.App()."
    problem = "does not exist" if found is None else "is not a watchbill.App"
    raise AppNotFound(f"{module_name}:{name} {problem}.", hint=hint)


def _suggest_apps(module: str, names: list[str]) -> str:
    return f"It has {', '.join(names)}: name it {module}:{names[0]}."


def _list_apps(module: Any) -> list[str]:
    from watchbill import App

    return [name for name, value in vars(module).items() if isinstance(value, App)]
