"""Records that another program has damaged, for drivers whose records are `JobRecord`s whatever is in their fields."""

from __future__ import annotations

from msgspec.structs import replace

from taskharbor.drivers.base import DAMAGED_PREFIX
from taskharbor.model.bounds import check_record
from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import JobRecord

_EMPTY = JobRecord(id="", type="")


def damage_of(record: JobRecord) -> str | None:
    """What would stop a worker that ran this record; None if it is sound.

    >>> damage_of(JobRecord(id="j1", type="mail", attempts="many"))
    'attempts is missing or wrong'
    """
    try:
        check_record(record)
    except InvalidJob as error:  # its text begins with the field; the value is not repeated, which may be anything
        return f"{str(error).partition(':')[0].partition(' ')[0]} is missing or wrong"
    return None


def damaged_reason(damage: str) -> str:
    """The reason with which a damaged record goes to the dead letter queue.

    >>> damaged_reason("attempts is missing or wrong")
    'damaged record: attempts is missing or wrong'
    """
    return f"{DAMAGED_PREFIX}: {damage}"


def readable(record: JobRecord) -> JobRecord:
    """A damaged record as it can be shown: every field of the right kind. The store keeps it as it was found.

    >>> readable(JobRecord(id="j1", type="mail", attempts="many")).attempts
    0
    """
    shown = replace(_EMPTY, id=record.id, queue=record.queue)
    for name in JobRecord.__struct_fields__:
        one = replace(shown, **{name: getattr(record, name)})
        try:
            check_record(one, shown=True)
        except InvalidJob:
            continue
        shown = one
    return shown
