"""What another site adds to the pages of a dashboard that is part of it. The scope of each request has it."""

from __future__ import annotations

from dataclasses import dataclass

MOUNTING = "taskharbor.mounting"  # the key of the scope


@dataclass(frozen=True, kw_only=True)
class Mounting:
    """`home`: the address of the site, and `home_name` its name. `may_log_out`: the site carries out a POST to
    `/logout`. `streams=False`: it passes no stream of events on, so pages read again every 10 seconds."""

    home: str = ""
    home_name: str = ""
    may_log_out: bool = False
    streams: bool = True


NOT_MOUNTED = Mounting()
