"""`uvicorn main:api --workers 4` serves orders. With NODE=1 its processes run the jobs too: each job runs once."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import tasks
from database import engine, sessions
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from models import Order
from pydantic import BaseModel

from watchbill import NoSuchJob
from watchbill.integrations.fastapi import WatchbillApp, lifespan


@asynccontextmanager
async def whole_life(api: FastAPI) -> AsyncIterator[None]:
    async with lifespan(tasks.app, node=bool(os.environ.get("NODE")))(api):
        yield
    await engine.dispose()


api = FastAPI(lifespan=whole_life)


@api.exception_handler(NoSuchJob)
async def no_such_job(request: Request, error: NoSuchJob) -> JSONResponse:
    return JSONResponse({"detail": error.message}, status_code=404)


class NewOrder(BaseModel):
    item: str


@api.post("/orders", status_code=201)
async def place_order(new: NewOrder) -> dict[str, Any]:
    """The order and the job that ships it commit together: there is never one without the other."""
    async with sessions() as session, session.begin():
        order = Order(item=new.item)
        session.add(order)
        await session.flush()  # gives the order its id
        job = await tasks.ship.using(connection=session).aenqueue(order.id)
        if new.item == "unicorn":
            raise HTTPException(409, "sold out")  # rolls back the order, and its job with it
    return {"order": order.id, "job": job.id}


@api.get("/jobs/{job_id}")
async def show_job(job_id: UUID, watchbill: WatchbillApp) -> dict[str, Any]:
    job = await watchbill.jobs.aget(job_id)
    return {"state": job.state, "attempt": job.attempt, "result": job.result, "error": job.error}
