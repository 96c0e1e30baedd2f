"""An application that tells all it knows: each task quotes what it was given in what it raises.

Whatever must not be seen holds the word canary. `fill` has a worker run it all, and leaves a store with a job in every
state whose record, marks and errors come from real endings.
"""

import base64
import json
from typing import Any

from taskharbor import Cancel, Harbor, JobContext, RetryLater, Unrecoverable
from taskharbor.flow import chain, chord

CANARY = "canary"
CARD = "canary-4111111111111111"
RESULT = {"card": CARD, "pin": "canary-8642", "mails": {"canary@example.com": "canary-free"}, "note": "canary\n'é'\\"}
ARGUMENT = {"to": "canary-ada", "deep": [{"card": "canary-card"}, "canary " * 40], "canary@key.com": 1}


class Cipher:
    """A codec whose bytes show nothing, and whose error quotes what it cannot write."""

    def encode(self, value: Any) -> bytes:
        try:
            return base64.b85encode(json.dumps(value).encode())
        except TypeError as error:
            raise TypeError(f"cannot write {value!r}: {error}") from None

    def decode(self, data: bytes, type: Any = Any) -> Any:
        return json.loads(base64.b85decode(data))


harbor = Harbor("memory://")
enciphered = Harbor("memory://", codec=Cipher())


def tell(value: object, how: str) -> None:
    """Raise with all of it, in the way asked for."""
    texts = [str(value), repr(value), json.dumps(value)]
    match how:
        case "fail":
            raise ValueError(f"declined {texts}")
        case "unrecoverable":
            raise Unrecoverable(f"declined {texts}")
        case "cancel":
            raise Cancel(f"declined {texts}")
        case "later":
            raise RetryLater(3600) from ValueError(f"declined {texts}")
        case "group":
            raise ExceptionGroup(f"declined {texts[0]}", [ValueError(texts[1]), KeyError(texts[2])])
        case "noted":
            error = ValueError()
            for text in texts:
                error.add_note(text)
            raise error
        case "cut":
            raise ValueError("." * 8100 + texts[2])


HOWS = ("fail", "unrecoverable", "cancel", "later", "group", "noted", "cut")


@harbor.task(name="fetch")
def fetch() -> dict[str, Any]:
    return RESULT


@harbor.task(name="charge", max_attempts=1)
def charge(account: dict[str, Any], how: str) -> None:
    tell(account, how)


@harbor.task(name="charge_all", max_attempts=1)
def charge_all(accounts: list[dict[str, Any]], how: str) -> None:
    tell(accounts, how)


@harbor.task(name="quote", max_attempts=1)
def quote(argument: dict[str, Any], how: str) -> None:
    tell(argument, how)


@harbor.task(name="apologise", max_attempts=1)
def apologise(failure: dict[str, Any], secret: str) -> None:
    raise ValueError(f"{failure} {secret}")


@harbor.task(name="give")
def give(argument: dict[str, Any]) -> dict[str, Any]:
    return argument


@harbor.task(name="slow", max_attempts=1)
async def slow(ctx: JobContext, argument: dict[str, Any]) -> None:
    ctx.progress(1, 2, f"half of {argument['to']}")
    tell(argument, "fail")


@enciphered.task(name="open", max_attempts=1)
def open_(argument: dict[str, Any], how: str) -> None:
    tell(argument, how)


@enciphered.task(name="unwritable", max_attempts=1)
def unwritable(argument: dict[str, Any]) -> Any:
    return {**argument, "set": {1, 2}}


def fill(dsn: str) -> None:
    """Enqueue and run everything."""
    for each in (harbor, enciphered):
        each._store.use(dsn)
    with harbor, enciphered:
        quote.options(delay=3600, metadata={"tenant": "north"}).enqueue(ARGUMENT, "fail")
        give.options(queue="nobody").enqueue(ARGUMENT)
        give.enqueue(ARGUMENT)
        slow.enqueue(ARGUMENT)
        for how in HOWS:
            quote.enqueue(ARGUMENT, how)
            open_.options(queue="sealed").enqueue(ARGUMENT, how)
            chain(fetch.s(), charge.s(how=how), give.s(), on_failure=apologise.s(secret="canary-apology")).enqueue()
            chord([fetch.s(), fetch.s()], charge_all.s(how=how)).enqueue()
        unwritable.options(queue="sealed").enqueue(ARGUMENT)
        harbor.worker(queues=["default"]).run(until_empty=True)
        enciphered.worker(queues=["sealed"]).run(until_empty=True)
