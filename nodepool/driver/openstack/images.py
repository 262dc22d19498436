# SPDX-License-Identifier: Apache-2.0
"""Upload and deletion of images (reference/configuration 7, 9; rules U)."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from nodepool.clock import monotonic
from nodepool.driver.openstack.errors import CloudNotFound
from nodepool.driver.openstack.views import Image
from nodepool.exceptions import ImageCreateException, LaunchError
from nodepool.guard import OnError
from nodepool.plan.backoff import Backoff

if TYPE_CHECKING:
    from nodepool.driver.openstack.api import Api

log = logging.getLogger("nodepool.driver.openstack.images")

CHUNK_BYTES: Final = 1024 * 1024
#: Between two looks at an image that the cloud works on.
LOOK: Final = Backoff(0.5, 10.0, factor=1.5)
#: How long to wait for an image to be gone.
DELETE_SECONDS: Final = 600.0
#: States of an image that cannot become usable any more.
_DEAD: Final = frozenset({"killed", "deleted", "pending_delete", "error", "deactivated"})
#: Properties that are no texts in the API.
_NUMBERS: Final = frozenset({"min_disk", "min_ram"})


class OpenStackImages:
    """Images of one provider. All methods block.

    :param stopped: ends all waiting.
    """

    def __init__(
        self, provider: str, api: Api, stopped: threading.Event, clock: Callable[[], float] = monotonic
    ) -> None:
        self.provider = provider
        self._api = api
        self._stopped = stopped
        self._clock = clock

    def upload(self, name: str, filename: str, image_format: str, properties: Mapping[str, Any], timeout: float) -> str:
        """Upload a file; returns the id of the image. After an error the image is deleted.

        :param properties: of the image; texts, but for ``min_disk`` and ``min_ram``.
        :param timeout: seconds for everything.
        :raises ImageCreateException: it took too long, or the cloud cannot use the image.
        :raises LaunchError: the cloud refused it, or is away.
        :raises OSError: the file cannot be read.
        """
        deadline = self._clock() + timeout
        body = {
            **api_properties(properties),
            "name": name,
            "disk_format": image_format,
            "container_format": "bare",
            "visibility": "private",
        }
        with open(filename, "rb") as file:
            content = Content(file, lambda: self._check_time(deadline, name))
            image = self._api.create_image(body)
            with OnError(lambda _: self._discard(image.id)):
                self._api.upload_image_data(image.id, content, timeout)
                self._check_size(self._wait_active(image.id, name, deadline), len(content), name)
        return image.id

    def delete(self, image_id: str) -> None:
        """Delete an image and wait until it is gone; one that is gone already is no error."""
        deadline = self._clock() + DELETE_SECONDS
        try:
            self._api.delete_image(image_id)
            for _ in self._looks(deadline):
                if self._api.image(image_id).status in ("deleted", "pending_delete"):
                    return
        except CloudNotFound:
            return
        raise ImageCreateException(f"Provider {self.provider}: image {image_id} is still there")

    def _check_time(self, deadline: float, name: str) -> None:
        if self._clock() >= deadline or self._stopped.is_set():
            raise ImageCreateException(f"Provider {self.provider}: image {name} was not uploaded in time")

    def _check_size(self, image: Image, size: int, name: str) -> None:
        """An image that is cut off boots no node, and nobody would know why."""
        arrived = image.properties.get("size")
        if isinstance(arrived, int) and arrived != size:
            raise ImageCreateException(
                f"Provider {self.provider}: of image {name} only {arrived} of {size} bytes are in the cloud"
            )

    def _wait_active(self, image_id: str, name: str, deadline: float) -> Image:
        for _ in self._looks(deadline):
            image = self._api.image(image_id)
            if image.status == "active":
                return image
            if image.status in _DEAD:
                raise ImageCreateException(f"Provider {self.provider}: image {name} has become {image.status}")
        raise ImageCreateException(f"Provider {self.provider}: image {name} was not usable in time")

    def _looks(self, deadline: float) -> Iterator[None]:
        """Times to look, until time is up."""
        for looks in itertools.count(1):
            yield
            pause = LOOK.pause(looks)
            if self._clock() + pause >= deadline or self._stopped.wait(pause):
                return

    def _discard(self, image_id: str) -> None:
        try:
            self._api.delete_image(image_id)
        except CloudNotFound:
            log.debug("Image %s is gone already", image_id)
        except LaunchError as error:
            # It is unfinished and has our metadata: the search for leaks comes by.
            log.warning("Provider %s: image %s could not be deleted: %s", self.provider, image_id, error)


class Content:
    """A file as the body of a request; its length is told beforehand.

    It can be sent again from its beginning: the cloud may put off a request, or want a new token for it.

    :param check: called before each piece; what it raises ends the request.
    """

    def __init__(self, file: BinaryIO, check: Callable[[], None]) -> None:
        self._file = file
        self._check = check
        self._size = os.fstat(file.fileno()).st_size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(0)
        while chunk := self._file.read(CHUNK_BYTES):
            self._check()
            yield chunk


def api_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties as Glance wants them."""
    return {key: _property(key, value) for key, value in properties.items()}


def _property(key: str, value: Any) -> Any:
    if key in _NUMBERS:
        return int(value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def checksums(name: str, md5: str | None, sha256: str | None) -> dict[str, str]:
    """Properties in which openstacksdk's users look for checksums (U-5)."""
    known = {"md5": md5, "sha256": sha256, "object": f"images/{name}" if md5 or sha256 else None}
    return {f"owner_specified.openstack.{key}": value for key, value in known.items() if value}
