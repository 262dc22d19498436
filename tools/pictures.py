# SPDX-License-Identifier: Apache-2.0
"""Make the pictures of the documentation: pages of a demonstration with example jobs. ``tox -e pictures`` runs it.

Usage: python tools/pictures.py [--minutes N] [--into DIR] [--programs DIR]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.request import urlopen

from PIL import Image

TOP: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP))

from tests.support.chromium import running_browser  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PICTURES: Final = TOP / "doc" / "source" / "pictures"
#: Part of a name -> width and height of the window, in pixels of CSS. Text of a wider one would be too small to read.
WINDOWS: Final = {"": (1200, 800), "-phone": (390, 844)}
SCHEMES: Final[tuple[Any, ...]] = ("light", "dark")
#: Name -> address. ``{request}`` waits, ``{node}`` is in use.
PAGES: Final = {
    "overview": "/",
    "request": "/requests/{request}",
    "node": "/nodes/{node}",
    "nodes": "/nodes",
    "hosts": "/hosts",
}
#: Pages that are shown on a phone, too.
ON_PHONES: Final = ("overview", "request")
#: For a request that waits, and for a node in use, when the jobs have run for long enough.
PATIENCE_SECONDS: Final = 180.0


@contextmanager
def demonstration(programs: Path) -> Iterator[str]:
    """The address of its pages, while it runs."""
    command = [sys.executable, "-m", "demo_lib", "--build", "--programs", str(programs)]
    environment = {**os.environ, "PYTHONPATH": f"{TOP / 'tools'}:{TOP}", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        found = None
        for line in demo.stdout:
            print(line, end="", flush=True)
            if found := re.search(r"The web pages, .*(http://\S+)/", line):
                break
        try:
            if found is None:
                raise SystemExit("The demonstration has ended.")
            yield found[1]
        finally:
            demo.send_signal(signal.SIGINT)
            demo.communicate()


def ids(site: str) -> dict[str, str]:
    """A request that waits for room, and a node that a job uses. Blocks until there are both."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        waiting = [one["id"] for one in _items(site, "requests") if str(one["code"]).startswith("room.")]
        in_use = [one["id"] for one in _items(site, "nodes?state=in-use") if one["provider"] == "cloud"]
        if waiting and in_use:
            # The youngest ones stay for the longest time.
            return {"request": max(waiting), "node": max(in_use)}
        time.sleep(1)
    raise SystemExit(f"There was no request that waits, and no node in use, for {PATIENCE_SECONDS:.0f} s.")


def _items(site: str, what: str) -> list[dict[str, Any]]:
    with urlopen(f"{site}/api/v1/{what}", timeout=30) as answer:
        found: list[dict[str, Any]] = json.loads(answer.read())["items"]
    return found


def take(browser: Browser, site: str, into: Path) -> None:
    """Write all pictures. Blocks."""
    for name, address in PAGES.items():
        for window, (width, height) in WINDOWS.items():
            if window and name not in ON_PHONES:
                continue
            where = f"{site}{address.format(**ids(site))}"
            for scheme in SCHEMES:
                with browser.new_context(
                    viewport={"width": width, "height": height}, locale="en-GB", timezone_id="UTC", color_scheme=scheme
                ) as context:
                    page = context.new_page()
                    page.goto(where, wait_until="load")
                    # A short page has nothing below its end.
                    end = page.evaluate("() => Math.ceil(document.body.getBoundingClientRect().bottom)")
                    clip = {"x": 0, "y": 0, "width": width, "height": min(height, end)}
                    write(page.screenshot(animations="disabled", clip=clip), into / f"{name}{window}-{scheme}.png")


def write(picture: bytes, path: Path) -> None:
    """With a palette: the repository keeps each version of it."""
    with Image.open(io.BytesIO(picture)) as whole:
        whole.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1024:.0f} KiB")


def main() -> None:
    parser = argparse.ArgumentParser("tools/pictures.py", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15, help="how long jobs run before (default: 15)")
    parser.add_argument("--into", type=Path, default=PICTURES, help="a directory (default: that of the documentation)")
    parser.add_argument("--programs", type=Path, default=Path(sysconfig.get_path("scripts")), help="as of tools/demo")
    options = parser.parse_args()
    with demonstration(options.programs) as site, running_browser() as browser:
        time.sleep(60 * options.minutes)
        take(browser, site, options.into)


if __name__ == "__main__":
    main()
