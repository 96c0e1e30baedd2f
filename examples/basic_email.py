"""The basic e-mail job: a welcome message that is sent once for each sign-up, and retried when the server is busy.

Run it: python examples/basic_email.py. It shows the parts of a real job: an idempotency key, so that a form submitted
twice makes one job; a timeout; a retry policy; and an error that no retry will mend. Time is moved by hand here, so
that nobody has to wait for the retry.
"""

import logging
import smtplib
from email.message import EmailMessage

from taskharbor import Exponential, Harbor, JobDead, Unrecoverable
from taskharbor.testing import ManualClock, drain

clock = ManualClock()
harbor = Harbor("memory://", clock=clock)


class Outbox:
    """Stands in for an SMTP server: it is busy at the first try, and knows one domain that does not exist."""

    def __init__(self) -> None:
        self.busy = True
        self.sent: list[EmailMessage] = []

    def send(self, message: EmailMessage) -> None:
        if str(message["To"]).endswith("@nowhere.invalid"):
            raise smtplib.SMTPRecipientsRefused({message["To"]: (550, b"no such domain")})
        if self.busy:
            self.busy = False
            raise smtplib.SMTPServerDisconnected("the server is busy")
        self.sent.append(message)


outbox = Outbox()


@harbor.task(queue="mail", timeout=30, max_attempts=5, retry=Exponential(base=2, jitter=0))
def send_welcome(to: str, name: str) -> str:
    message = EmailMessage()
    message["To"], message["Subject"] = to, f"Welcome, {name}"
    try:
        outbox.send(message)
    except smtplib.SMTPRecipientsRefused as error:
        raise Unrecoverable("the address was refused") from error  # trying again would not help
    return f"sent to {to}"


def sign_up(user: int, to: str, name: str) -> None:
    job = send_welcome.options(idempotency_key=f"welcome:{user}").enqueue(to, name)
    print(f"sign-up of {name}: {'the job was there already' if job.existed else 'job enqueued'}")


def main() -> None:
    logging.getLogger("taskharbor").setLevel(logging.CRITICAL)  # the output below is the story
    sign_up(1, "ada@example.com", "Ada")
    sign_up(1, "ada@example.com", "Ada")  # the button was clicked twice
    sign_up(2, "bob@nowhere.invalid", "Bob")

    print(f"worker: {drain(harbor)} executions, {len(outbox.sent)} sent; the busy server is tried again in 2 seconds")
    clock.advance(2)
    print(f"worker: {drain(harbor)} execution, {len(outbox.sent)} sent")

    ada = send_welcome.options(idempotency_key="welcome:1").enqueue("ada@example.com", "Ada")
    print(f"Ada's job is {ada.status()}: {ada.result()}")
    bob = send_welcome.options(idempotency_key="welcome:2").enqueue("bob@nowhere.invalid", "Bob")
    try:
        bob.result()
    except JobDead as error:
        print(f"Bob's job is in the dead letter queue: {error.reason}")


if __name__ == "__main__":
    main()
