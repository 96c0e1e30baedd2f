"""One table, to see which writes were committed."""

from django.db import models


class Note(models.Model):
    """Something that a view or a job wrote down."""

    text = models.CharField(max_length=200)

    def __str__(self) -> str:
        return self.text
