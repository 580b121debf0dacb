"""`make hosts`: faults of a cluster, each with all ways to the primary, and a table of what came of it.

    python -m tests.hosts [FAULT...]

Without arguments it runs the small form, `crash mend cut mend switchover`. Other orders are possible: a `mend` must
follow each `crash` and each `cut`.
"""

from __future__ import annotations

import os
import sys

from tests.hosts.harness import Hosts, find_missing

SMALL_FORM = ("crash", "mend", "cut", "mend", "switchover")


def main() -> int:
    if missing := find_missing():
        print(f"This machine lacks {missing}.", file=sys.stderr)
        return 2
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with Hosts() as hosts:
        for fault in sys.argv[1:] or SMALL_FORM:
            getattr(hosts, fault)()
            print(f"{fault}: done", flush=True)
        hosts.end()
        print(hosts.report())
        return 0 if hosts.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
