# SPDX-License-Identifier: Apache-2.0
"""Images, for drivers whose labels name a ``diskimage`` or a ``cloud-image``.

First their configuration, then an image as a cloud lists it, then what an interrupted upload leaves for the next one,
then how long something about an image may take.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import os
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nodepool.clock import monotonic
from nodepool.driver.config import ConfigPool, ImageSettings, LabelSettings
from nodepool.driver.framework.key_schema import Problem, Section, check_of, mappings
from nodepool.driver.framework.rate import TimeLimit, held_here
from nodepool.exceptions import ConfigError, ImageCreateException
from nodepool.model.config_keys import ANY_MAPPING, FILLED_TEXT, FLAG, REQUIRED, key
from nodepool.plan.retries import Backoff

if TYPE_CHECKING:
    from nodepool.config.objects import DiskImage


class DiskImageSettings(ImageSettings):
    """An entry of a provider's ``diskimages``: an image that the builder uploads there.

    :param image: the top-level image; says how to log in.
    """

    without_keys: ClassVar[tuple[str, ...]] = ("username", "python-path", "shell-type")

    name: str = key(
        FILLED_TEXT,
        REQUIRED,
        "Of an image in the top-level ``diskimages``, which also says how to log in: ``username``, ``python-path``, "
        "``shell-type``.",
    )
    pause: bool = key(FLAG, False, "Do not upload it here.")
    meta: dict[str, Any] = key(
        ANY_MAPPING,
        {},
        "Properties of the image in the cloud, e.g. ``hw_disk_bus: scsi``; they win over the ``metadata`` of the "
        "top-level image.",
    )

    def __init__(self, data: dict[str, Any], image: DiskImage) -> None:
        super().__init__(data, username=image.username)
        self.python_path = image.python_path
        self.shell_type = image.shell_type


@check_of
def one_image(label: Section) -> Iterator[Problem]:
    """Check for the schema of a label: it has exactly one of the two keys."""
    if ("diskimage" in label) == ("cloud-image" in label):
        yield [], "exactly one of diskimage and cloud-image is needed"


class ImageLabel(LabelSettings):
    """A label with an image of its provider, which has ``diskimages`` and ``cloud_images``: name -> image.

    :param data: the section in the file.
    :raises ConfigError: the provider does not have the image.
    """

    checks: ClassVar[tuple[Any, ...]] = (one_image,)

    diskimage: Any = key(
        FILLED_TEXT,
        None,
        "Image of the provider's ``diskimages``; either this or ``cloud-image``.",
        read=False,
        default_text="one is required",
    )
    cloud_image: Any = key(
        FILLED_TEXT,
        None,
        "Image of the provider's ``cloud-images``.",
        read=False,
        default_text="one is required",
    )
    console_log: bool = key(
        FLAG, False, "Write the console to the log when the machine does not answer within ``boot-timeout``."
    )
    host_key_checking: bool = key(
        FLAG, True, "false: a node is not contacted before it is given out, and has no host keys."
    )

    def __init__(self, pool: ConfigPool, provider: Any, data: dict[str, Any]) -> None:
        super().__init__(data["name"], pool)
        self.read_keys(data)
        if "diskimage" in data:
            self.diskimage = self._image(provider.diskimages, data["diskimage"], "diskimage")
        if "cloud-image" in data:
            self.cloud_image = self._image(provider.cloud_images, data["cloud-image"], "cloud-image")

    def _image(self, images: dict[str, Any], name: str, kind: str) -> Any:
        if name not in images:
            raise ConfigError(f"label {self.name}: the provider has no {kind} {name!r}; add it to its {kind}s")
        return images[name]


def labels_not_offered(section: dict[str, Any], checks: Iterable[Any]) -> Iterator[tuple[list[Hashable], str]]:
    """Labels that no node can be launched for; see `DeclaredProviderConfig.without_effect`.

    :param section: of a provider.
    :param checks: of a label.
    """
    import voluptuous as v

    images = {image.get("name") for _, image in mappings(section, "diskimages")}
    for pool_index, pool in mappings(section, "pools"):
        for index, label in mappings(pool, "labels"):
            path: list[Hashable] = ["pools", pool_index, "labels", index]
            image = label.get("diskimage")
            try:
                for check in checks:
                    check(label)
            except v.Invalid as problem:
                yield [*path, *problem.path], f"{problem.error_message}; a daemon does not offer the label here"
                continue
            if isinstance(image, str) and image not in images:
                text = f"the provider has no diskimage {image!r}; add it to its diskimages"
                yield [*path, "diskimage"], f"{text}; a daemon does not offer the label here"


@check_of
def known_images(provider: Section) -> Iterator[Problem]:
    """Check for the schema of a provider: it has the images that its labels name."""
    for kind, section in (("diskimage", "diskimages"), ("cloud-image", "cloud-images")):
        names = {image["name"] for image in provider.get(section) or []}
        for pool_index, pool in enumerate(provider.get("pools") or []):
            for index, label in enumerate(pool.get("labels") or []):
                name = label.get(kind)
                if name is not None and name not in names:
                    text = f"the provider has no {kind} {name!r}; add it to its {section}"
                    yield ["pools", pool_index, "labels", index, kind], text


# `ListedImage`: an image in a cloud, as a list shows it.


@dataclass(frozen=True)
class ListedImage:
    """An image that may be one of ours: its metadata says it (rule D-1).

    :param id: what ``deleteImage()`` takes.
    :param name: "" = it has none.
    :param metadata: as given with the upload.
    :param usable: False = it is no image that a node can be made of: what an upload has left. Without a record nobody
        can use it any more (D-3).
    """

    id: Any
    name: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    usable: bool = True

    @property
    def shown_id(self) -> str:
        """The id for people; that of a resource which stands for an image is its own."""
        return str(getattr(self.id, "id", self.id))


# `InterruptedUpload`: what the next upload of a build must know to go on with one that was interrupted.
#
# For clouds that cannot be asked for it, such as Cloud Storage, whose uploads have secret addresses. It is in a file
# beside the image, which only the builder's user can read, and which the builder removes with the image.

log = logging.getLogger("nodepool.driver.framework.InterruptedUpload")

#: Last part of the name of each such file; the name of the image's file is its beginning.
SUFFIX: Final = "upload"
_FILE: Final = "file"


class InterruptedUpload:
    """Of one image file and one provider. All methods block for the file system, and raise nothing: without the file
    an upload begins anew.

    :param image: path of the file that is uploaded.
    :param provider: name.
    """

    def __init__(self, image: str | os.PathLike[str], provider: str) -> None:
        self._image = Path(image)
        # Names of providers may have any characters.
        mark = hashlib.sha256(provider.encode()).hexdigest()[:12]
        self.path = self._image.with_name(f"{self._image.name}.{mark}.{SUFFIX}")

    def read(self) -> dict[str, Any] | None:
        """What `write` wrote; None = nothing, or of a file that was another one."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            same = isinstance(found, dict) and found.pop(_FILE, None) == self._file()
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            log.warning("%s cannot be read, and the upload begins anew: %s", self.path, error)
            return None
        return found if same else None

    def write(self, state: Mapping[str, Any]) -> None:
        """Keep what JSON can hold, in place of what was kept."""
        partial = self.path.with_name(f"{self.path.stem}-new.{SUFFIX}")
        try:
            text = json.dumps({**state, _FILE: self._file()})
            with contextlib.suppress(FileNotFoundError):
                partial.unlink()
            with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)
            partial.replace(self.path)
        except OSError as error:
            log.warning("%s cannot be written: an upload that is interrupted will begin anew: %s", self.path, error)

    def remove(self) -> None:
        """There is nothing to go on with any more."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s cannot be removed: %s", self.path, error)

    def _file(self) -> list[int]:
        """Size and time of the image's file. Raises OSError."""
        found = os.stat(self._image)
        return [found.st_size, found.st_mtime_ns]


# `ImageTime`: how long something about an image may take, and when to look at it.

#: Between two looks at an image that the cloud works on.
LOOK: Final = Backoff(0.5, 10.0, factor=1.5)
#: So often who looks asks whether it is still of interest, in seconds.
WANTED_SECONDS: Final = 1.0


class ImageTime:
    """Begins when it is made. Waits for our own limits do not count.

    :param what: has a limit, for errors, e.g. ``Provider a: the upload of image b``.
    :param seconds: the limit.
    :param stopped: ends all waiting.
    :param wanted: asked at least once in `WANTED_SECONDS` between looks; what it raises ends them.
    """

    def __init__(
        self,
        what: str,
        seconds: float,
        stopped: threading.Event,
        clock: Callable[[], float] = monotonic,
        wanted: Callable[[], None] = lambda: None,
    ) -> None:
        self._what = what
        self._seconds = seconds
        self._stopped = stopped
        self._clock = clock
        self._wanted = wanted
        self._limit = TimeLimit(seconds, held_here(clock), clock)

    def check(self) -> None:
        """:raises ImageCreateException: it is over, or the provider was stopped. Does not block."""
        if self._stopped.is_set():
            raise ImageCreateException(f"{self._what} ended, because the provider was stopped")
        if self.left() <= 0:
            raise self.over()

    def left(self) -> float:
        """Seconds; may be negative."""
        return self._limit.left

    def over(self) -> ImageCreateException:
        """What to raise when it is."""
        return ImageCreateException(f"{self._what} took more than {self._seconds:g} s")

    def wait(self, seconds: float) -> bool:
        """Block for a while. False = there is no time for that, or the provider was stopped."""
        return self.left() > seconds and not self._stopped.wait(seconds)

    def looks(self, seconds: float | None = None) -> Iterator[None]:
        """Times to look: now, and after growing pauses until it is over. Raises what ``wanted`` does.

        :param seconds: or until these are.
        """
        part = self._limit if seconds is None else TimeLimit(seconds, held_here(self._clock), self._clock)
        for looks in itertools.count(1):
            yield
            pause = LOOK.pause(looks)
            if min(part.left, self.left()) <= pause or not wait_wanted(pause, self._stopped, self._wanted):
                return


def wait_wanted(seconds: float, stopped: threading.Event, wanted: Callable[[], None]) -> bool:
    """Block for a while. Raises what ``wanted`` does, which is asked once in `WANTED_SECONDS`.

    :return: False = the provider was stopped.
    """
    left = seconds
    while left > 0:
        if stopped.wait(min(WANTED_SECONDS, left)):
            return False
        wanted()
        left -= WANTED_SECONDS
    return True
