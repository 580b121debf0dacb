"""A real PostgreSQL for a project without one: started when first needed, stopped when the last process releases it.

    with EmbeddedServer.acquire(find_project()) as server:
        psycopg.connect(server.url)

Whether a server runs, and which processes use it, is decided by the kernel: by file locks, which end with their
processes, and by the processes themselves. Process numbers in files are only hints. The next process cleans up after
one that was killed.

    server.py      lets a process use the server: acquire, release
    launch.py      starts the server: data directory, socket directory, server process and watcher
    home.py        the files in .watchbill/, and data that deleted projects have left
    account.py     the user that the server runs as
    binaries.py    which PostgreSQL to start, and a copy of it for a user who cannot reach the original
    supervisor.py  which processes use the server, and how it stops after the last one; also the program of the watcher
"""

from watchbill.postgres.embedded.binaries import Binaries, find_binaries
from watchbill.postgres.embedded.server import EmbeddedServer, find_running_url, has_data
from watchbill.settings import find_project

__all__ = ["Binaries", "EmbeddedServer", "find_binaries", "find_project", "find_running_url", "has_data"]
