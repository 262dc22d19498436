# SPDX-License-Identifier: Apache-2.0
"""What the programs say of themselves: completion for shells, and man pages. Both are in the virtual environment."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from install_lib.host import Host

#: Below a virtual environment.
COMPLETION: Final = "share/completion"
MAN: Final = "share/man/man1"
#: Shell -> name of its file.
SHELLS: Final = {"bash": "nodepool", "zsh": "_nodepool", "fish": "nodepool.fish"}
PAGES: Final = ("nodepool", "nodepool-launcher", "nodepool-builder", "nodepool-web", "nodepool-tls")


def write_completion(host: Host, path: Path) -> None:
    """Ask the installed ``nodepool`` for what each shell needs. Blocks. :param path: the virtual environment."""
    directory = path / COMPLETION
    directory.mkdir(parents=True)
    for shell, name in SHELLS.items():
        text = host.run([str(path / "bin" / "nodepool"), "completion", shell])
        (directory / name).write_text(text, encoding="utf-8")


def write_man_pages(host: Host, path: Path, source: Path, log: Path) -> None:
    """Make the man pages of the installed programs with Sphinx, which is gone afterwards. Blocks.

    :param path: the virtual environment. :param source: the sources. :param log: for pip.
    """
    python = str(path / "bin" / "python")
    with tempfile.TemporaryDirectory(prefix="nodepool-install-") as temporary:
        target = str(Path(temporary) / "sphinx")
        install = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-cache-dir", "--target", target]
        host.run([*install, "-r", str(source / "doc" / "requirements.txt")], log=log)
        only = ["-D", "root_doc=reference/man/index", "-D", "include_patterns=reference/man/**"]
        build = [python, "-P", "-m", "sphinx", "-q", "-b", "man", "-d", f"{temporary}/doctrees", *only]
        host.run([*build, str(source / "doc" / "source"), str(path / MAN)], env={"PYTHONPATH": target}, log=log)
