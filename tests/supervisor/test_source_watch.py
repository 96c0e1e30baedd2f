"""Which changed files restart the processes under --reload."""

from pathlib import Path

from taskharbor.worker.supervisor.source_watch import SourceWatch


def test_changes_are_seen_except_in_third_party_and_hidden_folders(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("one")
    for other in ("env/pyvenv.cfg", "env/lib.py", ".git/x.py", "node_modules/y.py", "data.txt"):
        (tmp_path / other).parent.mkdir(exist_ok=True)
        (tmp_path / other).write_text("x")
    sources = SourceWatch(str(tmp_path))
    assert sources.changed() is None
    (tmp_path / "tasks.py").write_text("three")
    assert sources.changed() == str(tmp_path / "tasks.py")
    assert sources.changed() is None
    for other in ("env/lib.py", ".git/x.py", "node_modules/y.py", "data.txt"):
        (tmp_path / other).write_text("changed")
    assert sources.changed() is None
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "new.py").write_text("")
    assert sources.changed() == str(tmp_path / "package" / "new.py")
    (tmp_path / "tasks.py").unlink()
    assert sources.changed() == str(tmp_path / "tasks.py")
