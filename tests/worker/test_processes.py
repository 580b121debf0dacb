"""Child processes and their end."""

from __future__ import annotations

import asyncio
from typing import Any

from foliot.worker import processes
from foliot.worker.processes import Processes


def test_nothing_is_left_of_children_when_their_keeper_has_closed() -> None:
    """Neither a zombie nor a socket, of which the loop or the interpreter would complain later."""

    async def keep_two_and_close() -> list[Any]:
        keeper = Processes(lambda *_: None, {}, jobs_each=1)
        worn, idle = [await processes._start_child({}) for _ in range(2)]
        keeper._keep(worn, memory=0)
        keeper._idle.append(idle)
        await keeper.close()
        return [(child.process.returncode, child.writer.transport.is_closing()) for child in (worn, idle)]

    assert asyncio.run(keep_two_and_close()) == [(-9, True), (-9, True)]
