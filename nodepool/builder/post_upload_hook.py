# SPDX-License-Identifier: Apache-2.0
"""The program of an administrator that accepts or rejects an upload (rule U-8, reference/configuration 9)."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Final

from nodepool.exceptions import BuilderError

log = logging.getLogger("nodepool.builder.post_upload_hook")

#: A program that takes longer is ended.
HOOK_SECONDS: Final = 3600.0
#: So much of what it writes goes into the log: its end.
OUTPUT_BYTES: Final = 16 * 1024


class PostUploadHookFailed(BuilderError):
    """The program did not accept the upload, or could not be run."""


def run_hook(program: str, provider: str, external_id: str, filename: str, seconds: float = HOOK_SECONDS) -> None:
    """Run it as ``<program> <provider> <external id> <file>``; blocks until it has ended. Exit code 0 = accepted.

    :param seconds: after these it is killed, with what it started.
    :raises PostUploadHookFailed: it does not accept the upload; what it wrote is in the log.
    """
    command = [program, provider, external_id, filename]
    with tempfile.TemporaryFile() as output:
        try:
            code = _wait(command, output.fileno(), seconds)
        except OSError as error:
            raise PostUploadHookFailed(f"{program} cannot be run: {error}") from error
        except subprocess.TimeoutExpired:
            problem = f"took longer than {seconds:g} s"
        else:
            problem = f"exit code {code}" if code else ""
        written = _end_of(output.fileno())
    if written:
        log.log(logging.ERROR if problem else logging.INFO, "Output of %s: %s", program, written)
    if problem:
        raise PostUploadHookFailed(f"{program} does not accept image {external_id}: {problem}")


def _wait(command: Sequence[str], output: int, seconds: float) -> int:
    """Run a command in a session of its own. Returns its exit code."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        return process.wait(seconds)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _end_of(output: int) -> str:
    size = os.fstat(output).st_size
    data = os.pread(output, OUTPUT_BYTES, max(0, size - OUTPUT_BYTES))
    return data.decode("utf-8", "replace").strip()
