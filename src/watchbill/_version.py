"""The version, and the install command. Both change on release day, and only here."""

__version__ = "0.1.0"

INSTALL_COMMAND = "pip install '.[{extra}]'"
INSTALL_DIRECTORY = "a clone of the Watchbill repository"


def install_command(extra: str) -> str:
    """For hints: Watchbill is not on PyPI yet, so it is installed from a clone."""
    return f"`{INSTALL_COMMAND.format(extra=extra)}` in {INSTALL_DIRECTORY}"
