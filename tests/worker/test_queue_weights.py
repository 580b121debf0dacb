"""`--queues mail:3,default:1`: a worker that serves queues by weight."""

from __future__ import annotations

from collections import Counter

from tests.worker.conftest import Workbench
from watchbill.worker.config import Capacity

ONE = Capacity({"async": 1, "thread": 1, "process": 1}, 1)


async def test_queues_with_weights_share_a_worker(bench: Workbench) -> None:
    """Without weights every job of the first queue would run before the first of the second."""
    ran: list[str] = []

    @bench.app.task
    async def work(queue: str) -> None:
        ran.append(queue)

    queues = ("mail", "default")
    calls = [work.using(queue=queue).bind(queue) for queue in queues for _ in range(2000)]
    await bench.app.aenqueue_many(calls)
    node = bench.app.make_node(once=True, queues=("mail:3", "default:1"))
    assert (node.config.queues, node.config.weights) == (queues, {"mail": 3, "default": 1})
    await bench.work_off(queues=queues, weights=node.config.weights, capacity=ONE)
    assert Counter(ran) == {"mail": 2000, "default": 2000}
    first_default, last_mail = ran.index("default"), len(ran) - 1 - ran[::-1].index("mail")
    assert first_default < last_mail
    before = Counter(ran[: last_mail + 1])
    assert before["mail"] > before["default"] > 0
