# SPDX-License-Identifier: Apache-2.0
"""What stands in for disk-image-create when a builder is measured."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from benchmarks.support.small_build import SmallBuild


def test_files_and_checksums(tmp_path: Path) -> None:
    """Each format has the content, and the checksums that builders pass on."""
    build = SmallBuild(tmp_path, 0, 3_000_000)
    words = ["-x", "-t", "qcow2,raw", "--checksum", "--no-tmpfs", "--qemu-img-options", "compat=0.10"]
    output = tmp_path / "image-1"
    subprocess.run([str(build.command), *words, "-o", str(output), "element"], check=True, capture_output=True)
    for name in ("qcow2", "raw"):
        file = Path(f"{output}.{name}")
        content = file.read_bytes()
        assert len(content) == 3_000_000
        sums = {
            "md5": hashlib.md5(content, usedforsecurity=False).hexdigest(),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        for kind, value in sums.items():
            assert Path(f"{file}.{kind}").read_text(encoding="ascii") == f"{value}  {file}\n"


def test_by_itself(tmp_path: Path) -> None:
    """A build of which only the time counts leaves nothing."""
    build = SmallBuild(tmp_path, 0, 1000)
    assert build.seconds(tmp_path) > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "content",
        "content.md5",
        "content.sha256",
        "small-build",
    ]
