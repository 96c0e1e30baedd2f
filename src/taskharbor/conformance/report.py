"""What a run of the cases found: a value for programs, a table for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from taskharbor.conformance.case import Case


class Verdict(StrEnum):
    """How a case ended."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"
    NOT_OFFERED = "not offered"


@dataclass(frozen=True)
class CaseResult:
    """One case and how it ended. `text` is the error of a failed case, why one was skipped, or the feature that the
    driver does not offer."""

    case: Case
    verdict: Verdict
    text: str = ""


@dataclass(frozen=True)
class Report:
    """Everything a run found; true if no case failed.

    >>> from taskharbor.conformance import run
    >>> report = run("memory://", themes=["pause"])
    >>> report.ok, report.failed
    (True, [])
    """

    results: tuple[CaseResult, ...]

    @property
    def ok(self) -> bool:
        """Whether no case failed. A skipped case does not count as failed, and proves nothing."""
        return not self.failed

    @property
    def passed(self) -> list[CaseResult]:
        """The cases that were run and passed."""
        return [result for result in self.results if result.verdict is Verdict.OK]

    @property
    def failed(self) -> list[CaseResult]:
        """The cases that failed."""
        return [result for result in self.results if result.verdict is Verdict.FAILED]

    @property
    def skipped(self) -> list[CaseResult]:
        """The cases that could not be run here, each with the reason."""
        return [result for result in self.results if result.verdict is Verdict.SKIPPED]

    @property
    def not_offered(self) -> list[CaseResult]:
        """The cases of optional parts that the driver lacks. They were not run."""
        return [result for result in self.results if result.verdict is Verdict.NOT_OFFERED]

    def lines(self) -> Iterator[str]:
        """The report as text: a line for each theme, then what failed, with the sentence it breaks."""
        themes: dict[str, list[CaseResult]] = {}
        for result in self.results:
            themes.setdefault(result.case.theme, []).append(result)
        width = max((len(theme) for theme in themes), default=0)
        for theme, results in themes.items():
            verdicts = [result.verdict for result in results]
            passed = verdicts.count(Verdict.OK)
            mark = "FAILED" if Verdict.FAILED in verdicts else "ok"
            if set(verdicts) == {Verdict.NOT_OFFERED}:
                mark = "not offered"
            yield f"  {theme:<{width}}  {passed:>3} of {len(results):>3}  {mark}"
        for result in self.failed:
            yield ""
            yield f"FAILED {result.case.title}"
            yield from (f"  the contract says: {sentence}" for sentence in result.case.sentences)
            yield from (f"  {line}" for line in result.text.splitlines())
        yield ""
        for results, word in ((self.skipped, "skipped"), (self.not_offered, "not offered")):
            reasons = Counter(result.text for result in results)
            yield from (f"{word} {number}: {reason}" for reason, number in reasons.items())
        last = f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"
        yield f"{last}, {len(self.not_offered)} not offered" if self.not_offered else last

    def __str__(self) -> str:
        return "\n".join(self.lines())
