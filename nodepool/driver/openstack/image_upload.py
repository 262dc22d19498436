# SPDX-License-Identifier: Apache-2.0
"""One upload to Glance: the record of an image, its data, maybe an import, and what goes wrong in between.

Glance resumes nothing. An image whose data broke off waits for them again as a rule (``queued``); then they are sent
once more, else it is deleted, and another one is made.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.framework import upload_progress
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudQuota, CloudRefused, LoginRefused
from nodepool.driver.openstack.image_check import wrong
from nodepool.driver.openstack.image_content import PROTECTED, UPLOAD_KEYS
from nodepool.driver.openstack.views import Image
from nodepool.exceptions import ImageCreateException, LaunchError
from nodepool.guard import OnError
from nodepool.plan.backoff import Backoff

if TYPE_CHECKING:
    from nodepool.driver.framework.image_time import ImageTime
    from nodepool.driver.openstack.api import Api
    from nodepool.driver.openstack.image_content import Content

log = logging.getLogger("nodepool.driver.openstack.images")

#: How often data are sent, or an image that nobody needs is deleted; and the pauses in between.
ATTEMPTS: Final = 4
AGAIN: Final = Backoff(1.0, 30.0)
#: For so long an image is looked at whose data broke off, so that the cloud notices it; and one that has got all of
#: them, but whose answer was lost: the cloud may be busy with them still.
NOTICE_SECONDS: Final = 10.0
SETTLE_SECONDS: Final = 300.0
#: Longest time in which the cloud takes no further piece of the data.
STALL_SECONDS: Final = 300.0
#: After so many looks at an image that is imported its tasks are asked for, too.
PATIENT_LOOKS: Final = 6
#: The method of Glance's import whose data come from us.
IMPORT_METHOD: Final = "glance-direct"
#: States of an image that cannot become usable any more.
_DEAD: Final = frozenset({"killed", "deleted", "pending_delete", "error", "deactivated"})
#: States in which Glance takes data, or has not noticed yet that they broke off.
_RECEIVING: Final = frozenset({"saving", "uploading"})


class GlanceUpload:
    """One upload. All methods block.

    :param body: of the record of the image.
    :param content: of the image.
    :param checksums: of the file, as far as they are known: algorithm -> hexadecimal digits.
    :param by_import: by way of the staging area, from where Glance imports it, and maybe converts it.
    """

    def __init__(
        self,
        provider: str,
        api: Api,
        body: Mapping[str, Any],
        content: Content,
        checksums: Mapping[str, str | None],
        time: ImageTime,
        by_import: bool,
    ) -> None:
        self._head = f"Provider {provider}: image {body['name']}"
        self._api = api
        # Only one that is of use: the others must be deleted.
        self._body = {key: value for key, value in body.items() if key != PROTECTED}
        self._protected = body.get(PROTECTED) is True
        self._content = content
        self._checksums = checksums
        self._time = time
        self._by_import = by_import
        #: Of the image that was made; "" = there is none.
        self._image_id = ""
        self._status = ""
        self._staged = False

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
            # Whoever took the upload for abandoned has looked for its images, and may look no more.
            upload_progress.check()
            self._image_id = self._api.create_image(self._body).id
            self._status, self._staged = "queued", False
        if self._status == "queued" and not self._staged:
            timeout = (min(STALL_SECONDS, max(1.0, self._time.left())), max(1.0, self._time.left()))
            self._api.upload_image_data(self._image_id, self._content, timeout, staged=self._by_import)
            self._status, self._staged = "uploading" if self._by_import else "saving", self._by_import
        if self._status == "uploading" and self._staged:
            self._api.import_image(self._image_id, IMPORT_METHOD)
            self._status = "importing"

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
            if self._status not in _RECEIVING or self._staged:
                break
        if self._status in _DEAD or (self._status in _RECEIVING and not self._staged):
            self._discard()

    def _find_created(self) -> None:
        """A creation that was not answered may have made an image."""
        for image in self._api.images(name=str(self._body["name"])):
            same = all(image.properties.get(key) == self._body.get(key) for key in UPLOAD_KEYS)
            if image.status == "queued" and same:
                self._image_id, self._status, self._staged = image.id, image.status, False
                return

    def _wait_active(self) -> Image:
        away = 0
        for number, _ in enumerate(self._time.looks()):
            try:
                image = self._api.image(self._image_id)
            except CloudAway as error:
                # An import takes long, and goes on: only several in a row say that the cloud is away.
                away += 1
                if away == ATTEMPTS:
                    raise
                log.debug("%s: %s", self._head, error)
                continue
            away = 0
            if image.status == "active":
                return image
            if image.status in _DEAD:
                raise ImageCreateException(f"{self._head} has become {image.status}")
            if self._staged:
                self._check_import(image, number)
        self._time.check()
        raise self._time.over()

    def _check_import(self, image: Image, looks: int) -> None:
        """The status alone does not tell: an image whose import failed stays ``importing`` as a rule."""
        told = image.properties
        stores = told.get("os_glance_failed_import") and not told.get("os_glance_importing_to_stores")
        over = image.status == "queued" or stores
        if not over and looks < PATIENT_LOOKS:
            return
        why = self._api.image_failures(self._image_id)
        if over or why:
            raise ImageCreateException(f"{self._head} was not imported: {why or 'the cloud does not say why'}")

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
