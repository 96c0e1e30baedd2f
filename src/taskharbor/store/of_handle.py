"""The store of a handle: the one in which its job is. A handle from a block of `isolated` is refused after the block,
where it would ask the real store for a job that was never there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskharbor.store.session import Store


class StoreOfHandle:
    """The attribute `_store` of a handle. `_stored`, a slot of its class, has the store and whether it was isolated."""

    def __get__(self, handle: Any, owner: type) -> Store:
        store: Store
        store, was_isolated = handle._stored
        if was_isolated and not store.is_within_block():
            raise RuntimeError(
                f"{handle!r} was made within a block of isolated(…) that is over, and its store with it: ask it within "
                "the block, or make a handle of the real store with harbor.job(id) or harbor.flow(id)"
            )
        return store

    def __set__(self, handle: Any, store: Store) -> None:
        handle._stored = store, store.is_within_block()
