"""Workflows: jobs with edges, composed of steps.

chain(fetch.s(url=u), parse.s(), save.s(table="t")).enqueue()
chord(group(count.s(chunk=c) for c in chunks), total.s()).enqueue()
group(resize.s(image=i) for i in images).enqueue()
"""

from taskharbor.flow.build import Flow, chain, chord, group
from taskharbor.flow.handle import FlowHandle, FlowProgress
from taskharbor.flow.run import FlowRun
from taskharbor.flow.summary import mermaid
from taskharbor.tasks.failure_step import FlowFailure

__all__ = ["Flow", "FlowFailure", "FlowHandle", "FlowProgress", "FlowRun", "chain", "chord", "group", "mermaid"]
