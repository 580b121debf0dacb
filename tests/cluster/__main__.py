"""The simulation of token groups over many seeds: `python -m tests.cluster --first 0 --count 10000`.

Each seed is another interleaving of rebalance, loss and hand-over. It prints how far it has come. A failure is printed
with its seed, and ends the command with code 1. Ranges of seeds can run side by side.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.cluster.simulation import Failure, Simulation
from tests.servers import Server, find_servers
from tests.store.conftest import template
from tests.store.harness import Db

REPORT_EVERY = 500  # seeds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description="Simulates token groups.")
    parser.add_argument("--first", type=int, default=0, help="seed (default 0)")
    parser.add_argument("--count", type=int, default=10_000, help="of seeds (default 10000)")
    given = parser.parse_args()
    server, began = Server.start(find_servers()[0]), time.monotonic()
    try:
        db = Db(server.url(server.create_database(template(server))))
        db.configure(synchronous_commit="off")
        for number in range(given.count):
            Simulation(db, given.first + number).run()
            if (number + 1) % REPORT_EVERY == 0:
                print(f"{number + 1} seeds in {time.monotonic() - began:.0f} s", flush=True)
        db.close()
    except Failure as failure:
        print(failure)
        return 1
    finally:
        server.stop()
    print(f"seeds {given.first} to {given.first + given.count - 1}: no promise broken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
