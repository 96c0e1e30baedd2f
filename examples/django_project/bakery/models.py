"""Orders of cakes."""

from django.db import models


class Order(models.Model):
    """A cake, and whether it was baked."""

    cake = models.CharField(max_length=100)
    baked = models.BooleanField(default=False)

    def __str__(self) -> str:
        return self.cake
