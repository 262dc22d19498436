# SPDX-License-Identifier: Apache-2.0
"""The script in the place of disk-image-create."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.support import small_dib
from tests.support.build_journal import built_files, read_journal


@pytest.fixture
def steering(tmp_path: Path) -> dict[str, object]:
    return {"seconds": [0.0, 0.0], "bytes": 999, "fail": 0.0, "hang": 0.0, "journal": str(tmp_path / "journal")}


def build(steering: dict[str, object], directory: Path) -> int:
    file = directory / "steering"
    file.write_text(json.dumps(steering), encoding="utf-8")
    options = ["-x", "-t", "qcow2,raw", "--checksum", "--no-tmpfs", "--qemu-img-options", "compat=0.10"]
    return small_dib.main([str(file), *options, "-o", str(directory / "debian-1"), "debian", "vm"])


def test_files_and_checksums(steering: dict[str, object], tmp_path: Path) -> None:
    assert build(steering, tmp_path) == 0
    made = built_files(read_journal(tmp_path / "journal"))
    assert list(made) == ["debian-1.qcow2", "debian-1.raw"]
    for name, md5 in made.items():
        data = (tmp_path / name).read_bytes()
        assert len(data) == 999
        assert hashlib.md5(data, usedforsecurity=False).hexdigest() == md5
        assert (tmp_path / f"{name}.md5").read_text(encoding="ascii").split()[0] == md5
        assert (tmp_path / f"{name}.sha256").exists()
    assert (tmp_path / "debian-1.d").is_dir()


def test_failure(steering: dict[str, object], tmp_path: Path) -> None:
    assert build({**steering, "fail": 1.1}, tmp_path) == 1
    assert not built_files(read_journal(tmp_path / "journal"))
