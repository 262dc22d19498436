# SPDX-License-Identifier: Apache-2.0
"""Images, for drivers whose labels name a ``diskimage`` or a ``cloud-image``.

First their configuration, then an image as a cloud lists it, then how long something about an image may take.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.config import ConfigPool, ImageSettings, LabelSettings
from nodepool.driver.framework.cloud_errors import CloudNotFound
from nodepool.driver.framework.key_schema import Problem, Section, check_of, mappings
from nodepool.driver.framework.rate import TimeLimit, held_here
from nodepool.exceptions import ConfigError, ImageCreateException
from nodepool.model.config_keys import ANY_MAPPING, FILLED_TEXT, FLAG, REQUIRED, TEXT, key, with_default
from nodepool.plan.retries import Backoff

if TYPE_CHECKING:
    from nodepool.config.objects import DiskImage

T = TypeVar("T")


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


class UploadedImage(ImageSettings):
    """The same for drivers in which the entry says how to log in, and the top-level image only the user.

    :param image: the top-level image.
    """

    name: str = key(FILLED_TEXT, REQUIRED, "Of an image in the top-level ``diskimages``.")
    username: str | None = key(
        TEXT.or_null(), None, "Deprecated: it belongs to the top-level image.", default_text="the top-level image's"
    )
    pause: bool = with_default(DiskImageSettings.pause, False)

    def __init__(self, data: dict[str, Any], image: DiskImage) -> None:
        super().__init__(data, username=image.username)


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


# `ImageTime`: how long something about an image may take, and when to look at it.

#: Between two looks at an image that the cloud works on.
LOOK: Final = Backoff(0.5, 10.0, factor=1.5)
#: What is not there for so many looks is not there.
UNSEEN_LOOKS: Final = 4
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
        #: Before the next look, in seconds, as the cloud says; None = it does not.
        self.pause: float | None = None

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
            pause = LOOK.pause(looks) if self.pause is None else min(self.pause, LOOK.longest_seconds)
            if min(part.left, self.left()) <= pause or not wait_wanted(pause, self._stopped, self._wanted):
                return

    def until(self, look: Callable[[], T | None], unseen: int = UNSEEN_LOOKS) -> T:
        """Look until there is something: that. Blocks; asks ``wanted`` after each look.

        :param look: None = not yet. Of what is new CloudNotFound counts only when it was raised ``unseen`` times: not
            each server of a cloud may know it.
        :raises ImageCreateException: it is over, or the provider was stopped.
        """
        for _ in self.looks():
            try:
                found = look()
            except CloudNotFound:
                self.pause = None
                unseen -= 1
                if not unseen:
                    raise
                found = None
            if found is not None:
                return found
            self._wanted()
        self.check()
        raise self.over()


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
