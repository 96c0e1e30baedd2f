"""The tries of one call: after each that failed, whether to try again, and what the caller gets otherwise.

A call in doubt (its reply was lost) is repeated once on a fresh connection; ids and tokens make that harmless. A
transaction that lost against another is begun again. Everything else that keeps the server from answering is
BackendUnavailable.

A call may find a job locked by another transaction. Usually that is another call, which ends within milliseconds. It
may also be an application's transaction that depends on the job and stays open for minutes; then only calls for that
one job may have to wait. So a call asks again, only for the jobs that were locked, and finally returns `JobLocked` for
them: nothing was changed, and the caller may send it again.
"""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from taskharbor.drivers.dsn import concealed
from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.model.errors import BackendUnavailable, DriverError

if TYPE_CHECKING:
    import psycopg

    from taskharbor.drivers.postgres.pool import Runner

T = TypeVar("T")
A = TypeVar("A")

BESIDE_OTHERS_S = 0.1  # for which the results of the other jobs of a call are held back
ALONE_S = 0.5  # for a call that has nothing else to return
ADMIN_S = 5.0  # for a call that a person makes
FIRST_PAUSE_S, MAX_PAUSE_S = 0.002, 0.1
MAX_CONFLICTS = 8  # with other transactions: after the eighth the call is given up
WRONG_ISOLATION = "TH002"  # the error of our functions in another isolation than read committed: refuse_isolation.sql
_REFUSED = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|pg_hba\.conf rejects|is not permitted to log in"
    r"|(?:database|role) \".*\" does not exist|permission denied for database|no such (?:database|user)"
)

# SQLSTATEs: no connection; lost against another transaction; no room; a lock that was not free; the server is stopping,
# or ended the statement; its disk fails.
_OUTAGES = ("08", "40", "53", "55P03", "57", "58")


class Tries:
    """The state of one call over its tries. The runner sets `sent` and `late`."""

    # Defaults of the class, not of each instance: nearly every call needs one try.
    sent = False  # whether the call may have reached the server in this try
    late = False  # whether its connection was cut because the time was over
    are_suspect = False  # whether the other connections may be lost, too
    _conflicts = 0
    _is_repeated = False

    def __init__(self, options: PostgresOptions, limit: float, may_repeat: bool, in_transaction: bool) -> None:
        self._options = options
        self._limit = limit
        self._may_repeat = may_repeat
        self.in_transaction = in_transaction  # whether the call runs inside begin and commit

    def after(self, error: Exception) -> DriverError | None:
        """What the caller gets for an error of psycopg's, or a TimeoutError; None: try again."""
        import psycopg
        from psycopg import errors

        if isinstance(
            error,
            errors.DeadlockDetected
            | errors.SerializationFailure
            | errors.UniqueViolation
            | errors.FeatureNotSupported  # a prepared statement has to be prepared again
            | errors.InvalidSqlStatementName  # or belongs to another session
            | errors.DuplicatePreparedStatement,
        ):
            self._conflicts += 1
            return unavailable(self._options, error) if self._conflicts == MAX_CONFLICTS else None
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            self.are_suspect = True
            return self._after_loss(error)
        if isinstance(error, TimeoutError | errors.ReadOnlySqlTransaction):
            # Read-only: the primary became a standby. A fresh connection may find the new primary.
            self.are_suspect = True
            return unavailable(self._options, error)
        if getattr(error, "sqlstate", None) == WRONG_ISOLATION and not self.in_transaction:
            self.in_transaction = True
            return None
        if isinstance(error, errors.InsufficientPrivilege):
            text = (str(error).splitlines() or [""])[0]  # names a table or a function, and holds no value
            return DriverError(
                f"PostgreSQL refused the call: {text}; grant it to this role: see docs/driver-postgres.md"
            )
        # Its text may quote what is stored: only the kind of error is shown.
        return DriverError(f"PostgreSQL refused the call: {type(error).__name__}")

    def _after_loss(self, error: Exception) -> DriverError | None:
        if self.late:
            return BackendUnavailable(f"PostgreSQL did not answer within {self._limit:g} s")
        if self._is_repeated or not _is_lost(error) or (self.sent and not self._may_repeat):
            return unavailable(self._options, error)
        self._is_repeated = True
        return None


def unavailable(options: PostgresOptions, error: BaseException) -> BackendUnavailable:
    """The error for callers. psycopg's own error becomes its cause; no user and no password are repeated."""
    text = concealed(options.address, " ".join(str(error).split())[:300]) or type(error).__name__
    lasting = _is_lasting(str(error))
    # Of classes 08 and 57 the server says that it ends the connection or the call; of any other that it refuses.
    state = getattr(error, "sqlstate", None) or ""
    refused = lasting or (bool(state) and (state == "08P01" or not state.startswith(("08", "57"))))
    made = BackendUnavailable(f"PostgreSQL {'refused' if refused else 'did not answer'}: {text}")
    made.lasting = lasting
    return made


def not_opened(options: PostgresOptions, error: Exception) -> DriverError:
    """The error for callers if a store could not be opened. A refusal that waiting cannot change is not reported as
    an outage, for which a worker would wait for ever."""
    import psycopg

    if isinstance(error, psycopg.Error):
        # An error without a code is the client's own: it could not connect, or lost the connection.
        outage = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        if not (error.sqlstate.startswith(_OUTAGES) if error.sqlstate else outage):
            return unusable(options, error)
    return unavailable(options, error)


def unusable(options: PostgresOptions, error: psycopg.Error) -> DriverError:
    """The error for callers if this role cannot use the schema; nothing secret of the address is repeated."""
    from psycopg.errors import InsufficientPrivilege

    text = concealed(options.address, (str(error).splitlines() or [""])[0]) or type(error).__name__
    hint = ""
    if isinstance(error, InsufficientPrivilege):
        hint = "; run `taskharbor migrate` as a role that may create it, and grant this one the use of it"
    return DriverError(f"the schema {options.schema!r} cannot be used: {text}{hint}")


def _is_lasting(text: str) -> bool:
    """Whether every host that was tried refused for good. libpq passes on the server's words without a code: a server
    whose messages are in another language is taken for one that will come back."""
    tried = text.split("\n- ")[1:] or [text]
    return all(_REFUSED.search(each) is not None for each in tried)


def _is_lost(error: Exception) -> bool:
    """Whether the connection was lost during the call: a fresh one may be all it needs."""
    state = getattr(error, "sqlstate", None)
    return state is None or state.startswith(("08", "57P"))


# Jobs that another transaction has locked


class JobLocked(BackendUnavailable):
    """Another transaction has the job locked, or another job that it needs."""

    id = ""
    is_own = True

    @classmethod
    def job(cls, own: str, id: str | None = None) -> JobLocked:
        """For one job; `id`: because of that other one."""
        what = f"job {own}" if id is None else f"job {own} needs job {id}, which"
        made = cls(f"{what} is locked by a transaction that is still open; nothing was changed, send it again later")
        made.id, made.is_own = id or own, id is None
        return made


class Pauses:
    """The pauses of a call that asks again for what was locked, for `patience` seconds together."""

    def __init__(self, runner: Runner, patience: float) -> None:
        self._runner = runner
        self._until = runner.time() + patience
        self._pause = FIRST_PAUSE_S

    async def sleep(self) -> bool:
        """False: there is no time left."""
        if self._runner.time() >= self._until:
            return False
        # Two calls that cross must not meet again and again.
        await self._runner.sleep(self._pause * random.uniform(0.5, 1.5))
        self._pause = min(self._pause * 2, MAX_PAUSE_S)
        return True


async def ask_again(
    items: Sequence[T], ask: Callable[[Sequence[T]], Awaitable[Sequence[A]]], patience: float, runner: Runner
) -> list[A]:
    """Ask for all items, then for `patience` seconds again for those, by themselves, whose result is `JobLocked`."""
    results = list(await ask(items))
    locked = [place for place, result in enumerate(results) if isinstance(result, JobLocked)]
    if locked:
        pauses = Pauses(runner, patience)
        while locked and await pauses.sleep():
            again = await ask([items[place] for place in locked])
            for place, result in zip(locked, again, strict=True):
                results[place] = result
            locked = [place for place in locked if isinstance(results[place], JobLocked)]
    return results
