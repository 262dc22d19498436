# SPDX-License-Identifier: Apache-2.0
"""In the place of ``disk-image-create``: a build that takes a given time and makes files of a given content."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from pathlib import Path

SCRIPT = """\
#!/bin/sh
# Takes the arguments of disk-image-create; links the file that is there, so that it costs time and nothing else.
while [ $# -gt 0 ]; do
    case $1 in
    -t) formats=$2; shift ;;
    -o) output=$2; shift ;;
    esac
    shift
done
sleep {seconds}
for format in $(echo "$formats" | tr , ' '); do
    ln {content} "$output.$format"
    for sum in md5 sha256; do
        sed "s:@:$output.$format:" {content}.$sum >"$output.$format.$sum"
    done
done
echo "Build completed successfully"
"""


class SmallBuild:
    """A command for ``dib-cmd``.

    :param directory: on the disk of the images: files are hard links.
    :param seconds: that it takes. :param size: of a file, in bytes.
    """

    def __init__(self, directory: Path, seconds: float, size: int) -> None:
        self.content = directory / "content"
        self.command = directory / "small-build"
        piece = os.urandom(1 << 20)
        md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
        with self.content.open("wb") as file:
            for begin in range(0, size, len(piece)):
                data = piece[: size - begin]
                file.write(data)
                md5.update(data)
                sha256.update(data)
        for name, digest in (("md5", md5), ("sha256", sha256)):
            sums = directory / f"content.{name}"
            sums.write_text(f"{digest.hexdigest()}  @\n", encoding="ascii")
        self.command.write_text(SCRIPT.format(seconds=seconds, content=self.content), encoding="ascii")
        self.command.chmod(0o755)

    def seconds(self, directory: Path) -> float:
        """How long one build takes here, by itself. Blocks as long."""
        start = time.monotonic()
        output = directory / "by-itself"
        subprocess.run(
            [str(self.command), "-x", "-t", "qcow2", "-o", str(output), "element"], check=True, capture_output=True
        )
        passed = time.monotonic() - start
        for file in directory.glob("by-itself.*"):
            file.unlink()
        return passed
