# SPDX-License-Identifier: Apache-2.0
"""``nodepool-builder --fake``: a program in the place of diskimage-builder. It takes the same arguments.

It makes small files, other ones for each build, with their checksums, and says what it does as diskimage-builder would.
Variables (``env-vars`` of an image): ``FAKE_BUILD_SECONDS``, how long it takes; ``FAKE_BUILD_BYTES``, the size of a
file; ``FAKE_BUILD_STATUS``, its exit status. It imports nothing of this package, so that it starts at once.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import os
import pathlib
import sys
import threading
from collections.abc import Iterator

#: Steps of a real build, which a fake one passes through, too.
STEPS = ("root", "extra-data", "pre-install", "install", "post-install", "finalise")
DEFAULT_BYTES = 1 << 20
_BLOCK = 1 << 20


def say(text: str) -> None:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    print(f"{now} | {text}", flush=True)


def content(size: int) -> Iterator[bytes]:
    """So many bytes, which no other build has."""
    mark = os.urandom(32)
    for start in range(0, size, _BLOCK):
        block = hashlib.sha256(mark + start.to_bytes(8, "big")).digest()
        yield (block * (_BLOCK // len(block)))[: size - start]


def write_image(path: pathlib.Path, size: int) -> None:
    """An image with its checksums."""
    sums = {"md5": hashlib.md5(usedforsecurity=False), "sha256": hashlib.sha256()}
    with path.open("wb") as file:
        for block in content(size):
            file.write(block)
            for checksum in sums.values():
                checksum.update(block)
    for name, checksum in sums.items():
        path.with_name(f"{path.name}.{name}").write_text(f"{checksum.hexdigest()}  {path}\n", encoding="utf-8")
    say(f"Image file {path} created...")


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-x", action="count")
    parser.add_argument("-t", dest="formats", default="qcow2")
    parser.add_argument("-o", dest="output", type=pathlib.Path, required=True)
    parser.add_argument("--checksum", action="store_true")
    parser.add_argument("--no-tmpfs", action="store_true")
    parser.add_argument("--qemu-img-options")
    parser.add_argument("elements", nargs="*")
    options = parser.parse_args(argv)
    environment = os.environ
    seconds = float(environment.get("FAKE_BUILD_SECONDS", "0"))
    size = int(environment.get("FAKE_BUILD_BYTES", DEFAULT_BYTES))
    say(f"Building elements: {' '.join(options.elements)}")
    pause = threading.Event()
    for number, step in enumerate(STEPS):
        say(f"dib-run-parts Running /tmp/hooks/{step}.d/{number:02}-fake")
        pause.wait(seconds / len(STEPS))
    status = int(environment.get("FAKE_BUILD_STATUS", "0"))
    if status:
        say(f"FAKE_BUILD_STATUS is {status}: this build fails")
        return status
    manifest = options.output.with_name(f"{options.output.name}.d")
    manifest.mkdir(exist_ok=True)
    (manifest / "dib-manifest").write_text("\n".join(options.elements), encoding="utf-8")
    for image_format in options.formats.split(","):
        say("Converting image using qemu-img convert")
        write_image(options.output.with_name(f"{options.output.name}.{image_format}"), size)
    say("Build completed successfully")
    return 0


if __name__ == "__main__":
    sys.exit(main())
