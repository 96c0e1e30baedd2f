"""The asynchronous OmniQ client, generated from the synchronous one: `python -m tests.omniq.aio_from_client` writes it.

Both have the same methods and docstrings. What differs is a word here and there, which this replaces.
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "src" / "taskharbor" / "omniq"
HEAD = '''"""The asynchronous client: the methods of client.py, awaited. It belongs to one event loop.

Generated from client.py by `python -m tests.omniq.aio_from_client`; change that file.
"""
'''
CLASS = (
    '    """OmniQ v1 on Redis, awaited: `AsyncOmniQ("redis://…")`, or around a client of `redis.asyncio`. '
    'See `OmniQ`."""\n'
)
WORDS = (
    (r"\bOmniQ:", "AsyncOmniQ:"),
    (r"\b__(enter|exit)__\b", r"__a\1__"),
    (r"-> OmniQ\b", "-> AsyncOmniQ"),
    (r"\bScriptRunner\b", "AsyncScriptRunner"),
    (r"\bthread_consumer\b", "task_consumer"),
    (r"\bThreadInbox\b", "TaskInbox"),
    (r"\btask_consumer\.Handler\b", "task_consumer.AsyncHandler"),
    (r"awaited=False", "awaited=True"),
    (r"^    def (?!__init__|stop\b)", "    async def "),
    (r"(?<!\.)\bself\._runner\.(run|close)\(", r"await self._runner.\1("),
    (r"^(\s+)self\.close\(\)", r"\1await self.close()"),
    (r"^(\s+)task_consumer\.run\(", r"\1await task_consumer.run("),
)


def generated() -> str:
    """The text of aio.py, before it is formatted."""
    text = (FOLDER / "client.py").read_text()
    text = HEAD + text[text.index('"""', 3) + 4 :]
    text = re.sub(r"(?<=class OmniQ:\n).*?\"\"\".*?\"\"\"\n", lambda _: CLASS, text, count=1, flags=re.DOTALL)
    for pattern, word in WORDS:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return text


def without_layout(text: str) -> str:
    """A text without line breaks and commas before brackets, which the formatter decides."""
    return re.sub(r",?\s*([)\]])", r"\1", re.sub(r"\s+", " ", text)).replace("( ", "(")


if __name__ == "__main__":
    (FOLDER / "aio.py").write_text(generated())
