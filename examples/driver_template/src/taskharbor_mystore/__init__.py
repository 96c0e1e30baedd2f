"""A TaskHarbor driver for MyStore."""

from taskharbor_mystore.driver import MyStoreDriver

__all__ = ["MyStoreDriver"]
