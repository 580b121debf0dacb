from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=100)
    state = models.CharField(max_length=20, default="placed")
    job_id = models.UUIDField(null=True)


class Shipment(models.Model):
    """One row per shipment, so that a double shipment would show."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    by_process = models.IntegerField()
