# SPDX-License-Identifier: Apache-2.0
"""tools/lib/debian.sh: what is said and done when something is missing."""

from __future__ import annotations

import subprocess
from pathlib import Path

LIBRARY = Path(__file__).parents[3] / "tools" / "lib" / "debian.sh"


def run(script: str) -> subprocess.CompletedProcess[str]:
    """Run lines of shell behind the library, with programs of the system replaced by functions."""
    text = f"set -euo pipefail\n. {LIBRARY}\n{script}"
    return subprocess.run(["bash", "-c", text, "tools/demo"], capture_output=True, text=True, timeout=60, check=False)


def test_nothing_missing_needs_no_root() -> None:
    """Where everything is there nothing is installed, by whatever way it came."""
    done = run("id() { echo 1000; }; apt_install() { echo INSTALLED; }; need some-package true; install_missing")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_root_it_says_what_to_install() -> None:
    """One line with the exact command, exit code 1, nothing tried."""
    done = run(
        "id() { echo 1000; }; has_program() { true; }; apt_install() { echo INSTALLED; };"
        "need first-package false; need second-package false; need third-package true; install_missing"
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "sudo apt-get install --no-install-recommends first-package second-package\n" in done.stderr
    assert "third" not in done.stderr


def test_without_apt_it_names_the_packages() -> None:
    """On another system nobody can install, but the list helps."""
    done = run("has_program() { false; }; need first-package false; install_missing")
    assert done.returncode == 1
    assert "not a Debian system" in done.stderr
    assert "first-package" in done.stderr


def test_root_installs_what_is_missing() -> None:
    """Only what is missing."""
    done = run(
        "id() { echo 0; }; has_program() { true; }; apt_install() { echo INSTALL ${missing_packages[*]}; };"
        "need first-package false; need second-package true; install_missing"
    )
    assert done.returncode == 0
    assert "INSTALL first-package\n" in done.stdout


def test_python_that_is_too_old() -> None:
    """It says which Python is needed, before anything is installed."""
    done = run('python3() { [ "$1" = --version ] && echo Python 3.9.2 || return 1; }; need_python')
    assert done.returncode == 1
    assert "Python 3.9.2 is too old: Python 3.11 or newer is needed" in done.stderr
