"""Only the session of a worker process is ever killed."""

import os

import pytest

from taskharbor.worker.supervisor import process_end


@pytest.mark.parametrize("leader", [0, 1, -1, 4242])
def test_a_session_that_no_worker_leads_is_not_killed(leader: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 is a process that was never started, and the session of what the system itself runs."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *given: sent.append(given))
    monkeypatch.setattr(os, "killpg", lambda *given: sent.append(given))
    monkeypatch.setattr(os, "getsid", lambda pid: 4242)  # another process leads our session
    with pytest.raises(ValueError, match="leads a session"):
        process_end.kill(leader)
    assert not sent
