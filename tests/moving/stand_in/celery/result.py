"""The results of the stand-in."""

AsyncResult = None
