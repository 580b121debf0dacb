"""Finds the application: by argument, FOLIOT_APP, the settings file, or in app.py, tasks.py or main.py right here."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foliot.errors import AppNotFound

if TYPE_CHECKING:
    from foliot import App

PLACES = ("app", "tasks", "main")


def find_app(reference: str | None) -> tuple[App, str]:
    """The App and where it was found, as module:name."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module, name = _split(reference) if reference else _search()
    return _get(_import(module), module, name), f"{module}:{name}"


def _split(reference: str) -> tuple[str, str]:
    module, _, name = reference.partition(":")
    return module.removesuffix(".py").replace("/", "."), name or "app"


def _search() -> tuple[str, str]:
    for module in PLACES:
        if Path(f"{module}.py").is_file() or Path(module, "__init__.py").is_file():
            return module, "app"
    raise AppNotFound(
        f"No application was found in {Path.cwd()}: there is no app.py, tasks.py or main.py.",
        hint="Name it: `foliot worker package.module:app`, FOLIOT_APP, or app in [tool.foliot] of pyproject.toml.",
    )


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and module.startswith(error.name):
            raise AppNotFound(
                f"There is no module {module!r} to be imported from {Path.cwd()}.",
                hint="Write it as in `import`: package.module:app, and start where that import works.",
            ) from None
        raise _broken(module, error) from error
    except Exception as error:
        raise _broken(module, error) from error


def _broken(module: str, error: Exception) -> AppNotFound:
    """The module's own part of the traceback says where; ours would only hide it."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if "importlib" not in frame.filename and frame.filename != __file__]
    text = "".join(traceback.format_list(theirs) + traceback.format_exception_only(error))
    return AppNotFound(f"Module {module!r} was found, but importing it failed:\n\n{text.rstrip()}")


def _get(module: Any, module_name: str, name: str) -> App:
    from foliot import App

    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, App):
        return found
    others = [key for key, value in vars(module).items() if isinstance(value, App)]
    hint = (
        f"It has {', '.join(others)}: name it {module_name}:{others[0]}." if others else "Make one: app = foliot.App()."
    )
    raise AppNotFound(f"{module_name}:{name} is {'not there' if found is None else 'no foliot.App'}.", hint=hint)
