"""Whether a waiting worker slows producers down: several at full rate, without a worker and with one.

NOTIFY is what could: every transaction that has sent one waits for the others to commit.
"""

from __future__ import annotations

import time

from benchmarks.contestant import Contestant
from benchmarks.machine import usage
from benchmarks.measures.enqueue import rate_of_producers
from benchmarks.measures.sizes import Run, Sizes

PRODUCERS = 4
TIME_TO_FALL_ASLEEP = 3.0


def producers(contestant: Contestant, sizes: Sizes) -> Run:
    """The peer's worker works meanwhile, if it serves the jobs' queue; the variant "asleep" serves another."""
    each = sizes.singles_of(contestant.peer)
    contestant.set_up()
    before = usage()
    alone = rate_of_producers(contestant, each, PRODUCERS)
    undisturbed = usage().since(before)["other_cpu"]
    contestant.set_up()
    contestant.start()
    time.sleep(TIME_TO_FALL_ASLEEP)
    contestant.check_alive()
    before = usage(contestant.sessions)
    beside = rate_of_producers(contestant, each, PRODUCERS)
    cores = usage(contestant.sessions).since(before)
    contestant.stop()
    cores["other_cpu"] = max(cores["other_cpu"], undisturbed)
    return {"rate": beside, "alone": alone, "share": beside / alone, **cores}
