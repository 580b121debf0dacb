"""`uvicorn main:api --workers 4` serves orders. With NODE=1 its processes run the jobs too: each job runs once."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any
from uuid import UUID

import tasks
from database import open_sessions
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from models import Order
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from watchbill import NoSuchJob
from watchbill.dashboard import Dashboard, Identity
from watchbill.integrations.fastapi import WatchbillApp, lifespan


@asynccontextmanager
async def own_lifespan(api: FastAPI) -> AsyncIterator[None]:
    async with open_sessions() as sessions, lifespan(tasks.app, node=bool(os.environ.get("NODE")))(api):
        api.state.sessions = sessions
        yield
        await dashboard.aclose()


async def open_session(request: Request) -> AsyncIterator[AsyncSession]:
    async with request.app.state.sessions() as session:
        yield session


def find_visitor(request: Request) -> Identity | None:
    """Who looks at the dashboard. Ask your own session here; this example takes everybody on this machine for you."""
    is_here = request.client is not None and request.client.host == "127.0.0.1"
    return Identity("you", "operator") if is_here else None


api = FastAPI(lifespan=own_lifespan)
dashboard = Dashboard(tasks.app, auth=find_visitor)
api.mount("/watchbill", dashboard)


@api.exception_handler(NoSuchJob)
async def no_such_job(request: Request, error: NoSuchJob) -> JSONResponse:
    return JSONResponse({"detail": error.message}, status_code=404)


class NewOrder(BaseModel):
    item: str


@api.post("/orders", status_code=201)
async def place_order(new: NewOrder, session: Annotated[AsyncSession, Depends(open_session)]) -> dict[str, Any]:
    """The order and the job that ships it commit together: there is never one without the other."""
    async with session.begin():
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
