"""An application with a schedule."""

from taskharbor import Harbor

harbor = Harbor()  # the store is the command line's


@harbor.task(name="note")
def note() -> None: ...


harbor.schedule("tick", note.s(), every=1, overlap="allow")
