"""The exceptions of the stand-in."""


class SoftTimeLimitExceeded(Exception):
    pass
