"""Foliot in FastAPI: what Starlette has, and the App as a dependency."""

from typing import Annotated

from fastapi import Depends

from foliot.app.application import App
from foliot.integrations.starlette import NotInApplication, foliot_app, lifespan

__all__ = ["FoliotApp", "NotInApplication", "foliot_app", "lifespan"]

FoliotApp = Annotated[App, Depends(foliot_app)]
