"""The environment variables that the library and the command line read. A test looks for others in the source."""

VARIABLES = {
    "TASKHARBOR_DSN": (
        "The store of `Harbor()` and of commands, unless `--dsn` or the code of `--app` names one; a command says that "
        "it does not use the variable. Set but empty, as a missing secret leaves it, is an error."
    ),
    "TASKHARBOR_BY": "Who acts, for the audit. Default: the user and the machine.",
    "TASKHARBOR_DASHBOARD_TOKEN": "The token of `taskharbor dashboard`, if no file names one.",
    "TASKHARBOR_TRACEBACK": "If set, a command that fails shows a traceback.",
    "NO_COLOR": "If set, commands and logs have no colours. So has a terminal with `TERM=dumb`.",
    "VISUAL": "The editor of `taskharbor dlq edit`, before `EDITOR`.",
    "EDITOR": "The editor of `taskharbor dlq edit`.",
    "PROMETHEUS_MULTIPROC_DIR": "The folder in which worker processes share their metrics. Default: a temporary one.",
    "PGHOST": "And libpq's other variables (`PGPORT`, `PGUSER`, `PGPASSWORD`, …): what a Postgres DSN leaves open.",
    "TASKHARBOR_MACHINE_SEED": "Of the conformance suite: the seed of a walk to repeat.",
    "TASKHARBOR_MACHINE_SHRINK": "Of the conformance suite: `1` shrinks a walk that failed.",
    "TASKHARBOR_MACHINE_RUNS": "Of the conformance suite: how many walks.",
    "TASKHARBOR_MACHINE_STEPS": "Of the conformance suite: how many steps each.",
}
