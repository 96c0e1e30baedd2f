"""Flows: the type of a result is that of the last part, or a list of the members'."""

from typing import Any, assert_type

from taskharbor import Harbor
from taskharbor.flow import Flow, FlowHandle, FlowRun, chain, chord, group

harbor = Harbor("memory://")


@harbor.task
def text(number: int) -> str:
    return str(number)


@harbor.task
async def number(text: str) -> int:
    return int(text)


@harbor.task
def join(texts: list[str], separator: str = ",") -> bytes:
    return separator.join(texts).encode()


assert_type(chain(text.s(1)), Flow[str])
assert_type(chain(text.s(1), number.s()), Flow[int])
assert_type(chain(text.s(1), number.s(), text.s(), number.s(), text.s()), Flow[str])
assert_type(chain(*[text.s(1)]), Flow[Any])
assert_type(group(text.s(i) for i in range(3)), Flow[list[str]])
assert_type(group(text.s(1), text.s(2)), Flow[list[str]])
assert_type(group([chain(text.s(1), number.s())]), Flow[list[int]])
assert_type(chord((text.s(i) for i in range(3)), join.s()), Flow[bytes])
assert_type(chord(group(text.s(1)), join.s(separator="-"), on_failure=text.s(1)), Flow[bytes])
assert_type(chain(text.s(1), group(number.s(), number.s())).enqueue(), FlowHandle[list[int]])
assert_type(chain(text.s(1)).enqueue().result(), str)
assert_type(harbor.flow("id"), FlowRun)
chain(text.s(1)).options(connection=object()).enqueue().cancel()

chain(text)  # E: call-overload
group(text, text)  # E: call-overload
chord(text.s(1), join.s())  # E: arg-type
chain(text.s(1), on_failure=text)  # E: call-overload
chain(text.s(1)).options(queue="q")  # E: call-arg
result: int = chain(text.s(1)).enqueue().result()  # E: assignment


async def both() -> None:
    assert_type(await chain(text.s(1), number.s()).aenqueue(), FlowHandle[int])
    assert_type(await (await group(text.s(1)).aenqueue()).aresult(), list[str])
    assert_type(await harbor.aflow("id"), FlowRun)
