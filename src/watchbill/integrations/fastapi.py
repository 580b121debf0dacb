"""Watchbill in FastAPI: the same as in Starlette, and the App as a dependency of endpoints."""

from typing import Annotated

from fastapi import Depends

from watchbill.app.application import App
from watchbill.integrations.starlette import NotInApplication, lifespan, watchbill_app

__all__ = ["NotInApplication", "WatchbillApp", "lifespan", "watchbill_app"]

WatchbillApp = Annotated[App, Depends(watchbill_app)]
