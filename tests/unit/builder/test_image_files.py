# SPDX-License-Identifier: Apache-2.0
"""Files of builds: whose they are, what is there, what goes."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from nodepool.builder import image_files
from nodepool.builder.image_files import Checksums, ImageFiles, allocated_bytes

BUILD = uuid.UUID(int=7).hex
OTHER = uuid.UUID(int=8).hex


@pytest.fixture
def files(tmp_path: Path) -> ImageFiles:
    return ImageFiles(tmp_path)


def write(files: ImageFiles, *names: str, text: str = "x") -> None:
    for name in names:
        (files.directory / name).write_text(text)


def names(files: ImageFiles) -> set[str]:
    return {path.name for path in files.directory.iterdir()}


def test_name_says_whose_it_is(files: ImageFiles) -> None:
    """Image and build stand in the name; an image's name may have hyphens, dots and digits of its own."""
    write(files, f"debian-12.1-{BUILD}.qcow2", f"debian-12.1-{BUILD}.qcow2.md5", "old-0000000012.raw")
    write(files, "builder_id.txt", "debian-12.qcow2", f"{BUILD}.raw", f"debian-{BUILD}", "notes-2024.txt")
    assert [(file.image, file.build_id, file.extension) for file in files.all()] == [
        ("debian-12.1", BUILD, "qcow2"),
        ("debian-12.1", BUILD, "qcow2.md5"),
        ("old", "0000000012", "raw"),
    ]


def test_formats(files: ImageFiles) -> None:
    """Checksums and the manifest are no images."""
    write(files, f"a-{BUILD}.qcow2", f"a-{BUILD}.raw.sha256", f"a-{BUILD}.vhd", f"a-{OTHER}.raw")
    (files.directory / f"a-{BUILD}.d").mkdir()
    assert files.formats("a", BUILD) == {"qcow2", "vhd"}
    assert files.formats("b", BUILD) == set()
    assert set(files.builds()) == {("a", BUILD), ("a", OTHER)}


def test_everything_of_a_build_goes(files: ImageFiles) -> None:
    """All formats, checksums and the directory; nothing of another build."""
    write(files, f"a-{BUILD}.qcow2", f"a-{BUILD}.qcow2.md5", f"a-{BUILD}.qcow2.sha256", f"a-{OTHER}.qcow2")
    (files.directory / f"a-{BUILD}.d").mkdir()
    write(files, f"a-{BUILD}.d/dib-manifest")
    assert len(files.remove("a", BUILD)) == 4
    assert names(files) == {f"a-{OTHER}.qcow2"}
    assert files.remove("a", BUILD) == []


def test_one_format_goes(files: ImageFiles) -> None:
    """A format goes with its checksums; the manifest stays."""
    write(files, f"a-{BUILD}.qcow2", f"a-{BUILD}.qcow2.md5", f"a-{BUILD}.raw", f"a-{BUILD}.raw.md5")
    (files.directory / f"a-{BUILD}.d").mkdir()
    files.remove("a", BUILD, ["raw"])
    assert names(files) == {f"a-{BUILD}.qcow2", f"a-{BUILD}.qcow2.md5", f"a-{BUILD}.d"}


def test_link_to_a_directory_is_removed_alone(files: ImageFiles, tmp_path: Path) -> None:
    """Whoever may write to images-dir must not make the builder empty another directory."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept").write_text("x")
    (files.directory / f"a-{BUILD}.d").symlink_to(tmp_path / "elsewhere")
    files.remove("a", BUILD)
    assert names(files) == {"elsewhere"}
    assert (tmp_path / "elsewhere" / "kept").exists()


def test_what_cannot_be_removed_is_said(
    files: ImageFiles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(files, f"a-{BUILD}.qcow2", f"a-{BUILD}.raw")

    def unlink(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr(Path, "unlink", unlink)
    monkeypatch.setattr(image_files, "run_as_root", lambda *command: "not yours")
    assert files.remove("a", BUILD) == []
    assert caplog.text.count("not yours") == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("D41D8CD98F00B204E9800998ECF8427E  a.qcow2\n", "d41d8cd98f00b204e9800998ecf8427e"),
        ("d41d8cd98f00b204e9800998ecf8427e", "d41d8cd98f00b204e9800998ecf8427e"),
        ("d41d8cd98f00b204", None),
        ("", None),
        ("\n", None),
    ],
)
def test_checksum_is_whole_or_none(files: ImageFiles, text: str, expected: str | None) -> None:
    """U-5: 32 characters of md5, 64 of sha256; what is missing or cut off counts for nothing."""
    write(files, f"a-{BUILD}.qcow2.md5", text=text)
    assert files.checksums("a", BUILD, "qcow2") == Checksums(expected, None)


def test_sizes_are_those_on_the_disk(files: ImageFiles) -> None:
    """A sparse image takes less than its length."""
    with files.path("a", BUILD, "raw").open("wb") as sparse:
        sparse.truncate(1 << 20)
    assert files.sizes("a", BUILD) == {"raw": allocated_bytes(files.path("a", BUILD, "raw"))}
    assert files.sizes("a", BUILD)["raw"] < 1 << 20
    assert allocated_bytes(files.directory / "gone") == 0


def test_builder_id_is_made_once(files: ImageFiles) -> None:
    """B-10: made at the first start, kept, blanks stripped."""
    made = files.builder_id()
    assert str(uuid.UUID(made)) == made
    assert files.builder_id() == made
    write(files, "builder_id.txt", text=" an-older-one \n")
    assert files.builder_id() == "an-older-one"


def test_builder_id_makes_the_directory(tmp_path: Path) -> None:
    """B-10"""
    assert ImageFiles(tmp_path / "a" / "b").builder_id()


def test_no_directory_no_files(tmp_path: Path) -> None:
    assert ImageFiles(tmp_path / "nothing").all() == []


def test_free_space(files: ImageFiles) -> None:
    assert files.free_bytes() > 0
