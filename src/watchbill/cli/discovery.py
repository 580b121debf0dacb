"""Finds the application: by argument, WATCHBILL_APP, the settings file, or in app.py, tasks.py or main.py right here."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watchbill.errors import AppNotFound

if TYPE_CHECKING:
    from watchbill import App

PLACES = ("app", "tasks", "main")
_NAME_IT = "package.module:app as an argument, WATCHBILL_APP, or app in [tool.watchbill] of pyproject.toml."
_OURS = str(Path(__file__).parents[1])


class BrokenApp(AppNotFound):
    """Its module is there, and cannot be imported."""


def find_app(reference: str | None) -> tuple[App, str]:
    """The App and where it was found, as module:name."""
    _look_here()
    if not reference:
        return _search()
    module, name = _split(reference)
    return _get(_import(module), module, name), f"{module}:{name}"


def find_quietly(reference: str | None) -> tuple[App, str] | None:
    """For a command that can do without, but says so where one was meant to be. What has never heard of us is not
    imported: it may be any program."""
    if not reference and not any("watchbill" in file.read_text(errors="ignore") for file in map(_file, PLACES) if file):
        return None
    try:
        with unheard():
            return find_app(reference)
    except AppNotFound as error:
        if reference or isinstance(error, BrokenApp):
            sys.stderr.write(f"{_without(error)}\n")
        return None


def _without(error: AppNotFound) -> str:
    why = error.message.splitlines()[0].rstrip(".:")
    cause = f" ({type(error.__cause__).__name__}: {error.__cause__})" if error.__cause__ else ""
    return f"Going on without the App, and the address in its code if it has one. {why}{cause}."


@contextmanager
def unheard() -> Iterator[None]:
    """What a module says when it is imported is for its worker's terminal."""
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        yield


def _look_here() -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def _split(reference: str) -> tuple[str, str]:
    module, _, name = reference.partition(":")
    return module.removesuffix(".py").replace("/", "."), name or "app"


def _file(module: str) -> Path | None:
    return next((file for file in (Path(f"{module}.py"), Path(module, "__init__.py")) if file.is_file()), None)


def _search() -> tuple[App, str]:
    """The first `app` that is one of ours: a web framework's may well stand before it."""
    from watchbill import App

    said: list[str] = []
    for module in PLACES:
        if (file := _file(module)) is not None:
            imported = _import(module)
            found = getattr(imported, "app", None)
            if isinstance(found, App):
                return found, f"{module}:app"
            said.append(f"{file} has no app" if found is None else f"app in {file} is a {type(found).__name__}")
            if others := _apps_in(imported):
                raise AppNotFound(f"{said[-1]}.", hint=f"It has {', '.join(others)}: name it {module}:{others[0]}.")
    why = ", ".join(said) or "there is no app.py, tasks.py or main.py"
    raise AppNotFound(f"No application was found in {Path.cwd()}: {why}.", hint=f"Name it: {_NAME_IT}")


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
    except (Exception, SystemExit) as error:
        raise _broken(module, error) from error


def _broken(module: str, error: BaseException) -> BrokenApp:
    """The module's own part of the traceback says where; ours would only hide it."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if "importlib" not in frame.filename and frame.filename != __file__]
    if theirs and theirs[-1].filename.startswith(_OURS):  # raised by us: what they called is the end of the story
        theirs = theirs[: next(i for i, frame in enumerate(theirs) if frame.filename.startswith(_OURS))]
    text = "".join(traceback.format_list(theirs) + traceback.format_exception_only(error))
    return BrokenApp(f"Module {module!r} was found, but importing it failed:\n\n{text.rstrip()}")


def _get(module: Any, module_name: str, name: str) -> App:
    from watchbill import App

    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, App):
        return found
    others = _apps_in(module)
    hint = (
        f"It has {', '.join(others)}: name it {module_name}:{others[0]}." if others else "Make one: app = watchbill.App()."
    )
    raise AppNotFound(f"{module_name}:{name} is {'not there' if found is None else 'no watchbill.App'}.", hint=hint)


def _apps_in(module: Any) -> list[str]:
    from watchbill import App

    return [name for name, value in vars(module).items() if isinstance(value, App)]
