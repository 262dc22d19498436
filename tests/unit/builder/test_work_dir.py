# SPDX-License-Identifier: Apache-2.0
"""Work directories of builds, and what is left of builds whose builder is gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodepool.builder import dib
from nodepool.builder.dib import NOTES, WorkDir, clean_interrupted
from tests.support.wait import wait_for

NAME = "debian-0000000001"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    return tmp_path / "images"


def notes(images: Path) -> list[str]:
    return sorted(path.name for path in (images / NOTES).glob("*"))


def test_life_of_a_work_directory(images: Path, tmp_path: Path) -> None:
    """Only its owner may look into it; nothing is left of it, nor of its note."""
    work = WorkDir(images, tmp_path, NAME)
    assert work.path == tmp_path / f"nodepool-{NAME}"
    assert work.path.stat().st_mode & 0o777 == 0o700
    assert notes(images) == [f"{NAME}.json"]
    work.started(os.getpid())
    (work.path / "file").write_text("x")
    assert work.remove() == []
    assert not work.path.exists()
    assert notes(images) == []


def test_directory_that_somebody_made_before(images: Path, tmp_path: Path) -> None:
    """It is not used: it is not ours. Nothing is left."""
    (tmp_path / f"nodepool-{NAME}").mkdir()
    with pytest.raises(FileExistsError):
        WorkDir(images, tmp_path, NAME)
    assert notes(images) == []
    assert (tmp_path / f"nodepool-{NAME}").exists()


def test_who_builds_is_left_alone(images: Path, tmp_path: Path) -> None:
    """Another builder that starts with the same directory touches nothing."""
    work = WorkDir(images, tmp_path, NAME)
    assert clean_interrupted(images) == []
    assert work.path.exists()
    with pytest.raises(FileExistsError):
        WorkDir(images, tmp_path, NAME)
    assert notes(images) == [f"{NAME}.json"]
    work.remove()


def test_problem_keeps_the_note(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start tries again."""
    work = WorkDir(images, tmp_path, NAME)
    with monkeypatch.context() as patch:
        patch.setattr(dib, "remove", lambda path: ["busy"])
        assert work.remove() == ["busy"]
    assert notes(images) == [f"{NAME}.json"]
    assert clean_interrupted(images) == []
    assert notes(images) == []
    assert not work.path.exists()


#: A builder that is killed while it builds. Its build goes on, in a session of its own.
BUILDER = """
import os, subprocess, sys
from pathlib import Path
from nodepool.builder.dib import WorkDir
work = WorkDir(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
build = subprocess.Popen(
    ["sh", "-c", "(sleep 300; true) & sleep 300"],
    start_new_session=True,
    env={**os.environ, "TMPDIR": str(work.path)},
    stdout=subprocess.DEVNULL,
)
work.started(build.pid)
(work.path / "file").write_text("x")
print(build.pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def interrupted(images: Path, tmp_path: Path) -> Iterator[int]:
    """Session of a build whose builder was killed."""
    command = [sys.executable, "-c", BUILDER, str(images), str(tmp_path), NAME]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
    session = int(done.stdout)
    wait_for("the build", lambda: len(dib.members(session)) >= 2)
    yield session
    dib.kill(session)


def test_interrupted_build_is_ended(images: Path, tmp_path: Path, interrupted: int) -> None:
    """After the death of a builder the next one ends the build and removes its temporary files."""
    assert clean_interrupted(images) == []
    assert dib.members(interrupted) == []
    assert not (tmp_path / f"nodepool-{NAME}").exists()
    assert notes(images) == []


def test_interrupted_build_without_its_first_process(images: Path, tmp_path: Path, interrupted: int) -> None:
    """The others of its session are known by their environment."""
    os.kill(interrupted, 9)
    wait_for("its end", lambda: dib.process_of(interrupted) is None)
    assert dib.members(interrupted)
    assert clean_interrupted(images) == []
    assert dib.members(interrupted) == []


def change_note(images: Path, **fields: object) -> None:
    path = images / NOTES / f"{NAME}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize("change", [{"started": 1}, {"machine": "another"}, {"session": 0}])
def test_processes_of_others_live_on(images: Path, tmp_path: Path, interrupted: int, change: dict[str, object]) -> None:
    """A number of a process means nothing after a restart of the machine, or when it was given out again."""
    change_note(images, **change)
    clean_interrupted(images)
    assert dib.members(interrupted)
    assert not (tmp_path / f"nodepool-{NAME}").exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"strange": 1}',
        '{"directory": "/", "output": ""}',
        '{"directory": "/tmp/nodepool-a/../../etc/nodepool-a", "output": ""}',
        '{"directory": "nodepool-a", "output": ""}',
    ],
)
def test_note_that_makes_no_sense(
    images: Path, text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is removed, and nothing else: notes name what root removes."""
    removed: list[Path] = []
    monkeypatch.setattr(dib, "remove", removed.append)
    (images / NOTES).mkdir()
    (images / NOTES / f"{NAME}.json").write_text(text)
    assert clean_interrupted(images) == []
    assert (removed, notes(images)) == ([], [])
    assert "cannot be understood" in caplog.text


def test_one_note_does_not_keep_the_others(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (images / NOTES).mkdir()
    for name in ("a", "b"):
        note = {"directory": str(tmp_path / f"nodepool-{name}"), "output": ""}
        (images / NOTES / f"{name}.json").write_text(json.dumps(note))
    remove: Callable[[Path], list[str]] = dib.remove

    def refuse(path: Path) -> list[str]:
        if path.name.endswith("-a"):
            raise OSError("strange disk")
        return remove(path)

    monkeypatch.setattr(dib, "remove", refuse)
    assert clean_interrupted(images) == []
    assert notes(images) == ["a.json"]
    assert "strange disk" in caplog.text


def test_nothing_was_interrupted(images: Path) -> None:
    assert clean_interrupted(images) == []


def test_machine_that_does_not_say_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dib, "_BOOT_ID", Path("/nonexistent"))
    assert dib.this_machine() == ""
