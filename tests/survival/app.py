"""The tasks as an application for `taskharbor worker run`. SURVIVAL_FOLDER (environment): where the journal is."""

import os

from taskharbor import Harbor
from tests.survival.tasks import Tasks

harbor = Harbor()
tasks = Tasks(harbor, os.environ.get("SURVIVAL_FOLDER", "."))
