# SPDX-License-Identifier: Apache-2.0
"""``nodepool export-image-data`` and ``import-image-data``: a backup of what ZooKeeper knows of images (rule F-4)."""

from __future__ import annotations

import argparse
import json
import logging
import os
import stat
from pathlib import Path
from typing import Any, Final

from nodepool.cmd import app
from nodepool.cmd.app import CommandError
from nodepool.cmd.session import open_zookeeper
from nodepool.zk import image_backup
from nodepool.zk.components import read_hosts

log = logging.getLogger("nodepool.cmd.image_backup")

#: Of the file: who logs in to nodes how is in it.
MODE: Final = 0o600


def do_export_image_data(options: argparse.Namespace) -> int:
    """``nodepool export-image-data``"""
    with open_zookeeper(options) as zk:
        exported = image_backup.export_images(zk.client)
    usable, problems = image_backup.sort_out(exported)
    for problem in problems:
        log.warning("Not exported: %s", problem)
    try:
        write_file(options.path, json.dumps(usable))
    except OSError as error:
        raise CommandError(f"{options.path} cannot be written: {error.strerror}") from error
    return 0


def write_file(path: str, text: str) -> None:
    """Write a file that only its owner reads. The file that was there stays as it is until all is written.

    :raises OSError: it cannot be written.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        # A pipe or a terminal; nothing of it can be kept.
        target.write_text(text, encoding="utf-8")
        return
    app.write_file(target, text.encode(), MODE)


def do_import_image_data(options: argparse.Namespace) -> int:
    """``nodepool import-image-data``. Nothing is written unless all of the file can be.

    :raises CommandError: the file is no export, or ZooKeeper has other records already.
    """
    data = read_file(options.path)
    try:
        image_backup.check(data)
        with open_zookeeper(options) as zk:
            if running := read_hosts(zk.client, "builder"):
                log.warning("A builder is running on %s: stop it before an import", ", ".join(running))
            image_backup.import_images(zk.client, data, replace=options.replace)
    except image_backup.Unusable as problem:
        raise CommandError(f"{options.path}: {problem}; nothing was imported") from None
    except image_backup.Different as problem:
        raise CommandError(f"{problem}; nothing was imported (--replace overwrites)") from None
    return 0


def read_file(path: str) -> dict[str, Any]:
    try:
        data = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path} is no JSON: {error}") from None
    if not isinstance(data, dict):
        raise CommandError(f"{path} must hold a JSON object, path of a znode -> what is stored there")
    return data
