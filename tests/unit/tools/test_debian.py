# SPDX-License-Identifier: Apache-2.0
"""tools/lib/debian.sh: what it writes and does when something is missing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parents[3] / "tools" / "lib" / "debian.sh"


def run(script: str) -> subprocess.CompletedProcess[str]:
    """Run lines of shell behind the library, with programs of the system replaced by functions."""
    text = f"set -euo pipefail\n. {LIBRARY}\n{script}"
    return subprocess.run(["bash", "-c", text, "tools/demo"], capture_output=True, text=True, timeout=60, check=False)


USER, ROOT, DEBIAN = "id() { echo 1000; };", "id() { echo 0; };", "has_program() { true; };"
APT = "apt_install() { echo INSTALL ${missing_packages[*]}; };"
NEED = "need first-package false; need second-package true; install_missing"


@pytest.mark.parametrize(
    ("script", "status", "out", "err"),
    [
        # Where everything is there nothing is installed, by whatever way it came.
        (f"{USER}{APT}need some-package true; install_missing", 0, "", ""),
        # One line with the exact command, exit code 1, nothing tried.
        (f"{USER}{DEBIAN}{APT}{NEED}", 1, "", "sudo apt-get install --no-install-recommends first-package\n"),
        # On another system the list helps.
        (f"has_program() {{ false; }}; {NEED}", 1, "", "not a Debian system"),
        (f"{ROOT}{DEBIAN}{APT}{NEED}", 0, "INSTALL first-package\n", ""),
        (
            'python3() { [ "$1" = --version ] && echo Python 3.9.2 || return 1; }; need_python',
            *(1, "", "Python 3.9.2 is too old: Python 3.11 or newer is needed"),
        ),
    ],
)
def test_what_is_missing(script: str, status: int, out: str, err: str) -> None:
    done = run(script)
    assert (done.returncode, done.stdout[-len(out) :] if out else done.stdout) == (status, out)
    assert err in done.stderr
    assert "second" not in done.stderr
