"""What the server really holds, read key by key: for tests that must not believe the client they test."""

from collections import Counter
from typing import Any

from taskharbor.omniq import queue_base

# lane → what the state of a job in it is called
STATES = {lane: lane for lane in ("wait", "active", "delayed", "failed", "completed", "cancelled", "blocked")}
STATES |= {"gwait": "wait", "prio": "wait", "done": "completed"}


class Store:
    """One queue on a server. The client answers bytes; everything here is text."""

    def __init__(self, client: Any, queue: str) -> None:
        self.client = client
        self.base = queue_base(queue)

    def key(self, name: str) -> str:
        return f"{self.base}:{name}"

    def job(self, job_id: str) -> dict[str, str]:
        found = self.client.hgetall(self.key(f"job:{job_id}"))
        return {text(name): text(value) for name, value in found.items()}

    def lines(self, name: str) -> list[str]:
        return [text(each) for each in self.client.lrange(self.key(name), 0, -1)]

    def scores(self, name: str) -> dict[str, float]:
        return {text(member): score for member, score in self.client.zrange(self.key(name), 0, -1, withscores=True)}

    def number(self, name: str) -> int | None:
        found = self.client.get(self.key(name))
        return None if found is None else int(found)

    def names(self, pattern: str = "*") -> set[str]:
        """The keys of this queue, without its base."""
        escaped = self.base.replace("[", "\\[").replace("*", "\\*").replace("?", "\\?")
        found = self.client.scan_iter(match=f"{escaped}:{pattern}", count=1000)
        return {text(each).removeprefix(f"{self.base}:") for each in found}

    def groups(self) -> set[str]:
        return {name[2:].rpartition(":")[0] for name in self.names("g:*")}

    def lanes(self) -> list[tuple[str, str]]:
        """(lane, id) for everything that stands anywhere."""
        found = [(lane, each) for lane in ("wait", "failed", "completed") for each in self.lines(lane)]
        found += [(lane, each) for lane in ("active", "delayed") for each in self.scores(lane)]
        found += [("gwait", each) for gid in self.groups() for each in self.lines(f"g:{gid}:wait")]
        found += [(lane, each) for lane in ("done", "cancelled") for each in self.scores(f"th:{lane}")]
        found += [("prio", member[31:]) for member in self.scores("th:prio")]
        found += [("blocked", text(each)) for each in self.client.zrange(self.key("th:blocked"), 0, -1)]
        return found

    def where(self, job_id: str) -> list[str]:
        return [lane for lane, each in self.lanes() if each == job_id]

    def wrong(self) -> list[str]:
        """Everything that breaks an invariant of the format; empty: it is sound."""
        found: list[str] = []
        standing = self.lanes()
        times = Counter(each for _, each in standing)
        found += [f"{each} stands in {number} places" for each, number in times.items() if number > 1]
        jobs = {name[4:]: self.job(name[4:]) for name in self.names("job:*")}
        found += [f"{each} has no record" for each in times if each not in jobs]
        found += [f"{each} stands nowhere" for each in jobs if each not in times]
        active, delayed = self.scores("active"), self.scores("delayed")
        held: Counter[str] = Counter()
        for lane, each in standing:
            job = jobs.get(each, {})
            if job.get("state") != STATES[lane]:
                found.append(f"{each} stands in {lane}, its state is {job.get('state')}")
            if bool(job.get("lease_token")) != (lane == "active"):
                found.append(f"{each} in {lane} has the token {job.get('lease_token')!r}")
            if lane == "active":
                held[job.get("gid", "")] += 1
                if float(job.get("lock_until_ms") or 0) != active[each]:
                    found.append(f"{each}: lock_until_ms is not the score of active")
            if lane == "delayed" and float(job.get("due_ms") or 0) != delayed[each]:
                found.append(f"{each}: due_ms is not the score of delayed")
            if (lane == "gwait") != bool(job.get("gid")) and lane in ("wait", "gwait"):
                found.append(f"{each} stands in {lane}, its group is {job.get('gid')!r}")
        return found + self._wrong_groups(held)

    def _wrong_groups(self, held: Counter[str]) -> list[str]:
        found, ready = [], self.scores("groups:ready")
        for gid in self.groups():
            inflight = self.number(f"g:{gid}:inflight") or 0
            limit = max(1, self.number(f"g:{gid}:limit") or 1)
            if inflight != held[gid]:
                found.append(f"group {gid}: inflight is {inflight}, {held[gid]} are active")
            if inflight > limit:
                found.append(f"group {gid}: {inflight} are active, the limit is {limit}")
            if self.client.llen(self.key(f"g:{gid}:wait")) and inflight < limit and gid not in ready:
                found.append(f"group {gid} has work and room and is not ready")
        return found


def text(value: Any) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
