# SPDX-License-Identifier: Apache-2.0
"""Images of one OpenStack provider (reference/configuration 7, 9; rules U, R-7).

First upload, deletion and list (`OpenStackImages`), then one upload to Glance, its check and its content, then uploads
through object storage.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from nodepool.driver.framework import uploads
from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNotFound,
    CloudQuota,
    CloudRefused,
    LoginRefused,
    NotFoundByProxy,
    one_line,
)
from nodepool.driver.framework.uploads import ImageContent, ImageTime, ListedImage, difference
from nodepool.driver.openstack.api import Api, Image, text_of
from nodepool.driver.statemachine.adapter import CloudImages, ImageFile
from nodepool.exceptions import ImageCreateException, LaunchError
from nodepool.guard import Guard, OnError
from nodepool.plan.retries import Backoff

if TYPE_CHECKING:
    from openstack.config.cloud_region import CloudRegion

    from nodepool.driver.openstack.config import OpenStackProviderConfig

log = logging.getLogger("nodepool.driver.openstack.images")

#: How long to wait for an image to be deleted. Who calls tries again.
DELETE_SECONDS: Final = 600.0
#: Entries of a page of a list of images; Glance gives 25 of itself, and as a rule at most so many.
PAGE: Final = "1000"


class OpenStackImages(CloudImages):
    """Images of one provider. All methods block; what ends the provider's calls ends all waiting.

    :param vendor: properties of all images: no agent of the cloud's vendor is in them.
    """

    def __init__(self, config: OpenStackProviderConfig, api: Api, vendor: Mapping[str, Any]) -> None:
        self.provider = config.name
        self._config = config
        self._api = api
        self._vendor = vendor

    def _time(self, what: str, seconds: float, wanted: Callable[[], None] = lambda: None) -> ImageTime:
        return ImageTime(f"Provider {self.provider}: {what}", seconds, self._api.transport.stopped, wanted=wanted)

    # -- upload --

    def upload(self, file: ImageFile) -> str:
        """Upload a file; returns the id of the image. After an error the image is deleted.

        :raises ImageCreateException: it took too long, or the cloud cannot use the image.
        :raises LaunchError: the cloud refused it, or is away.
        :raises OSError: the file cannot be read.
        """
        marks = file.metadata
        # U-4: what says whose it is wins over everything.
        ours = {key: value for key, value in marks.items() if key.startswith("nodepool_")}
        properties = {**checksum_properties(file), **marks, **file.image.meta, **self._vendor, **ours}
        send = self._by_task if self._config.uses_tasks else self._to_glance
        return send(file, file.format or self._config.image_type, api_properties(properties))

    def _to_glance(self, file: ImageFile, image_format: str, properties: Mapping[str, Any]) -> str:
        time = self._time(f"the upload of image {file.name}", self._config.image_upload_timeout, uploads.checker())
        ours = {"name": file.name, "disk_format": image_format}
        body = {"container_format": "bare", "visibility": "private", **properties, **ours}
        with open(file.path, "rb") as opened:
            return GlanceUpload(self._api, body, Content(opened, time.check), checksums_of(file), time).run()

    def _by_task(self, file: ImageFile, image_format: str, properties: Mapping[str, Any]) -> str:
        """The same by way of object storage, of which a task of Glance makes an image (clouds.yaml:
        ``image_api_use_tasks: true``).
        """
        name, region = file.name, self._api.transport.region
        try:
            image_id = _imported(region, file, self._config.image_upload_timeout)
            # The SDK leaves those out that are no texts of its own.
            self._api.set_image_properties(image_id, properties)
            with open(file.path, "rb") as opened:
                problem = wrong(self._api.image(image_id), image_format, Content(opened), checksums_of(file))
        except Exception as error:
            # Whatever the SDK, a cloud or the builder ended it with: nothing may be left.
            _discard_objects(region, name)
            self._discard_unmarked(name, properties)
            # Of a task that failed; the error itself does not say why.
            said = getattr(getattr(error, "extra_data", None), "message", None)
            reason = one_line(f"{type(error).__name__}: {error} {said or ''}")
            raise ImageCreateException(
                f"Provider {self.provider}: image {name} was not imported by a task: {reason}; does the cloud have "
                "object storage, and may its user run tasks? Else set image_api_use_tasks to false in clouds.yaml"
            ) from error
        if problem:
            self._discard_unmarked(name, properties)
            raise ImageCreateException(
                f"Provider {self.provider}: image {name} did not arrive as it was sent: {problem}"
            )
        return image_id

    def _discard_unmarked(self, name: str, properties: Mapping[str, Any]) -> None:
        """A task may have made the image, but it has none of our properties: no one would find it."""
        try:
            for image in self._api.images(name=name):
                # One of another upload may have the same name.
                if all(image.properties.get(key, properties.get(key)) == properties.get(key) for key in UPLOAD_KEYS):
                    self._api.delete_image(image.id)
        except CloudNotFound:
            log.debug("Image %s does not exist any more", name)
        except LaunchError as error:
            log.warning("Provider %s: image %s may be left over: %s", self.provider, name, error)

    # -- deletion --

    def delete(self, image_id: str) -> None:
        """Delete an image and wait until it does not exist any more; one that is not there is no error.

        :raises ImageCreateException: it is in use, it is protected and must not be unprotected, or it does not go.
        :raises LaunchError: the cloud refused it, or is away.
        """
        try:
            self._order_deletion(image_id)
            for _ in self._time(f"the deletion of image {image_id}", DELETE_SECONDS).looks():
                if self._api.image(image_id).status in ("deleted", "pending_delete"):
                    return
        except CloudNotFound:
            return
        except NotFoundByProxy:
            # A list is no page of a proxy: only that shows that the image does not exist any more.
            if all(image.id != image_id for image in self._all()):
                return
            raise
        raise ImageCreateException(f"Provider {self.provider}: image {image_id} is still there")

    def _order_deletion(self, image_id: str) -> None:
        """Raises CloudNotFound: it is not there any more."""
        try:
            self._api.delete_image(image_id)
        except CloudRefused as error:
            if error.status == 403 and self._unprotect(image_id, error):
                self._api.delete_image(image_id)
            elif error.status == 409:
                raise ImageCreateException(
                    f"Provider {self.provider}: image {image_id} cannot be deleted while it is in use: {error.said}"
                ) from error
            else:
                raise

    def _unprotect(self, image_id: str, error: CloudRefused) -> bool:
        """Take away the protection of an image that is not to be kept. False = it has none."""
        if self._api.image(image_id).properties.get(PROTECTED) is not True:
            return False
        log.warning("Provider %s: image %s is protected. It is unprotected, to be deleted", self.provider, image_id)
        try:
            self._api.set_image_properties(image_id, {PROTECTED: False}, replace=True)
        except CloudNotFound:
            raise
        except CloudRefused as refused:
            raise ImageCreateException(
                f"Provider {self.provider}: image {image_id} is protected, and cannot be unprotected: {refused.said}; "
                "have it unprotected"
            ) from error
        return True

    # -- list --

    def listed(self) -> Iterator[ListedImage]:
        """Images with metadata of ours, unfinished and hidden ones, too. Private ones without where tasks make images:
        they are marked only afterwards.
        """
        seen, unmarked = set[str](), self._config.uses_tasks
        for image in self._all():
            told = image.properties
            marked = any(key in told for key in UPLOAD_KEYS) or (unmarked and told.get("visibility") == "private")
            if marked and image.id not in seen:
                seen.add(image.id)
                texts = {key: text for key, text in told.items() if isinstance(text, str)}
                yield ListedImage(image.id, image.name, texts, usable=image.status not in ("queued", "saving"))

    def _all(self) -> Iterator[Image]:
        """Visible images; one may come twice."""
        # Lists of Glance leave out hidden images, unless they are asked for.
        for filters in ({}, {"os_hidden": "true"}):
            yield from self._api.images(limit=PAGE, **filters)


# One upload to Glance: the record of an image, its data, and what goes wrong in between.
#
# Glance resumes nothing. An image whose data broke off waits for them again as a rule (``queued``); then they are sent
# once more, else it is deleted, and another one is made.

#: How often data are sent, or an image that no one needs is deleted; and the pauses in between.
ATTEMPTS: Final = 4
AGAIN: Final = Backoff(1.0, 30.0)
#: For so long an image is looked at whose data broke off, so that the cloud notices it; and one that has got all of
#: them, but whose answer was lost: the cloud may be busy with them still.
NOTICE_SECONDS: Final = 10.0
SETTLE_SECONDS: Final = 300.0
#: Longest time in which the cloud takes no further piece of the data.
STALL_SECONDS: Final = 300.0
#: States of an image that cannot become usable any more.
_DEAD: Final = frozenset({"killed", "deleted", "pending_delete", "error", "deactivated"})
#: The state in which Glance takes data, or has not noticed yet that they broke off.
_RECEIVING: Final = "saving"


class GlanceUpload:
    """One upload. All methods block.

    :param body: of the record of the image.
    :param content: of the image.
    :param checksums: of the file, as far as they are known: algorithm -> hexadecimal digits.
    """

    def __init__(
        self, api: Api, body: Mapping[str, Any], content: Content, checksums: Mapping[str, str], time: ImageTime
    ) -> None:
        self._head = f"Provider {api.transport.provider}: image {body['name']}"
        self._api = api
        # Only one that is of use: the others must be deleted.
        self._body = {key: value for key, value in body.items() if key != PROTECTED}
        self._protected = body.get(PROTECTED) is True
        self._content = content
        self._checksums = checksums
        self._time = time
        #: Of the image that was made; "" = there is none.
        self._image_id = ""
        self._status = ""

    def run(self) -> str:
        """Upload it; returns the id of the image. After an error nothing is left in the cloud, if it lets us.

        :raises ImageCreateException: it took too long, or the cloud cannot use the image.
        :raises LaunchError: the cloud refused it, or is away.
        :raises OSError: the file cannot be read.
        """
        with OnError(lambda _: self._discard()):
            try:
                image = self._arrived()
            except CloudRefused as error:
                if error.status == 413 or isinstance(error, CloudQuota):
                    raise self._no_room(error) from error
                raise
            problem = wrong(image, str(self._body["disk_format"]), self._content, self._checksums)
            if problem:
                raise ImageCreateException(f"{self._head} did not arrive as it was sent: {problem}")
            if self._protected:
                self._api.set_image_properties(image.id, {PROTECTED: True}, replace=True)
        return image.id

    def _arrived(self) -> Image:
        attempt = 1
        while True:
            try:
                self._send()
                return self._wait_active()
            except (CloudAway, CloudRefused) as error:
                if attempt == ATTEMPTS or not _passes(error) or not self._time.wait(AGAIN.pause(attempt)):
                    raise
                log.warning("%s: attempt %s of the upload broke off: %s", self._head, attempt, error)
            attempt += 1
            self._settle()

    def _send(self) -> None:
        """What is still to be done of it."""
        if not self._image_id:
            # Who took the upload for abandoned has looked for its images, and may look no more.
            uploads.check()
            self._image_id = self._api.create_image(self._body).id
            self._status = "queued"
        if self._status == "queued":
            timeout = (min(STALL_SECONDS, max(1.0, self._time.left())), max(1.0, self._time.left()))
            self._api.upload_image_data(self._image_id, self._content, timeout)
            self._status = _RECEIVING

    def _settle(self) -> None:
        """After an error: what has become of the image? Leaves one that `_send` can go on with, or none."""
        if not self._image_id:
            self._find_created()
            return
        for _ in self._time.looks(SETTLE_SECONDS if self._content.complete else NOTICE_SECONDS):
            try:
                self._status = self._api.image(self._image_id).status
            except CloudNotFound:
                self._image_id = ""
                return
            except CloudAway as error:
                log.debug("%s: %s", self._head, error)
                continue
            if self._status != _RECEIVING:
                break
        if self._status in _DEAD or self._status == _RECEIVING:
            self._discard()

    def _find_created(self) -> None:
        """A creation that was not answered may have made an image."""
        for image in self._api.images(name=str(self._body["name"])):
            same = all(image.properties.get(key) == self._body.get(key) for key in UPLOAD_KEYS)
            if image.status == "queued" and same:
                self._image_id, self._status = image.id, image.status
                return

    def _wait_active(self) -> Image:
        for _ in self._time.looks():
            image = self._api.image(self._image_id)
            if image.status == "active":
                return image
            if image.status in _DEAD:
                raise ImageCreateException(f"{self._head} has become {image.status}")
        self._time.check()
        raise self._time.over()

    def _no_room(self, error: CloudRefused) -> CloudQuota:
        size = f"{self._content.size / 2**20:.1f} MiB"
        text = f"{self._head} ({size}) was refused: {error.said}; delete images there, or have the quota raised"
        return CloudQuota(text, error.status)

    def _discard(self) -> None:
        """Delete what was made. What cannot be deleted has our metadata, by which the builder finds it."""
        image_id, self._image_id = self._image_id, ""
        if not image_id:
            return
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._api.delete_image(image_id)
                return
            except CloudNotFound:
                return
            except LaunchError as error:
                log.warning("%s: %s, which is of no use, could not be deleted: %s", self._head, image_id, error)
            if attempt == ATTEMPTS or not self._time.wait(AGAIN.pause(attempt)):
                return


def _passes(error: LaunchError) -> bool:
    """May the same work soon? 409: the cloud has not noticed yet that the attempt before broke off."""
    if isinstance(error, CloudRefused):
        return error.status == 409 and not isinstance(error, CloudQuota)
    return not isinstance(error, LoginRefused)


# Is an image in the cloud what was sent? (rules U-9, U-14)

#: What is made of a file when the cloud tells nothing that is known of it; the quickest first.
_ALGORITHMS: Final = ("sha256", "md5", "sha512", "sha1", "sha384")


def stored_content(image: Image) -> ImageContent:
    """What Glance says of the bytes of an image."""
    told = image.properties
    size, algorithm = told.get("size"), told.get("os_hash_algo")
    checksums = {"md5": text_of(told.get("checksum"))}
    if isinstance(algorithm, str):
        checksums[algorithm.lower().replace("-", "")] = text_of(told.get("os_hash_value"))
    return ImageContent.of(size if isinstance(size, int) and not isinstance(size, bool) else None, **checksums)


def wrong(image: Image, image_format: str, content: Content, checksums: Mapping[str, str]) -> str | None:
    """What is wrong with an image in the cloud, for people; None = it is as it was sent, as far as the cloud tells.

    The file is read only if the cloud tells no checksum that is known. Blocks then.

    :param image_format: of the file.
    :param content: the file.
    :param checksums: what is known of the file: algorithm -> hexadecimal digits.
    :raises OSError: the file cannot be read.
    """
    stored = stored_content(image)
    made = text_of(image.properties.get("disk_format"))
    if made not in (None, image_format):
        # A conversion has other bytes.
        text = f"the cloud says that it has made an image of format {made} of it, but one without content"
        return None if stored.size else text
    sent = ImageContent.of(content.size, **checksums)
    if stored.size == sent.size and not sent.checksums.keys() & stored.checksums.keys():
        algorithm = next(
            (one for one in _ALGORITHMS if one in stored.checksums and one in hashlib.algorithms_available), ""
        )
        if algorithm:
            sent = ImageContent(sent.size, {algorithm: content.checksum(algorithm)})
    return difference(sent, stored)


# What is sent of an image: the bytes of its file, and its properties (rules U-4, U-5).

#: What is read and sent at a time. It stays in the processor's cache from the one to the other: with pieces of 1 MiB an
#: upload over a fast link reaches 60% of the rate.
CHUNK_BYTES: Final = 256 * 1024
#: Properties that say of which upload an image is (D-1).
UPLOAD_KEYS: Final = ("nodepool_provider_name", "nodepool_build_id", "nodepool_upload_id")
#: Attributes of the image itself that are no texts in the API.
_NUMBERS: Final = frozenset({"min_disk", "min_ram"})
PROTECTED: Final = "protected"
_FLAGS: Final = frozenset({PROTECTED, "os_hidden"})
_LISTS: Final = frozenset({"tags"})


class Content:
    """A file as the body of a request; its length is given beforehand, and how far it is to the builder.

    It can be sent again from its beginning: the cloud may put off a request, or want a new token for it. It has no
    ``read`` and no ``tell`` on purpose: libraries would go by the place that an attempt before has left.

    :param file: not closed by it.
    :param check: called before each piece; what it raises ends the request.
    """

    def __init__(self, file: BinaryIO, check: Callable[[], None] = lambda: None) -> None:
        self.size = os.fstat(file.fileno()).st_size
        #: Were all bytes taken, the last time that they were asked for?
        self.complete = False
        self._file = file
        self._check = check
        self._report = uploads.reporter()

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[bytes]:
        """:raises ImageCreateException: the file cannot be read, or another length was given."""
        sent = 0
        self.complete = False
        try:
            for chunk in self._chunks():
                sent += len(chunk)
                if sent > self.size:
                    break
                yield chunk
                self.complete = sent == self.size
                self._report(sent, self.size)
        except OSError as error:
            # For libraries it would be one of the connection.
            raise ImageCreateException(f"the image file cannot be read: {error}") from error
        if sent != self.size:
            raise ImageCreateException("the image file has changed its size while it was uploaded")

    def _chunks(self) -> Iterator[bytes]:
        self._file.seek(0)
        while chunk := self._file.read(CHUNK_BYTES):
            self._check()
            yield chunk

    def checksum(self, algorithm: str) -> str:
        """Of the whole file, which is read for it. Blocks.

        :param algorithm: that the cloud has chosen.
        :raises OSError: it cannot be read.
        """
        found = hashlib.new(algorithm, usedforsecurity=False)
        for chunk in self._chunks():
            found.update(chunk)
        return found.hexdigest()


def api_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties as Glance wants them."""
    return {key: _property(key, value) for key, value in properties.items()}


def _property(key: str, value: Any) -> Any:
    if key in _NUMBERS:
        return int(value)
    if key in _FLAGS:
        return str(value).lower() == "true"
    if key in _LISTS and isinstance(value, list):
        return [str(item) for item in value]
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def checksums_of(file: ImageFile) -> dict[str, str]:
    """As far as they are known: algorithm -> hexadecimal digits."""
    return {name: found for name, found in (("md5", file.md5), ("sha256", file.sha256)) if found}


def checksum_properties(file: ImageFile) -> dict[str, str]:
    """Properties in which openstacksdk's users look for checksums (U-5)."""
    known = checksums_of(file)
    if known:
        known["object"] = f"images/{file.name}"
    return {f"owner_specified.openstack.{key}": value for key, value in known.items()}


# Uploads to clouds that take images only through their object storage (clouds.yaml: ``image_api_use_tasks: true``).
#
# openstacksdk does it: the file becomes an object (in segments, if it is large), a task of Glance makes an image of it,
# the properties are set, and the object is deleted.

#: Of the objects in Swift; the SDK's own default.
_CONTAINER: Final = "images"


def _imported(region: CloudRegion, file: ImageFile, timeout: float) -> str:
    """Send the file, and wait for the task; returns the id of the image. After an error nothing is sent any more."""
    from openstack.connection import Connection

    known = {"md5": file.md5, "sha256": file.sha256}
    given: dict[str, Any] = {**known, "container": _CONTAINER, "allow_duplicates": True}
    with Connection(config=region) as connection:
        image = connection.image.create_image(file.name, filename=file.path, wait=True, timeout=timeout, **given)
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
