# SPDX-License-Identifier: Apache-2.0
"""Check an installed package: commands that answer, from the installation, with what it has to bring and no more.

Run by tox's "package" environment with the interpreter of the virtualenv that holds nothing but
``pip install .``. Prints one line a check; exit code 1 when one fails.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

from nodepool.version import DISTRIBUTION

COMMANDS = ("nodepool", "nodepool-launcher", "nodepool-builder", "nodepool-web", "nodepool-tls")
#: diskimage-builder's, which builders look for beside their Python.
BUILD_COMMAND = "disk-image-create"

#: Libraries of heavier clouds and of the tests: a core installation must work without them.
NOT_CORE = ("boto3", "kubernetes", "pytest", "zuul")
#: Of the default driver and of image builds: the package brings them.
CORE = ("diskimage-builder", "openstacksdk")
#: Files beside the code: what web pages and the description of the API are made of.
FILES = (
    "builder/fake-image-create",
    "config/nodepool.schema.json",
    "web/glossary.rst",
    "web/openapi.yaml",
    "web/templates/page.html",
    "web/static/nodepool.css",
    "web/static/vendor/htmx.min.js",
    "web/static/vendor/htmx.LICENSE",
    "web/static/vendor/vendor.toml",
)


def check_command(name: str, option: str, expected: str) -> str | None:
    """Run one command. Returns what is wrong with its answer, None when it is as it should be. Blocks."""
    program = Path(sysconfig.get_path("scripts")) / name
    try:
        done = subprocess.run([program, option], capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        return str(error)
    if done.returncode != 0:
        return f"exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}"
    if expected not in done.stdout:
        return f"{expected!r} is not in its output: {done.stdout.strip()[:500]}"
    return None


def main() -> int:
    """Run every check. Returns the exit code."""
    problems: list[str] = []
    release = metadata.version(DISTRIBUTION)
    checks = [(name, "--version", f"Nodepool version: {release}") for name in COMMANDS]
    checks += [(name, "--help", "usage: ") for name in COMMANDS]
    checks.append((BUILD_COMMAND, "--version", metadata.version("diskimage-builder")))
    for name, option, expected in checks:
        problem = check_command(name, option, expected)
        print(f"{name} {option}: {problem or 'ok'}")
        if problem:
            problems.append(name)
    installed = {distribution.metadata["Name"].lower() for distribution in metadata.distributions()}
    for name in NOT_CORE:
        if name in installed:
            print(f"{name} is installed, but no core dependency may need it")
            problems.append(name)
    for name in CORE:
        if name not in installed:
            print(f"{name} is not installed, but the package must bring it")
            problems.append(name)
    location = Path(str(metadata.distribution(DISTRIBUTION).locate_file("nodepool"))).resolve()
    if not location.is_relative_to(Path(sys.prefix).resolve()):
        print(f"nodepool comes from {location}, not from the virtualenv")
        problems.append("location")
    for file in FILES:
        if not (location / file).is_file():
            print(f"{file} is not in the package")
            problems.append(file)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
