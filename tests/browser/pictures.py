"""`make pictures`: the screenshots of the documents, from the scene of the tests in a real browser, in the font Inter.

python -m tests.browser.pictures
"""

import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.browser.conftest import FLAGS
from tests.browser.served import Served
from tests.dashboard.scene import plan_more

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
SIZE: Any = {"width": 1200, "height": 800}
PHONE: Any = {"width": 390, "height": 780}
PAGES = {  # name → path; the last word of the name is the colour scheme
    "overview-light": "/",
    "jobs-light": "/jobs",
    "job-dark": "/jobs/{dead}",
    "dead-dark": "/dead",
    "workflow-light": "/flows/{failed_flow}",
    "workflow-dark": "/flows/{failed_flow}",
    "schedule-dark": "/schedules/digest#edit",
}


def main() -> None:
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("pictures: chromium is needed; tests/servers/provision chromium installs it")
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        Served(f"sqlite:///{folder}/shop.db") as served,
        sync_playwright() as playwright,
    ):
        served.call(lambda driver, now: plan_more(served.harbor))
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        schemes: tuple[Any, ...] = ("light", "dark")
        for scheme in schemes:
            context = browser.new_context(viewport=SIZE, color_scheme=scheme, reduced_motion="reduce")
            for name, path in PAGES.items():
                if name.endswith(scheme):
                    take(context, served, path, FOLDER / f"{name}.png")
            context.close()
        phone = browser.new_context(viewport=PHONE, color_scheme="dark", reduced_motion="reduce")
        take(phone, served, "/", FOLDER / "phone-dark.png")
        take(phone, served, "/jobs", FOLDER / "phone-jobs-dark.png")
        phone.close()
        browser.close()


def take(context: Any, served: Served, path: str, target: Path) -> None:
    page = context.new_page()
    page.goto(served.url + path.format(**vars(served.scene)))
    page.wait_for_selector("#live:is([data-state=live], [data-state=held])")
    page.evaluate("document.querySelector('.place').textContent = 'sqlite:///shop.db'")
    data = page.screenshot()
    page.close()
    smaller(Image.open(io.BytesIO(data)).convert("RGB")).save(target, optimize=True)
    print(f"{target.relative_to(FOLDER.parents[1])}  {target.stat().st_size // 1024} KB")


def smaller(picture: Image.Image) -> Image.Image:
    """The same with the 256 colours that most of it has, a third of the size. The rest are edges of letters."""
    found: Any = picture.getcolors(1 << 24)
    most = [colour for _, colour in sorted(found, reverse=True)[:256]]
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for colour in most for part in colour])
    return picture.quantize(palette=palette, dither=Image.Dither.NONE)


if __name__ == "__main__":
    main()
