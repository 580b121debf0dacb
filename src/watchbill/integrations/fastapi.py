"""Watchbill in FastAPI: what Starlette has, and the App as a dependency."""

from typing import Annotated

from fastapi import Depends

from watchbill.app.application import App
from watchbill.integrations.starlette import NotInApplication, watchbill_app, lifespan

__all__ = ["WatchbillApp", "NotInApplication", "watchbill_app", "lifespan"]

WatchbillApp = Annotated[App, Depends(watchbill_app)]
