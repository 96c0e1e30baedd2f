"""The basic e-mail job: a welcome message for each sign-up, really sent, and retried when the mail server is busy.

It shows the parts of a real job: an idempotency key, so that a form submitted twice makes one job; a timeout; a retry
policy; and an error that no retry will mend. The mail server is in sink.py; SMTP_PORT names another one.
"""

import asyncio
import logging
import os
import smtplib
from email.message import EmailMessage

import sink  # type: ignore[import-not-found]  # in this folder, where it runs

from taskharbor import Exponential, Harbor, JobDead, JobHandle, Unrecoverable
from taskharbor.events import Event, JobRetried

PORT = int(os.environ.get("SMTP_PORT", "0"))


def say_retry(event: Event) -> None:
    if isinstance(event, JobRetried):
        print("the mail server is busy: the job is run again")


harbor = Harbor("memory://", observers=[say_retry])  # in a program: a store that lasts


@harbor.task(queue="mail", timeout=30, max_attempts=5, retry=Exponential(base=0.2, jitter=0))
def send_welcome(to: str, name: str) -> str:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "shop@example.com", to, f"Welcome, {name}"
    message.set_content(f"Hello {name},\nthank you for signing up.")
    with smtplib.SMTP("127.0.0.1", PORT, timeout=10) as server:
        try:
            server.send_message(message)
        except smtplib.SMTPRecipientsRefused as error:
            raise Unrecoverable("the address was refused") from error  # trying again would not help
    return f"sent to {to}"


async def sign_up(user: int, to: str, name: str) -> JobHandle[str]:
    job = await send_welcome.options(idempotency_key=f"welcome:{user}").aenqueue(to, name)
    print(f"sign-up of {name}: {'the job was there already' if job.existed else 'job enqueued'}")
    return job


async def main() -> None:
    global PORT
    logging.getLogger("taskharbor").setLevel(logging.CRITICAL)  # the output below is the story
    async with harbor, sink.listening() as (server, port):
        PORT = PORT or port
        ada = await sign_up(1, "ada@example.com", "Ada")
        await sign_up(1, "ada@example.com", "Ada")  # the button was clicked twice
        bob = await sign_up(2, "bob@nowhere.invalid", "Bob")

        worker = harbor.worker()
        running = asyncio.create_task(worker.arun())  # in production: taskharbor worker run --app app:harbor
        print(f"Ada's job: {await ada.aresult(30)}")
        try:
            await bob.aresult(30)
        except JobDead as error:
            print(f"Bob's job is in the dead letter queue: {error.reason}")
        worker.stop()
        await running
    for message in server.messages:
        print(f"the mail server received: {message['Subject']!r} for {message['To']}")


if __name__ == "__main__":
    asyncio.run(main())
