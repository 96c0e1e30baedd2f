"""`taskharbor conformance`: run the conformance suite against a store."""

from __future__ import annotations

import sys

import click

from taskharbor.cli.errors import EXIT_REFUSED, as_usage_error, usage_error
from taskharbor.cli.options import word
from taskharbor.cli.output import write_answer
from taskharbor.cli.target import Target, shared
from taskharbor.store.text import clean


@click.command()
@word("--theme", "NAME", "Run only this theme of cases (repeatable).", "themes", multiple=True)
@word("--namespace", "TEXT", "For a store that is not empty: prefix of the names that the cases use.")
@shared
def conformance(target: Target, themes: tuple[str, ...], namespace: str | None) -> None:
    """Test a driver against the driver contract.

    Runs the cases of taskharbor.conformance; each one checks sentences of the contract. Cases of parts that the
    driver does not offer are not run. The store must be empty, unless --namespace keeps the names of the cases apart
    from those of other jobs. Never deletes what it did not create. Exit 0: no case failed; 1: a case failed; 2: no
    case could run.

    \b
    Examples:
      taskharbor conformance --dsn memory://
      taskharbor conformance --dsn mystore://localhost/test --theme enqueue

    JSON: {"ok", "passed", "failed", "skipped", "not_offered", "cases": [{"theme", "title", "verdict", "text"}]}.
    verdict: ok, failed, skipped or not offered.
    """
    from taskharbor.conformance import StoreNotEmpty, run

    address = target.given if target.app is None else target.dsn
    if address is None:
        raise usage_error("conformance: expected the address of a store, for example --dsn memory://")
    target.driver()  # reports an invalid DSN
    with as_usage_error("", StoreNotEmpty, ValueError, RuntimeError):
        report = run(address, themes=list(themes) or None, namespace=namespace)
    numbers = {name: len(getattr(report, name)) for name in ("passed", "failed", "skipped", "not_offered")}
    cases = [
        {"theme": each.case.theme, "title": each.case.title, "verdict": each.verdict.value, "text": each.text}
        for each in report.results
    ]
    write_answer(target, {"ok": report.ok, **numbers, "cases": cases}, clean(str(report)))
    if not report.ok:
        sys.exit(EXIT_REFUSED)
