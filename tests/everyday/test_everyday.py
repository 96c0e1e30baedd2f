"""Everyday operation on every durable store: nothing acknowledged is lost, and nothing runs twice without a reason."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests import lanes
from tests.everyday.scene import Scene
from tests.everyday.stores import STORES

# In the larger runs all stores live side by side, and for longer.
TOGETHER = lanes.run() in ("full", "soak")
SIDE_BY_SIDE = [tuple(STORES)] if TOGETHER else [(name,) for name, store in STORES.items() if store.always]


def lived(name, folder):
    """What went wrong on a store: a word for each, and its proof."""
    folder.mkdir()
    store = STORES[name]
    dsn = store.empty(folder)
    scene = Scene(dsn, folder, lanes.seed(), pace=0.05 if TOGETHER else 0.02)
    try:
        scene.play(seconds=lanes.figure(test=0, full=90))
    finally:
        scene.close()
    journal = scene.journal
    wrong = {
        "lost": journal.lost(),
        "out of nothing": journal.out_of_nothing(),
        "unexplained": journal.unexplained(scene.killed),
        "stored otherwise": scene.stored_otherwise(),
        "failed commands": scene.looks,
        "unsound": store.sound(dsn),
        "misbooked": {} if store.bookings is None else journal.misbooked(store.bookings(dsn)),
    }
    assert journal.numbers("books"), "nothing was booked: this test sees nothing"
    return {what: proof for what, proof in wrong.items() if proof}


@pytest.mark.left_to("full", except_for=lanes.Chosen("postgresql"))
@pytest.mark.parametrize("names", SIDE_BY_SIDE, ids="+".join)
def test_nothing_is_lost_while_everything_comes_and_goes(names, tmp_path):
    with ThreadPoolExecutor(len(names)) as threads:
        lives = {name: threads.submit(lived, name, tmp_path / name) for name in names}
    failed = {name: life.exception() for name, life in lives.items() if life.exception() is not None}
    assert {name: life.result() for name, life in lives.items() if name not in failed} == {
        name: {} for name in names
    }, failed
