"""The version, and the install command. At a release, both are changed in this file only."""

__version__ = "0.1.0"

INSTALL_COMMAND = "pip install '.[{extra}]'"
INSTALL_DIRECTORY = "a clone of the Watchbill repository"


def install_command(extra: str) -> str:
    """Returns the command that installs Watchbill with this extra, for hints. Watchbill is not on PyPI yet, so the
    command installs it from a clone."""
    return f"`{INSTALL_COMMAND.format(extra=extra)}` in {INSTALL_DIRECTORY}"
