"""macOS and Windows are not supported, but nothing is broken there without need: every module can be imported.

A child process imports what can be imported here, so that other libraries are loaded. Then it takes away what only
Linux has, forgets the modules of Watchbill, and imports them again.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

# What Python's documentation says is missing there. `os` and `signal` lose names, the modules cannot be imported.
_MISSING_MODULES = {
    "darwin": ["spwd", "nis"],
    "win32": ["fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"],
}
_MISSING_NAMES = {
    "darwin": {"os": ["sched_getaffinity", "pidfd_open", "memfd_create"], "signal": ["pidfd_send_signal"]},
    "win32": {
        "os": [
            "fork",
            "forkpty",
            "getuid",
            "geteuid",
            "getpgid",
            "killpg",
            "register_at_fork",
            "setsid",
            "wait4",
            "sched_getaffinity",
            "sysconf",
            "uname",
            "WNOHANG",
            "pidfd_open",
            "memfd_create",
            "chown",
            "getloadavg",
        ],
        "signal": ["SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGUSR2", "pthread_sigmask"],
        "socket": ["AF_UNIX"],
    },
}
# The first runs the command; Django allows only one import of the second.
_LEFT_OUT = ["watchbill.cli.__main__", "watchbill.integrations.django.models"]

_PROGRAM = """
import importlib, pkgutil, sys

import watchbill

platform, missing_modules, missing_names, left_out = {arguments!r}


def can_import(name):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:  # Django before 6 has no tasks
        return False
    return True


modules = [module.name for module in pkgutil.walk_packages(watchbill.__path__, "watchbill.")]
modules = [name for name in modules if name not in left_out and can_import(name)]
sys.platform = platform
for name in missing_modules:
    sys.modules[name] = None
for module, names in missing_names.items():
    for name in names:
        if hasattr(sys.modules[module], name):
            delattr(sys.modules[module], name)
for name in [name for name in sys.modules if name.partition(".")[0] == "watchbill"]:
    del sys.modules[name]
for name in modules:
    importlib.import_module(name)
print(len(modules))
"""


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_every_module_can_be_imported_on(platform: str) -> None:
    program = _PROGRAM.format(arguments=(platform, _MISSING_MODULES[platform], _MISSING_NAMES[platform], _LEFT_OUT))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 200
