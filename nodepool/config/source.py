# SPDX-License-Identifier: Apache-2.0
"""Text of a configuration file: reading it, and ``%(NODEPOOL_...)`` (reference/configuration 1)."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Final

from nodepool.clock import sleep
from nodepool.exceptions import ConfigError
from nodepool.quick_dataclass import dataclass

#: A missing file is looked for this often, so long apart in seconds: an editor may be replacing it just now.
READ_TRIES: Final = 3
READ_PAUSE_SECONDS: Final = 0.5
#: Larger files are refused; 2,000 labels in each of 20 providers are 2 MB.
MAX_BYTES: Final = 64 * 1024 * 1024

#: Hexadecimal digits of `SourceText.digest`.
DIGEST_LENGTH: Final = 12

PLACEHOLDER: Final = re.compile(r"%\((NODEPOOL_[^)\n]*)\)")

Sleep = Callable[[float], None]


class UnreadableError(ConfigError):
    """The file is not there, or may not be read. The same call may work later, although no file changes."""


@dataclass(frozen=True)
class SourceText:
    """A file's text after substitution.

    :param lines: line after substitution -> line in the file, both from 0; None = they are the same.
    :param digest: begin of the SHA-256 checksum of the file, as ``sha256sum`` prints it.
    """

    path: str
    text: str
    lines: list[int] | None = field(default=None)
    digest: str = ""

    def line(self, number: int) -> int:
        """The line in the file, from 1, of a line after substitution, from 0."""
        if self.lines is None:
            return number + 1
        return self.lines[min(number, len(self.lines) - 1)] + 1


def read(path: str, *, environ: Mapping[str, str] | None = None, sleep: Sleep = sleep) -> SourceText:
    """Read a file and put in environment variables. Blocks about a second when there is no such file.

    :param environ: default: the environment of the process.
    :param sleep: waits that many seconds.
    :raises ConfigError: one line that says what is wrong; `UnreadableError` if the file cannot be opened.
    """
    data = _read_bytes(path, sleep)
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_BYTES // 1024 // 1024} MiB, this is no configuration")
    try:
        # An editor's byte order mark is no part of the text.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"not UTF-8 text: byte 0x{data[error.start]:02x}; save the file in UTF-8"
        raise ConfigError(f"{path}:{line}: {message}") from error
    made = substitute(path, text, os.environ if environ is None else environ)
    return replace(made, digest=hashlib.sha256(data).hexdigest()[:DIGEST_LENGTH])


def _read_bytes(path: str, sleep: Sleep) -> bytes:
    for tries_left in reversed(range(READ_TRIES)):
        try:
            with open(path, "rb") as file:
                return file.read(MAX_BYTES + 1)
        except FileNotFoundError as error:
            if not tries_left:
                raise UnreadableError(f"{path}: no such file") from error
        except IsADirectoryError as error:
            raise UnreadableError(f"{path}: is a directory, a file is needed") from error
        except PermissionError as error:
            raise UnreadableError(f"{path}: may not be read by this user (permission denied)") from error
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise UnreadableError(f"{path}: cannot be read: {reason}") from error
        sleep(READ_PAUSE_SECONDS)
    raise AssertionError("unreachable")


def substitute(path: str, text: str, environ: Mapping[str, str]) -> SourceText:
    """Replace ``%(NODEPOOL_X)`` by the variable of that name; the name of an unset one stays as text."""
    if "%(NODEPOOL_" not in text:
        return SourceText(path, text)
    result: list[str] = []
    numbers: list[int] = []
    for number, line in enumerate(text.split("\n")):
        replaced = PLACEHOLDER.sub(lambda match: environ.get(match[1], match[0]), line)
        result.append(replaced)
        numbers.extend([number] * (replaced.count("\n") + 1))
    return SourceText(path, "\n".join(result), numbers)
