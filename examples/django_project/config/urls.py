import django
from django.urls import path
from shop import views

urlpatterns = [
    path("orders/", views.place_order),
    path("orders/<int:order_id>/", views.show_order),
]

if django.VERSION >= (6, 0):
    from newsletter.views import show_letter, subscribe

    urlpatterns += [path("subscribe/", subscribe), path("letters/<uuid:letter_id>/", show_letter)]
