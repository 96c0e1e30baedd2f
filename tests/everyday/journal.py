"""The journal of a scene: what its applications and handlers wrote, read as it grows."""

from collections import Counter, defaultdict
from pathlib import Path


class Journal:
    """The lines by their first word; tests/everyday/tasks.py explains them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0
        self._numbers: dict[str, set[int]] = defaultdict(set)
        self._ids: dict[str, list[str]] = defaultdict(list)
        self._ran: list[tuple[int, int]] = []

    def look(self) -> None:
        """Read what was written since the last call."""
        if not self.path.exists():
            return
        with open(self.path, "rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.decode().splitlines():
            word, number, *rest = line.split()
            self._numbers[word].add(int(number))
            if word == "ran":
                self._ran.append((int(number), int(rest[0])))
            else:
                self._ids[word] += rest

    def numbers(self, word: str) -> set[int]:
        self.look()
        return self._numbers[word]

    def ids(self, *words: str) -> set[str]:
        self.look()
        return {id for word in words for id in self._ids[word]}

    def runs(self) -> int:
        self.look()
        return len(self._ran)

    # The verdict

    def lost(self) -> set[int]:
        """Acknowledged, and never run."""
        return self.numbers("stored") - self.numbers("ran")

    def out_of_nothing(self) -> set[int]:
        """Run although it was never sent, its transaction was rolled back, or it was cancelled before it could run."""
        ran = self.numbers("ran")
        return (ran - self.numbers("sent")) | (ran & (self.numbers("undone") | self.numbers("cancelled")))

    def unexplained(self, killed: set[int]) -> dict[int, int]:
        """Run more often than the processes that were killed while they ran it can explain."""
        self.look()
        runs = Counter(n for n, _ in self._ran)
        excused = Counter(n for n, pid in self._ran if pid in killed)
        return {n: count for n, count in runs.items() if count > 1 + excused[n]}

    def misbooked(self, rows: Counter[int]) -> dict[int, int]:
        """Rows that were written together with an ack: each exactly once, whichever process was killed."""
        booked = {n: rows[n] for n in self.numbers("books") if rows[n] != 1}
        return booked | {n: count for n, count in rows.items() if count != 1}
