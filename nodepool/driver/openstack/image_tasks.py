# SPDX-License-Identifier: Apache-2.0
"""Uploads to clouds that take images only through their object storage (clouds.yaml: ``image_api_use_tasks: true``).

openstacksdk does it: the file becomes an object (in segments, if it is large), a task of Glance makes an image of it,
the properties are set, and the object is deleted. The builder hears how far the object is, and can give the upload up
until the task begins: Glance has no means to end a task, and the image that it makes must be deleted then.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from nodepool.driver.framework import uploads
from nodepool.driver.framework.cloud_errors import CloudNotFound, one_line
from nodepool.driver.framework.uploads import UploadGivenUp
from nodepool.driver.openstack.images import REPORT_BYTES, UPLOAD_KEYS, Content, api_properties, wrong
from nodepool.exceptions import ImageCreateException, LaunchError
from nodepool.guard import Guard

if TYPE_CHECKING:
    from openstack.config.cloud_region import CloudRegion

    from nodepool.driver.openstack.api import Api

log = logging.getLogger("nodepool.driver.openstack.images")

#: Of the objects in Swift; the SDK's own default.
_CONTAINER: Final = "images"


class TaskUploads:
    """Uploads of one provider. All methods block.

    :param api: for what is left to clean up.
    """

    def __init__(self, provider: str, api: Api) -> None:
        self.provider = provider
        self._api = api

    def upload(
        self,
        region: CloudRegion,
        name: str,
        filename: str,
        image_format: str,
        properties: Mapping[str, Any],
        checksums: Mapping[str, str | None],
        timeout: float,
    ) -> str:
        """Upload a file; returns the id of the image. What a failed upload leaves is deleted.

        :param name: unique.
        :param properties: of the image.
        :param checksums: ``md5`` and ``sha256`` of the file; computed where None.
        :param timeout: seconds for the task of Glance.
        :raises ImageCreateException: it took too long, or the cloud cannot use the image.
        :raises UploadGivenUp: nobody wants it any more.
        """
        sent = SentData(os.path.getsize(filename))
        try:
            image_id = _imported(region, name, filename, checksums, timeout, sent)
            # The SDK leaves those out that are no texts of its own.
            self._api.set_image_properties(image_id, api_properties(properties))
            with open(filename, "rb") as file:
                problem = wrong(self._api.image(image_id), image_format, Content(file), checksums)
        except Exception as error:
            # Whatever the SDK, a cloud or the builder ended it with: nothing may be left.
            _discard_objects(region, name)
            self._discard(name, properties)
            if sent.given_up is not None:
                raise sent.given_up from None
            # Of a task that failed; the error itself does not say why.
            said = getattr(getattr(error, "extra_data", None), "message", None)
            reason = one_line(f"{type(error).__name__}: {error} {said or ''}")
            raise ImageCreateException(
                f"Provider {self.provider}: image {name} was not imported by a task: {reason}; does the cloud have "
                "object storage, and may its user run tasks? Else set image_api_use_tasks to false in clouds.yaml"
            ) from error
        if problem:
            self._discard(name, properties)
            raise ImageCreateException(
                f"Provider {self.provider}: image {name} did not arrive as it was sent: {problem}"
            )
        return image_id

    def _discard(self, name: str, properties: Mapping[str, Any]) -> None:
        """A task may have made the image, but it has none of our properties: nobody would find it."""
        try:
            for image in self._api.images(name=name):
                # One of another upload may have the same name.
                if all(image.properties.get(key, properties.get(key)) == properties.get(key) for key in UPLOAD_KEYS):
                    self._api.delete_image(image.id)
        except CloudNotFound:
            log.debug("Image %s is gone already", name)
        except LaunchError as error:
            log.warning("Provider %s: image %s may be left over: %s", self.provider, name, error)


def _imported(
    region: CloudRegion,
    name: str,
    filename: str,
    checksums: Mapping[str, str | None],
    timeout: float,
    sent: SentData,
) -> str:
    """Send the file, and wait for the task; returns the id of the image. After an error nothing is sent any more."""
    from openstack.connection import Connection

    with Connection(config=region) as connection:
        if connection.has_service("object-store"):
            storage = connection.object_store
            # The library has no hook for it. All bytes of objects go through this method.
            storage.put = sent.watch(storage.put)  # type: ignore[method-assign]
        image = connection.image.create_image(
            name,
            filename=filename,
            md5=checksums.get("md5"),
            sha256=checksums.get("sha256"),
            container=_CONTAINER,
            allow_duplicates=True,
            wait=True,
            timeout=timeout,
        )
    return str(image.id)


def _discard_objects(region: CloudRegion, name: str) -> None:
    """Delete the object and the segments that an upload has left. What stays is deleted by the cloud a day later."""
    from openstack.connection import Connection

    # It runs after an error, which says more than one of the clean-up.
    with (
        Guard(log, "Objects of image %s may be left over", name, level=logging.WARNING, traceback=False),
        Connection(config=region) as connection,
    ):
        if connection.has_service("object-store"):
            connection.object_store.delete_object(name, container=_CONTAINER)
            # The slash: other images may have names that begin with this one.
            connection.delete_autocreated_image_objects(_CONTAINER, f"{name}/")


# Informs the builder how far openstacksdk is with a file that it sends, maybe in several parts at once.


class Readable(Protocol):
    """What the library would send: an open file, or a part of one."""

    def read(self, size: int = -1, /) -> bytes: ...

    def seek(self, offset: int, whence: int = 0, /) -> Any: ...

    def tell(self) -> int: ...


class SentData:
    """Counts the bytes of one file. ``_lock`` guards the counts; ``_telling`` is held while the builder is notified.

    :param size: of the file, in bytes.
    """

    def __init__(self, size: int) -> None:
        #: Why nobody wants the upload any more. The library makes another error of it.
        self.given_up: UploadGivenUp | None = None
        self._size = size
        self._report = uploads.reporter()
        self._lock = threading.Lock()
        self._telling = threading.Lock()
        self._sent = self._told = 0

    def watch(self, put: Callable[..., Any]) -> Callable[..., Any]:
        """A function that sends what another one sends, and counts it on the way.

        :param put: ``data`` is the body: a file, or something that is not counted.
        """

        def counted(*args: Any, data: Any = None, **named: Any) -> Any:
            return put(*args, data=SentPart(data, self._add) if hasattr(data, "read") else data, **named)

        return counted

    def _add(self, count: int) -> None:
        """Any thread. Raises UploadGivenUp."""
        with self._lock:
            if self.given_up is not None:
                # Other parts, which were begun or wait for their turn.
                raise self.given_up
            self._sent += count
            if self._sent < self._size and abs(self._sent - self._told) < REPORT_BYTES:
                return
            self._told = self._sent
        try:
            # Of several parts at once none tells an older count after a newer one: that would be another attempt.
            with self._telling:
                self._report(self._sent_now(), self._size)
        except UploadGivenUp as error:
            self.given_up = error
            raise

    def _sent_now(self) -> int:
        with self._lock:
            return self._sent


class SentPart:
    """The body of one request. Who sends it once more goes to its beginning first: those bytes are counted once.

    It has no length and no descriptor on purpose: for libraries the length is the place of its end then.
    """

    def __init__(self, source: Readable, add: Callable[[int], None]) -> None:
        self._source = source
        self._add = add
        self._sent = 0

    def read(self, size: int = -1) -> bytes:
        """Read, and count it. Raises UploadGivenUp."""
        data = self._source.read(size)
        self._sent += len(data)
        self._add(len(data))
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> None:
        """Go to a place. What was read before is not sent."""
        self._source.seek(offset, whence)
        sent, self._sent = self._sent, 0
        if sent:
            self._add(-sent)

    def tell(self) -> int:
        """The place, in bytes."""
        return self._source.tell()
