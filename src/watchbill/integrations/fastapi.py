"""Watchbill in FastAPI: as in Starlette, with the App as a dependency."""

from typing import Annotated

from fastapi import Depends

from watchbill.app.application import App
from watchbill.integrations.starlette import NotInApplication, lifespan, watchbill_app

__all__ = ["NotInApplication", "WatchbillApp", "lifespan", "watchbill_app"]

WatchbillApp = Annotated[App, Depends(watchbill_app)]
