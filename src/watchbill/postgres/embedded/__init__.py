"""A real PostgreSQL for a project without one: started when first needed, stopped when the last process lets go.

    with EmbeddedServer.acquire(find_project()) as server:
        psycopg.connect(server.url)

Who owns the truth: the kernel, through locks that end with the processes, and the processes themselves; files with
numbers in them are hints. What a killed process leaves behind, the next one clears up.

    server.py          a process's hold on the server: acquire, release
    project.py         which directory is the project
    home.py            what is where in its .watchbill/
    binaries.py        which PostgreSQL to start
    binaries_copy.py   a copy of it, for a user who cannot reach the original
    account.py         which user it runs as
    data_directory.py  initdb, whole or not at all
    sockets.py         where the server listens, and who gets in
    launch.py          how the server and its watcher are started
    leftovers.py       what deleted projects of root's have left
    supervisor.py      who holds the server, which process it is, how it stops; also the watcher's program
"""

from watchbill.postgres.embedded.binaries import Binaries, find_binaries
from watchbill.postgres.embedded.project import find_project
from watchbill.postgres.embedded.server import EmbeddedServer, running_url

__all__ = ["Binaries", "EmbeddedServer", "find_binaries", "find_project", "running_url"]
