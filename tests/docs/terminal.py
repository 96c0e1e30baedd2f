"""A reader with a terminal: writes the files that a page shows and types its commands, in an empty folder."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.docs.pages import Step

PATIENCE = 120  # seconds until a command counts as hanging; never a figure
_DONE = "--- the end of what was typed ---"


class Terminal:
    """One shell for what is typed in order, and one more for each block that has a terminal of its own."""

    def __init__(self, folder: Path, programs: Path | None = None) -> None:
        """`programs`: the folder of another environment's programs."""
        self.folder = folder
        kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TMPDIR") if name in os.environ}
        path = f"{programs or Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {**kept, "PATH": path, "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        self._shell = self._bash(stdin=subprocess.PIPE)
        self._beside: list[subprocess.Popen[str]] = []
        self._seen: dict[int, str] = {}  # what a terminal beside has printed and was read already

    def _bash(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-e", "-o", "pipefail", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def follow(self, step: Step) -> str:
        """Do what a page says; answer what the commands printed. A command that fails is an AssertionError."""
        if step.file:
            file = self.folder / step.file
            file.parent.mkdir(parents=True, exist_ok=True)
            before = file.read_text(encoding="utf-8") if step.append else ""
            file.write_text(before + step.text, encoding="utf-8")
            return ""
        if step.beside:
            self._beside.append(self._bash("-c", step.text))
            return ""
        return self.type(step.text)

    def type(self, commands: str) -> str:
        """Type commands into the first shell."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        (self.folder / ".typed").write_text(commands, encoding="utf-8")
        self._shell.stdin.write(f'source ./.typed </dev/null; echo "{_DONE}"\n')
        self._shell.stdin.flush()
        printed: list[str] = []
        for line in self._shell.stdout:
            if line.strip() == _DONE:
                return "".join(printed)
            printed.append(line)
        raise AssertionError(f"a command failed in:\n{commands}\nit said:\n{''.join(printed)}")

    def wait_for(self, text: str, *, newest: bool = False) -> None:
        """Until every other terminal, or only the newest, has printed this."""
        for process in self._beside[-1:] if newest else self._beside:
            assert process.stdout is not None
            seen = self._seen.get(process.pid, "")
            while text not in seen:
                line = process.stdout.readline()
                seen += line
                assert line, f"it ended before it said {text}:\n{seen}"
            self._seen[process.pid] = seen

    def interrupt(self) -> list[tuple[int, str]]:
        """Ctrl-C in every other terminal: how each ended, and what it had printed."""
        endings = []
        while self._beside:
            process = self._beside.pop()
            os.killpg(process.pid, signal.SIGINT)
            assert process.stdout is not None
            with process.stdout:
                printed = self._seen.pop(process.pid, "") + process.stdout.read()
            endings.append((process.wait(timeout=PATIENCE), printed))
        return endings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self._shell, *self._beside):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
