"""Thumbnails: one job for each picture, side by side, and a contact sheet of them all at the end.

Without a folder it draws some pictures of its own; `python app.py ~/Pictures` takes yours. The pictures stay on the
disk; what travels between the jobs are their paths. Pillow computes without holding the interpreter, so threads are
enough.
"""

import atexit
import logging
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageDraw

from taskharbor import Harbor
from taskharbor.flow import chord, group

FOLDER = Path(tempfile.mkdtemp(prefix="thumbnails-"))
SIZE = (160, 120)
KINDS = {".png", ".jpg", ".jpeg", ".webp"}

harbor = Harbor(f"sqlite:///{FOLDER / 'jobs.db'}")


@harbor.task(queue="pictures", timeout=60, max_attempts=3)
def shrink(picture: str) -> str:
    target = FOLDER / f"{Path(picture).stem}.thumbnail.png"
    with Image.open(picture) as image:
        image.thumbnail(SIZE)
        image.convert("RGB").save(target)
    return str(target)


@harbor.task(queue="pictures")
def sheet(thumbnails: list[str], columns: int) -> str:
    rows = -(-len(thumbnails) // columns)
    whole = Image.new("RGB", (columns * SIZE[0], rows * SIZE[1]), "white")
    for number, path in enumerate(thumbnails):  # in the order of the group, whichever was ready first
        with Image.open(path) as image:
            whole.paste(image, (number % columns * SIZE[0], number // columns * SIZE[1]))
    target = FOLDER / "sheet.png"
    whole.save(target)
    return str(target)


def draw_pictures(number: int) -> list[Path]:
    paths = []
    for index in range(number):
        image = Image.new("RGB", (800, 600), (40 + 15 * index, 90, 230 - 15 * index))
        draw = ImageDraw.Draw(image)
        draw.ellipse((100 + 20 * index, 100, 500 + 20 * index, 500), fill=(250, 220, 90))
        draw.text((20, 20), f"picture {index + 1}", fill="white")
        paths.append(FOLDER / f"picture{index + 1:02}.png")
        image.save(paths[-1])
    return paths


def main() -> None:
    logging.getLogger("taskharbor").setLevel(logging.CRITICAL)
    if len(sys.argv) > 1:
        pictures = sorted(path for path in Path(sys.argv[1]).expanduser().iterdir() if path.suffix.lower() in KINDS)
    else:
        pictures = draw_pictures(12)
        atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)  # yours are kept, and the sheet of them
    flow = chord(group(shrink.s(picture=str(path)) for path in pictures), sheet.s(columns=4)).enqueue()
    print(f"enqueued: {len(pictures)} pictures and a sheet, {flow.progress()} jobs done")
    harbor.worker(concurrency=4).run(until_empty=True)
    print(f"the flow has {flow.status()}, {flow.progress()} jobs done")
    path = flow.result()
    with Image.open(path) as image:
        print(f"the sheet has {image.width} x {image.height} pixels: {path}")


if __name__ == "__main__":
    main()
