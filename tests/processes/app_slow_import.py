"""An application whose import lasts until the gate `import` is open."""

import time

from tests.processes.app import harbor
from tests.supervisor.app import FOLDER

__all__ = ["harbor"]

(FOLDER / "importing").touch()
while not (FOLDER / "import").exists():
    time.sleep(0.02)
