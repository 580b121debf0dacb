from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=50)
    state = models.CharField(max_length=20, default="placed")
