# SPDX-License-Identifier: Apache-2.0
"""The program that a builder runs to import an image, in place of diskimage-builder (rules I).

It is a process of its own: a builder limits its time, writes its log, ends it, and ends what a killed builder left of
it, all as for a build. First what a builder and the program tell each other, then how a file comes (`fetch`, `copy`),
vendors' lists of checksums, and what the bytes of an image must be like.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from nodepool.builder.image_files import CHECKSUMS, ImageFiles, allocated_bytes
from nodepool.clock import monotonic, sleep, wall_time
from nodepool.model.image import IMPORTED_FORMATS, ImageSource

if TYPE_CHECKING:
    import requests

#: Variable of the program's environment with its job. Arguments could be read by other users, and with an address
#: anyone may be able to read the file.
_JOB: Final = "NODEPOOL_IMPORT"
#: Nothing is imported from the directory in which the builder happens to be.
PROGRAM: Final = (sys.executable, "-P", "-m", "nodepool.builder.imports")
#: Exit code: the same import cannot succeed later. Others: it may.
REFUSED: Final = 3
#: How the line of output with the checksum begins that the vendor's list has.
CHECKSUM: Final = "Checksum: "
#: Below ``images-dir``: files that are not complete. Who lists images finds no image in it.
PARTIAL: Final = ".imports"
#: They are kept for so long without a change, for another attempt of the same import.
KEEP_SECONDS: Final = 24 * 3600.0

#: No image is larger, in bytes. So many bytes of the disk stay free.
MOST_BYTES: Final = 256 << 30
_RESERVE_BYTES: Final = 256 << 20
_LIST_BYTES: Final = 1 << 20
_CHUNK_BYTES: Final = 1 << 20
#: What a break may lose.
_RECEIVED_BYTES: Final = 1 << 16
#: For a connection, and for the next bytes.
_TIMEOUT_SECONDS: Final = (30.0, 60.0)
#: Pauses after errors in a row; bytes that have not arrived before end the row.
_PAUSES: Final = (1.0, 2.0, 4.0, 8.0)
#: Between two lines about how far it is, in seconds.
_SHOW_SECONDS: Final = 10.0


class Refused(Exception):
    """The same import cannot succeed, also not later."""


class Broken(OSError):
    """The server did not send what it was asked for; it may next time."""


def variables(source: ImageSource, output: Path, directory: Path) -> dict[str, str]:
    """Environment of the program.

    :param output: path of the image without its format.
    :param directory: ``images-dir``.
    """
    job = {"source": asdict(source), "output": str(output), "directory": str(directory / PARTIAL)}
    return {_JOB: json.dumps(job)}


def vendor_checksum(source: ImageSource, environment: Mapping[str, str], seconds: float) -> str:
    """What the vendor's list has now, as `ImageSource.checksum`. Blocks at most so long.

    :raises OSError: it cannot be had; the text says why.
    """
    job = {_JOB: json.dumps({"source": asdict(source), "seconds": seconds})}
    try:
        done = subprocess.run(
            PROGRAM,
            env={**environment, **job},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"it took longer than {seconds:g} s") from None
    last = (done.stdout.decode("utf-8", "replace").splitlines() or [""])[-1]
    if done.returncode or not last.startswith(CHECKSUM):
        raise OSError(last or f"exit code {done.returncode}")
    return last.removeprefix(CHECKSUM)


def sweep(files: ImageFiles) -> None:
    """Remove incomplete files that no import continues. Blocks for the file system. Raises OSError."""
    directory = files.directory / PARTIAL
    for path in directory.iterdir() if directory.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            # An import of it may end just now.
            if path.stat().st_mtime < wall_time() - KEEP_SECONDS:
                path.unlink()


def main() -> int:
    """The program. The last line of its output says why it failed."""
    job = json.loads(os.environ[_JOB])
    source = ImageSource(**job["source"])
    # A builder that was killed ends nothing.
    signal.setitimer(signal.ITIMER_REAL, job.get("seconds", 0))
    try:
        with _session() as session:
            if source.checksum_url:
                source = _with_checksum(session, source)
            if "output" in job:
                _import(session, source, Path(job["output"]), Path(job["directory"]))
    except Refused as refusal:
        _tell(str(refusal))
        return REFUSED
    except (OSError, ValueError) as error:
        _tell(str(error))
        return 1
    return 0


def _tell(text: str) -> None:
    """A line of output. With what stands behind the path of an address anyone may be able to read the file."""
    print(re.sub(r"\?\S+", "", " ".join(text.split())), flush=True)


def _session() -> requests.Session:
    """Knows no http, also where a server redirects to it. Proxies, authorities and logins are those of requests."""
    # Not in the builder, which imports this module for the names above.
    import requests

    session = requests.Session()
    del session.adapters["http://"]
    return session


def _import(session: requests.Session, source: ImageSource, output: Path, directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    key = hashlib.sha256(f"{source.place} {source.checksum}".encode()).hexdigest()[:32]
    part = directory / f"{output.name.rpartition('-')[0]}-{key}"
    try:
        found = _had(session, source, part)
    except Refused:
        # Nothing will go on with it.
        _forget(part)
        raise
    try:
        if not _is_right(found, source.checksum):
            algorithm, _, wanted = source.checksum.partition(":")
            text = f"{algorithm} of {source.shown} is {found[algorithm]}, not {wanted}"
            # A vendor may have changed the image, but not yet its list.
            raise OSError(text) if source.checksum_url else Refused(text)
        form = checked_format(part, source.format or Path(urlsplit(source.place).path).suffix[1:].lower())
        target = output.with_name(f"{output.name}.{form}")
        for kind in CHECKSUMS:
            target.with_name(f"{target.name}.{kind}").write_text(f"{found[kind]}  {target}\n", encoding="utf-8")
        part.replace(target)
    finally:
        _forget(part)


def _had(session: requests.Session, source: ImageSource, part: Path) -> dict[str, str]:
    """Have all of the file in ``part``; returns its `_digests`."""
    if source.is_file:
        copy(Path(source.place), part)
        return _digests(part, source.checksum)
    resumed = fetch(session, source.place, part)
    found = _digests(part, source.checksum)
    if resumed and not _is_right(found, source.checksum):
        # What an earlier attempt has left may be of another file.
        _forget(part)
        fetch(session, source.place, part)
        found = _digests(part, source.checksum)
    return found


def _digests(path: Path, checksum: str) -> dict[str, str]:
    """Algorithm -> checksum of a file: those that stand beside images, and the one that is to be compared."""
    _tell(f"Checking {path.stat().st_size} bytes")
    kinds = {*CHECKSUMS, *([checksum.partition(":")[0]] if checksum else [])}
    digests = {kind: hashlib.new(kind, usedforsecurity=False) for kind in kinds}
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            for digest in digests.values():
                digest.update(chunk)
    return {kind: digest.hexdigest() for kind, digest in digests.items()}


def _is_right(found: Mapping[str, str], checksum: str) -> bool:
    algorithm, _, wanted = checksum.partition(":")
    return not checksum or found[algorithm] == wanted


def _check_size(size: int, more: int, directory: Path) -> None:
    """:raises Refused, OSError: a file is too large, or there is no room for ``more`` bytes of it."""
    if size > MOST_BYTES:
        raise Refused(f"it has {size} bytes; an image has at most {MOST_BYTES}")
    found = os.statvfs(directory)
    free = found.f_bavail * found.f_frsize
    if more + _RESERVE_BYTES > free:
        raise OSError(f"it needs {more} bytes, and {directory} has {free} free, of which {_RESERVE_BYTES} stay free")


# A file of this host: it is copied, because its owner may write to it again. Where a file system can share the blocks,
# that costs nothing.


def copy(path: Path, part: Path) -> None:
    """Blocks. Raises OSError, Refused."""
    if not path.is_file():
        raise OSError(f"there is no file {path}")
    before = path.stat()
    _check_size(before.st_size, allocated_bytes(path.resolve()), part.parent)
    _tell(f"Copying {path}")
    command = ["cp", "--reflink=auto", "--sparse=auto", "--", str(path), str(part)]
    done = subprocess.run(command, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        _forget(part)
        raise OSError(done.stderr.decode("utf-8", "replace") or f"cp: exit code {done.returncode}")
    after = path.stat()
    if (before.st_ino, before.st_size, before.st_mtime_ns) != (after.st_ino, after.st_size, after.st_mtime_ns):
        _forget(part)
        raise OSError(f"{path} was written to while it was copied")


# A file behind an address. What has arrived is kept for the next attempt, also of the next process.


def fetch(session: requests.Session, url: str, part: Path) -> bool:
    """Blocks until all of it is there, over errors and breaks. Was something there before?

    :raises Refused: the server does not have it, or it is too large.
    :raises OSError: it cannot be had now.
    """
    from requests.exceptions import InvalidSchema, InvalidURL, RequestException, SSLError

    resumed, failures, most = part.exists(), 0, _size(part)
    while True:
        try:
            _fetch_rest(session, url, part)
            return resumed
        except (InvalidSchema, InvalidURL) as error:
            raise Refused(f"only https is followed: {error}") from None
        except (RequestException, Broken) as error:
            # Not what came again: a server may break each time, or announce more than it has.
            failures = 1 if _size(part) > most else failures + 1
            most = max(most, _size(part))
            if failures > len(_PAUSES) or isinstance(error, SSLError):
                raise
            _tell(f"{error}; going on with byte {_size(part)} in {_PAUSES[failures - 1]:g} s")
            resumed = resumed or _size(part) > 0
            sleep(_PAUSES[failures - 1])


def _fetch_rest(session: requests.Session, url: str, part: Path) -> None:
    begun, note = _size(part), _read_note(part)
    if note is None:
        begun = 0
    elif note["size"] == begun:
        return
    headers = {"Accept-Encoding": "identity"}
    if note is not None and begun:
        headers["Range"] = f"bytes={begun}-"
        if note["validator"]:
            headers["If-Range"] = note["validator"]
    _tell(f"Fetching {ImageSource(url).shown}")
    with session.get(url, headers=headers, stream=True, timeout=_TIMEOUT_SECONDS) as answer:
        if answer.status_code == 416:
            _forget(part)
        _check_status(answer)
        if answer.status_code != 206:
            begun = 0
        elif not answer.headers.get("Content-Range", "").startswith(f"bytes {begun}-"):
            _forget(part)
            raise Broken("the server has sent another part than the one it was asked for")
        length = answer.headers.get("Content-Length", "")
        # Of a packed answer it is not what arrives.
        packed = answer.headers.get("Content-Encoding", "identity") != "identity"
        size = begun + int(length) if length.isdecimal() and not packed else None
        _check_size(size or 0, (size or begun) - begun, part.parent)
        if not begun:
            _write_note(part, answer.headers, size)
        with part.open("ab") as file:
            file.truncate(begun)
            shown, done = monotonic(), begun
            for chunk in answer.iter_content(_RECEIVED_BYTES):
                file.write(chunk)
                file.flush()
                done += len(chunk)
                if size is None:
                    _check_size(done, 0, part.parent)
                if monotonic() - shown > _SHOW_SECONDS:
                    shown = monotonic()
                    _tell(f"{done} of {size or 'unknown'} bytes")
        if size is None:
            _write_note(part, answer.headers, done)


def _check_status(answer: requests.Response) -> None:
    """:raises Refused, Broken: it is no success."""
    status = answer.status_code
    if status in (200, 206):
        return
    text = f"{ImageSource(answer.url).shown}: the server answers {status} {answer.reason}"
    if 400 <= status < 500 and status not in (408, 416, 429):
        raise Refused(text)
    raise Broken(text)


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _note_of(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _write_note(part: Path, headers: Mapping[str, str], size: int | None) -> None:
    """What tells that the rest is of the same file. It is written before the first byte."""
    etag = headers.get("ETag", "")
    validator = etag if etag and not etag.startswith("W/") else headers.get("Last-Modified", "")
    new = part.with_name(f"{part.name}.new")
    new.write_text(json.dumps({"validator": validator, "size": size}), encoding="utf-8")
    new.replace(_note_of(part))


def _read_note(part: Path) -> dict[str, Any] | None:
    try:
        note = json.loads(_note_of(part).read_bytes())
        return {"validator": note["validator"], "size": note["size"]}
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _note_of(part).unlink(missing_ok=True)


# Lists of checksums, as vendors have them: those of sha256sum and sha512sum, those with ``SHA256 (name) = ...``, and a
# checksum alone.

_ALGORITHMS: Final = {64: "sha256", 128: "sha512"}
_SUM: Final = r"(?P<sum>[0-9a-fA-F]{128}|[0-9a-fA-F]{64})"
_BSD: Final = rf"SHA(?:256|512) \((?P<bsd_name>.+)\) = {_SUM.replace('sum', 'bsd')}"
_LINE: Final = re.compile(rf"{_SUM}(?:\s+\*?(?P<name>\S.*))?|{_BSD}")


def listed_checksum(text: str, name: str) -> str | None:
    """Checksum of a file, as `ImageSource.checksum`; None = the list does not have it.

    :param name: of the file, without directories.
    """
    matches = [match for line in text.splitlines() if (match := _LINE.fullmatch(line.strip()))]
    for match in matches:
        found = match["sum"] or match["bsd"]
        listed = match["name"] or match["bsd_name"]
        if (listed is None and len(matches) == 1) or (listed or "").rpartition("/")[2] == name:
            return f"{_ALGORITHMS[len(found)]}:{found.lower()}"
    return None


def _with_checksum(session: requests.Session, source: ImageSource) -> ImageSource:
    """:raises OSError, Refused: there is no checksum."""
    with session.get(source.checksum_url, stream=True, timeout=_TIMEOUT_SECONDS) as answer:
        _check_status(answer)
        text = b""
        for chunk in answer.iter_content(_RECEIVED_BYTES):
            text += chunk
            if len(text) > _LIST_BYTES:
                raise OSError(f"{source.checksum_url} is longer than {_LIST_BYTES} bytes")
    name = unquote(urlsplit(source.place).path.rpartition("/")[2])
    checksum = listed_checksum(text.decode("utf-8", "replace"), name)
    if checksum is None:
        raise OSError(f"{source.checksum_url} has no SHA-256 and no SHA-512 of {name}")
    _tell(f"{CHECKSUM}{checksum}")
    return replace(source, checksum=checksum)


# What an image is by its bytes. What is no image is not sent to a cloud, where every user could read it.

_PACKED: Final = {b"\xfd7zXZ\0": "xz", b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd"}
_SECTOR_BYTES: Final = 512


def checked_format(path: Path, wanted: str) -> str:
    """Format of an image by its bytes.

    :param wanted: what it is called. What is no format, as the suffix ``img``, may be any.
    :raises Refused: it is no image, or one of another format, or one that needs other files.
    """
    with path.open("rb") as file:
        head = file.read(_SECTOR_BYTES)
        file.seek(max(0, os.fstat(file.fileno()).st_size - _SECTOR_BYTES))
        tail = file.read(_SECTOR_BYTES)
    found = _format_of(head, tail)
    if wanted in IMPORTED_FORMATS and wanted != found:
        raise Refused(f"the file is {found}, not {wanted}")
    return found


def _format_of(head: bytes, tail: bytes) -> str:
    packed = next((name for begin, name in _PACKED.items() if head.startswith(begin)), None)
    if packed is not None:
        raise Refused(f"the file is compressed with {packed}: unpack it first")
    if head.startswith(b"QFI\xfb"):
        # qemu-img and clouds would read the other file with their own rights.
        if head[8:16].strip(b"\0") or (head[7:8] > b"\2" and head[79:80] and head[79] & 4):
            raise Refused("the qcow2 image needs another file, as a backing file")
        return "qcow2"
    if head.startswith(b"vhdxfile"):
        return "vhdx"
    if head.startswith(b"KDMV"):
        return "vmdk"
    if tail.startswith(b"conectix"):
        return "vhd"
    if head[510:512] == b"\x55\xaa":
        return "raw"
    raise Refused("the file is no image: it begins as none, and has no partition table")


if __name__ == "__main__":
    sys.exit(main())
