"""The application of the triage: its tasks were mended, so what is brought back is done."""

import os

from taskharbor import Harbor

harbor = Harbor(os.environ["TRIAGE_DSN"], queues=["mail"])


@harbor.task(name="mail.send", queue="mail")
async def send(number: int) -> int:
    return number
