from shop import views

urlpatterns: list[object] = []
__all__ = ["urlpatterns", "views"]
