"""A real PostgreSQL for a project without one: started when first needed, stopped when the last process releases it.

    with EmbeddedServer.acquire(find_project()) as server:
        psycopg.connect(server.url)

The truth is in the kernel: in locks that end with their processes, and in the processes themselves. Numbers in files
are only hints. The next process cleans up after one that was killed.

    server.py      a process's hold on the server: acquire, release
    launch.py      starts it: data directory, socket directory, server and watcher
    home.py        what is where in .watchbill/, and what deleted projects have left
    account.py     the user that the server runs as
    binaries.py    which PostgreSQL to start, and a copy of it for a user who cannot reach the original
    supervisor.py  who holds the server, which process it is, how it stops; also the watcher's program
"""

from watchbill.postgres.embedded.binaries import Binaries, find_binaries
from watchbill.postgres.embedded.server import EmbeddedServer, has_data, running_url
from watchbill.settings import find_project

__all__ = ["Binaries", "EmbeddedServer", "find_binaries", "find_project", "has_data", "running_url"]
