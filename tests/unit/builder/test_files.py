# SPDX-License-Identifier: Apache-2.0
"""Files of a builder: images with their checksums, logs, work directories with their mounts, and who owns them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from nodepool.builder import dib, image_files
from nodepool.builder.build import estimate
from nodepool.builder.dib import NOTES, OwnDirectory, clean_interrupted, kill, members, process_of
from nodepool.builder.image_files import Checksums, ImageFiles, all_logs, log_path, logs_of, open_log, prune
from nodepool.exceptions import ConfigError
from nodepool.model.image import BuildView, ImageBuild, ImageView
from tests.support.launcher import ROOT
from tests.support.tables import rows
from tests.support.wait import wait_for

BUILD, OTHER = (uuid.UUID(int=number).hex for number in (7, 8))
NAME: Final = f"a-{BUILD}"


@pytest.fixture
def files(tmp_path: Path) -> ImageFiles:
    return ImageFiles(tmp_path / "images")


def write(files: ImageFiles, *names: str, text: str = "x") -> None:
    """Files; a name that ends with a slash is a directory."""
    files.directory.mkdir(exist_ok=True)
    for name in names:
        path = files.directory / name
        if name.endswith("/"):
            path.mkdir()
        else:
            path.write_text(text)


def names(files: ImageFiles) -> set[str]:
    return {path.name for path in files.directory.iterdir()}


def test_name_says_whose_it_is(files: ImageFiles) -> None:
    """Image and build stand in it; an image's name may have hyphens, dots and digits. Checksums are no formats."""
    assert files.all() == []
    write(files, f"debian-12.1-{BUILD}.qcow2", f"debian-12.1-{BUILD}.qcow2.md5", "old-0000000012.raw")
    write(files, "builder_id.txt", "debian-12.qcow2", f"{BUILD}.raw", f"debian-{BUILD}", "notes-2024.txt")
    assert [(file.image, file.build_id, file.extension) for file in files.all()] == [
        ("debian-12.1", BUILD, "qcow2"),
        ("debian-12.1", BUILD, "qcow2.md5"),
        ("old", "0000000012", "raw"),
    ]
    write(files, f"{NAME}.qcow2", f"{NAME}.raw.sha256", f"{NAME}.vhd", f"a-{OTHER}.raw", f"{NAME}.d/")
    assert files.formats("a", BUILD) == {"qcow2", "vhd"}
    assert files.formats("b", BUILD) == set()
    assert set(files.builds()) == {("debian-12.1", BUILD), ("old", "0000000012"), ("a", BUILD), ("a", OTHER)}


def test_removal(
    files: ImageFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A format goes with its checksums, a build with all of them and its directory, and nothing of another build; of a
    link to a directory only the link. What cannot be removed is logged.
    """
    kept = {f"a-{OTHER}.qcow2"}
    write(files, f"{NAME}.qcow2", f"{NAME}.qcow2.md5", f"{NAME}.raw", f"{NAME}.raw.md5", *kept)
    write(files, f"{NAME}.d/", f"{NAME}.d/dib-manifest")
    files.remove("a", BUILD, ["raw"])
    assert names(files) == {f"{NAME}.qcow2", f"{NAME}.qcow2.md5", f"{NAME}.d"} | kept
    assert len(files.remove("a", BUILD)) == 3
    assert names(files) == kept
    assert files.remove("a", BUILD) == []
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept").write_text("x")
    (files.directory / f"{NAME}.d").symlink_to(tmp_path / "elsewhere")
    files.remove("a", BUILD)
    assert names(files) == kept
    assert (tmp_path / "elsewhere" / "kept").exists()

    def unlink(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr(Path, "unlink", unlink)
    monkeypatch.setattr(image_files, "run_as_root", lambda *command: "not yours")
    assert files.remove("a", OTHER) == []
    assert caplog.text.count("not yours") == 1


def test_identity(files: ImageFiles, tmp_path: Path) -> None:
    """B-10: made once, and kept. That others are kept out shows the test of the daemon."""
    first = OwnDirectory(files)
    first.take()
    made = files.builder_id()
    assert str(uuid.UUID(made)) == made == files.builder_id()
    write(files, "builder_id.txt", text=" an-older-one \n")
    assert files.builder_id() == "an-older-one"
    first.give_back()
    first.take()
    first.give_back()
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match=f"images-dir {path} cannot be used: Not a directory"):
            OwnDirectory(ImageFiles(path)).take()


DATA: Final = b"0123456789"
COMPUTED: Final = Checksums(hashlib.md5(DATA).hexdigest(), hashlib.sha256(DATA).hexdigest())


@rows(__file__, "test_checksums_of_files")
def test_checksums_of_files(files: ImageFiles, text: str, expected: str | None) -> None:
    """U-5: 32 characters of md5, 64 of sha256; what is missing or cut off is computed."""
    write(files, f"{NAME}.raw", text=DATA.decode())
    write(files, f"{NAME}.raw.md5", text=text)
    assert files.checksums("a", BUILD, "raw") == Checksums(expected or COMPUTED.md5, COMPUTED.sha256)


def test_checksums_of_diskimage_builder(files: ImageFiles) -> None:
    """U-5: they are taken as they are."""
    write(files, f"{NAME}.raw")
    write(files, f"{NAME}.raw.md5", text=f"{'a' * 32}  image\n")
    write(files, f"{NAME}.raw.sha256", text="b" * 64)
    assert files.checksums("a", BUILD, "raw") == Checksums("a" * 32, "b" * 64)
    with pytest.raises(FileNotFoundError):
        files.checksums("a", OTHER, "raw")


def image(**extra: Any) -> ImageView:
    """Its newest ready build has these keys."""
    keys = [("ready", {"duration": 1, "size": 1}), ("ready", extra), ("failed", {"duration": 3, "size": 3})]
    records = [
        ImageBuild.from_dict({"state": state, "state_time": number, **more}, "a", f"{number:010}")
        for number, (state, more) in enumerate(keys, 1)
    ]
    return ImageView("a", builds={record.key: BuildView(record.key, record) for record in records})


def write_logs(directory: Path, image: str, count: int) -> list[str]:
    """Logs from the oldest to the newest."""
    found = []
    for number in range(count):
        path = log_path(directory, image, uuid.UUID(int=number).hex)
        path.write_text("x")
        os.utime(path, (number, number))
        found.append(path.name)
    return found


@pytest.mark.parametrize(("retention", "left"), [(7, 5), (5, 5), (3, 3), (1, 1), (0, 1), (-1, 5)])
def test_old_logs_go(tmp_path: Path, retention: int, left: int) -> None:
    """B-7: so many are left beside the log of the build that begins, as in 11.0.0; the newest ones; of this image."""
    logs, others = write_logs(tmp_path, "debian", 5), write_logs(tmp_path, "debian-12", 3)
    (tmp_path / "debian-notes.log").write_text("x")
    assert [path.name for path in logs_of(tmp_path, "debian-12")] == others[::-1]
    prune(tmp_path, "debian", retention)
    kept = {*logs[5 - left :], *others, "debian-notes.log"}
    assert {path.name for path in tmp_path.iterdir()} == kept
    prune(tmp_path / "builds", "debian", 1)
    assert logs_of(tmp_path / "builds", "debian") == []


ZEROS: Final = "0" * 32


@rows(__file__, "test_which_logs_are_opened")
def test_which_logs_are_opened(tmp_path: Path, name: str) -> None:
    """WP-49: logs of builds, the newest first, and nothing else; who asks again and again uses up nothing."""
    logs = tmp_path / "logs"
    assert all_logs(logs) == []
    logs.mkdir()
    first, second = write_logs(logs, "debian", 2)
    (logs / "notes.log").write_text("x")
    (logs / f"link-{ZEROS}.log").symlink_to(logs / "notes.log")
    (logs / f"directory-{ZEROS}.log").mkdir()
    os.mkfifo(logs / f"pipe-{ZEROS}.log")
    assert [f"{found}.log" for found in all_logs(logs)] == [second, first]
    with open_log(logs, first.removesuffix(".log")) as file:
        assert file.read() == b"x"
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(OSError):
            open_log(logs, name)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def images(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    return tmp_path / "images"


def notes(images: Path) -> list[str]:
    return sorted(path.stem for path in (images / NOTES).glob("*"))


@rows(__file__, "test_note_that_makes_no_sense")
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


TABLE: Final = rb"""22 1 0:21 / /proc rw - proc proc rw
30 1 8:1 / /tmp/work/build rw - ext4 /dev/sda1 rw
31 30 0:5 / /tmp/work/build/dev\040and\134more rw - devtmpfs udev rw
32 1 8:1 / /tmp/workshop rw - ext4 /dev/sda1 rw
33 1 8:1 / /tmp/work rw - ext4 /dev/sda1 rw
"""


def test_mounts_and_loop_devices(tmp_path: Path) -> None:
    """The last mount first, because it may stand on another; names that only begin alike are others. Loop devices by
    their files, also those that were removed while the device was in use, or whose mount namespace has ended.
    """
    found = dib.mount_points(Path("/tmp/work"), TABLE)
    assert found == ["/tmp/work", "/tmp/work/build/dev and\\more", "/tmp/work/build"]
    names = ("/tmp/work/image.raw", "/tmp/work/a (deleted)", "/tmp/other", "/work/image0.raw", "/workshop/x")
    for number, file in enumerate(names):
        (tmp_path / f"loop{number}" / "loop").mkdir(parents=True)
        (tmp_path / f"loop{number}" / "loop" / "backing_file").write_text(f"{file}\n")
    (tmp_path / "loop8").mkdir()
    assert dib.loop_devices(Path("/tmp/work"), tmp_path) == ["loop0", "loop1", "loop3"]


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """A directory in which the test may mount, which root may not in every container; nothing stays mounted."""
    directory = tmp_path / "work"
    directory.mkdir()
    trial = ["mount", "-t", "tmpfs", "none", str(directory)]
    if os.geteuid() != 0 or subprocess.run(trial, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount")
    subprocess.run(["umount", str(directory)], check=True)
    yield directory
    for point in dib.mount_points(directory):
        subprocess.run(["umount", "--lazy", point], check=True)


def mount(target: Path, *options: str) -> None:
    target.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", *options, str(target)], check=True)


def test_all_is_unmounted_and_removed(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mounts on mounts, and one in use; what was bound into the work directory is the host's, and is not touched: also
    not when it stays mounted.
    """
    host = tmp_path / "host"
    host.mkdir()
    (host / "kept").write_text("x")
    mount(work / "bound", "--bind", str(host))
    with monkeypatch.context() as patched:
        patched.setattr(dib, "run_as_root", lambda *command, **options: "not allowed")
        assert dib.remove(work) == [f"{work}/bound is still mounted: not allowed"]
    mount(work / "build", "-t", "tmpfs", "none")
    mount(work / "build" / "dev pts", "--bind", str(host))
    with (work / "build" / "open").open("w"):
        assert dib.remove(work) == []
    assert not work.exists()
    assert (host / "kept").exists()


#: A builder that is killed while it builds. Its build goes on, in a session of its own.
BUILDER: Final = """
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
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
    session = int(done.stdout)
    wait_for("the build", lambda: len(members(session)) >= 2)
    yield session
    kill(session)


@rows(__file__, "test_interrupted_build")
def test_interrupted_build(
    images: Path, tmp_path: Path, interrupted: int, change: dict[str, object] | None, ends: bool
) -> None:
    """The next builder ends it, by the environment of its processes also without the first one (None). A number of a
    process means nothing after a restart of the machine, or when it was given out again.
    """
    if change is None:
        os.kill(interrupted, 9)
        wait_for("its end", lambda: process_of(interrupted) is None)
        assert members(interrupted)
    note = images / NOTES / f"{NAME}.json"
    note.write_text(json.dumps({**json.loads(note.read_text()), **(change or {})}))
    assert clean_interrupted(images) == []
    assert (members(interrupted) == []) == ends
    assert not (tmp_path / f"nodepool-{NAME}").exists()
    assert notes(images) == []


@pytest.mark.parametrize(
    ("value", "expected"), [(12.5, 12.5), (0, 0), ("12", None), (True, None), (-1, None), (float("inf"), None)]
)
def test_estimate_of_a_duration(value: object, expected: float | None) -> None:
    assert estimate(image(duration=value)) == expected
    assert estimate(ImageView("a")) is None
