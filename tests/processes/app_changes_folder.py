"""An application that goes to another folder, and chooses its database there, while it is imported.

FOLDER/environment (JSON): what it puts into its environment, as applications do that read a file of settings.
"""

import json
import os

from tests.supervisor.app import FOLDER

(FOLDER / "inner").mkdir(exist_ok=True)
os.chdir(FOLDER / "inner")
if (FOLDER / "environment").exists():
    os.environ.update(json.loads((FOLDER / "environment").read_text()))

from tests.processes.app import harbor  # noqa: E402  its store is that of the environment

__all__ = ["harbor"]
