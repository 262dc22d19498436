# SPDX-License-Identifier: Apache-2.0
"""In the place of ``disk-image-create``: small files in half a second to two, and sometimes a failure.

``python small_dib.py STEERING <arguments of disk-image-create>``. It runs without site packages, as quick as Python
starts. The file STEERING (JSON) says how long it takes, how often it fails or hangs, and where it keeps its journal: a
line when it begins, and one when all files are there, with their checksums. Meanwhile it has a child, as the real one
has.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

#: In its environment: which run it belongs to.
MARK = "SMALL_DIB_RUN"
PIECES = 8
CHILD_SECONDS = 600


def main(arguments: list[str]) -> int:
    steering: dict[str, Any] = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser()
    for flag in ("-x", "--checksum", "--no-tmpfs"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("-t", dest="formats", default="qcow2")
    parser.add_argument("-o", dest="base", required=True)
    parser.add_argument("--qemu-img-options")
    parser.add_argument("elements", nargs="*")
    options = parser.parse_args(arguments[1:])
    base = Path(options.base)
    formats = options.formats.split(",")
    _note(steering, {"begins": base.name, "pid": os.getpid(), "directory": str(base.parent)})
    child = subprocess.Popen(["sleep", str(CHILD_SECONDS)], stdin=subprocess.DEVNULL)
    try:
        return _build(steering, base, formats)
    finally:
        child.kill()
        child.wait()


def _build(steering: dict[str, Any], base: Path, formats: list[str]) -> int:
    luck = random.random()
    seconds = random.uniform(*steering["seconds"])
    manifest = Path(f"{base}.d")
    manifest.mkdir()
    (manifest / "dib-manifests").write_text("small\n", encoding="utf-8")
    content = {image_format: os.urandom(steering["bytes"]) for image_format in formats}
    for number in range(PIECES):
        print(f"piece {number + 1} of {PIECES}", flush=True)
        time.sleep(seconds / PIECES)
        for image_format, data in content.items():
            piece = len(data) // PIECES + 1
            with Path(f"{base}.{image_format}").open("ab") as file:
                file.write(data[number * piece : (number + 1) * piece])
        if number == PIECES // 2 and luck < steering["hang"]:
            print("hangs", flush=True)
            time.sleep(CHILD_SECONDS)
        if number == PIECES // 2 and luck > 1 - steering["fail"]:
            print("fails", flush=True)
            return 1
    for image_format, data in content.items():
        for kind in ("md5", "sha256"):
            digest = hashlib.new(kind, data, usedforsecurity=False).hexdigest()
            text = f"{digest}  {base}.{image_format}\n"
            Path(f"{base}.{image_format}.{kind}").write_text(text, encoding="ascii")
    md5 = {name: hashlib.md5(data, usedforsecurity=False).hexdigest() for name, data in content.items()}
    _note(steering, {"built": base.name, "md5": md5})
    return 0


def _note(steering: dict[str, Any], line: dict[str, Any]) -> None:
    line["time"] = time.time()
    # One write at the end of the file: lines of several builds do not mix.
    with Path(steering["journal"]).open("a", encoding="utf-8") as journal:
        journal.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
