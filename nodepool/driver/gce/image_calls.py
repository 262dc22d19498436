# SPDX-License-Identifier: Apache-2.0
"""`GceImageCalls`: the calls that an upload makes: to Cloud Storage, and for images of Compute Engine."""

from __future__ import annotations

import re
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudRefused
from nodepool.driver.framework.http.rest_calls import same_server
from nodepool.driver.framework.image_time import ImageTime
from nodepool.driver.gce import types as t
from nodepool.driver.gce.client import CALL_SECONDS, IMAGE, MOST_PAGES, ComputeEngine
from nodepool.driver.gce.config import STORAGE_ENDPOINT
from nodepool.driver.gce.errors import operation_failure
from nodepool.exceptions import ImageCreateException

if TYPE_CHECKING:
    from nodepool.driver.framework.http.rest_calls import RestAnswer

T = TypeVar("T")

#: Class of the calls of Cloud Storage, which takes thousands a second.
STORAGE: Final = "storage"
#: Longest time for one operation.
OPERATION_SECONDS: Final = 1800.0
PIECE_SECONDS: Final = 120.0
#: Attempts of a call that may be sent again.
ATTEMPTS: Final = 3
_KEPT: Final = re.compile(r"bytes=0-(\d+)", re.IGNORECASE)
#: An operation that is not there for so many looks is none.
UNSEEN_LOOKS: Final = 4
#: Status of a piece of an upload that has more pieces.
_MORE: Final = 308


class GceImageCalls:
    """All methods block; any thread may call them. They raise what `nodepool.driver.framework.cloud_errors` has.

    :param bucket: for uploads.
    :param endpoint: address of Cloud Storage.
    """

    def __init__(
        self, client: ComputeEngine, bucket: str, endpoint: str, clock: Callable[[], float] = monotonic
    ) -> None:
        self.client = client
        self.bucket = bucket
        self._endpoint = endpoint
        self._clock = clock

    @property
    def stopped(self) -> threading.Event:
        """Set when the provider was stopped."""
        return self.client.calls.stopped

    # -- objects --

    def begin_object(self, name: str, metadata: Mapping[str, str]) -> str:
        """Begin an upload; returns the address of its pieces, which nobody may see: it needs no login."""
        url = f"{self._endpoint}/upload/storage/v1/b/{_quoted(self.bucket)}/o"
        body = {"name": name, "contentType": "application/gzip", "metadata": dict(metadata)}
        what = "beginning an upload"
        query = {"uploadType": "resumable", "name": name}
        answer = self._again(lambda: self._call("POST", url, what, body=body, query=query))
        where = answer.headers.get("Location") or ""
        if not self.is_address(where):
            raise CloudAway(f"Provider {self.client.calls.provider}: {what} failed: no address at {self._endpoint}")
        return where

    def is_address(self, where: object) -> bool:
        """Is it one of Cloud Storage? No other host is to see our token."""
        return same_server(where, self._endpoint)

    def send_piece(self, where: str, offset: int, data: bytes, last: bool) -> tuple[int, Mapping[str, Any] | None]:
        """Send a piece of an object.

        :param where: what `begin_object` returned.
        :param last: the object ends with it.
        :return: how many bytes of the object are stored; and the object, when it is complete.
        """
        end = offset + len(data)
        total = str(end) if last else "*"
        span = f"{offset}-{end - 1}" if data else "*"
        return self._stored(where, f"bytes {span}/{total}", data)

    def stored(self, where: str) -> tuple[int, Mapping[str, Any] | None]:
        """How many bytes of an object are stored, after an error."""
        return self._stored(where, "bytes */*", b"")

    def stored_before(self, where: str) -> tuple[int, Mapping[str, Any] | None]:
        """The same of an upload that was interrupted; raises CloudRefused if Google knows it no more."""
        return self._again(lambda: self.stored(where))

    def object(self, name: str) -> Mapping[str, Any]:
        """Name, size and checksum of an object; raises CloudNotFound."""
        query = {"fields": "name,size,md5Hash"}
        data = self._again(lambda: self._call("GET", self._object_url(name), "reading an object", query=query)).data
        return data if isinstance(data, dict) else {}

    def _stored(self, where: str, span: str, data: bytes) -> tuple[int, Mapping[str, Any] | None]:
        answer = self._call(
            "PUT", where, "sending an image", content=data, headers={"Content-Range": span}, seconds=PIECE_SECONDS
        )
        if answer.status != _MORE:
            return 0, answer.data if isinstance(answer.data, dict) else {}
        kept = _KEPT.fullmatch(answer.headers.get("Range") or "")
        return (int(kept[1]) + 1 if kept else 0), None

    def delete_object(self, name: str) -> None:
        """One that is gone is no error."""
        try:
            self._again(lambda: self._call("DELETE", self._object_url(name), "deleting an object"))
        except CloudNotFound:
            return

    def objects(self, prefix: str) -> Iterator[Mapping[str, Any]]:
        """Objects whose names begin so."""
        url = f"{self._endpoint}/storage/v1/b/{_quoted(self.bucket)}/o"
        query = {"prefix": prefix, "fields": "items(name,metadata),nextPageToken"}
        what = "listing objects"
        for _ in range(MOST_PAGES):
            page = self._call("GET", url, what, query=query).data
            items, token = self.client.calls.read(what, _items_and_token, page)
            yield from items
            if not token:
                return
            query["pageToken"] = token
        raise CloudAway(f"Provider {self.client.calls.provider}: {what} failed: the list does not end")

    # -- images --

    def create_image(
        self, name: str, object_name: str, body: Mapping[str, Any], request_id: str, wanted: Callable[[], None]
    ) -> None:
        """Make an image of an object, and wait until its operation is over.

        :param body: more of the image.
        :param wanted: asked while it waits; what it raises ends it.
        """
        source = f"{self._storage()}/{self.bucket}/{urllib.parse.quote(object_name)}"
        whole = {"name": name, "rawDisk": {"source": source}, **body}
        url = self.client.url(f"{self.client.project}/global/images")
        query = {"requestId": request_id}
        what = f"image {name}"
        answer = self._again(
            lambda: self.client.calls.call(
                IMAGE, "POST", url, f"creating {what}", body=whole, query=query, seconds=CALL_SECONDS
            )
        )
        self._finish(answer, what, wanted)

    def delete_image(self, name: str) -> None:
        """Delete an image, and wait until it is gone. One that is gone already is no error."""
        url = self.client.url(self._image_path(name))
        try:
            answer = self._again(
                lambda: self.client.calls.call(IMAGE, "DELETE", url, f"deleting image {name}", seconds=CALL_SECONDS)
            )
            self._finish(answer, f"deletion of image {name}")
        except CloudNotFound:
            return

    def image(self, name: str) -> t.GceImage:
        """An image of the project; raises CloudNotFound."""
        return self.client.image_named(name)

    # -- inside --

    def _image_path(self, name: str) -> str:
        return f"{self.client.project}/global/images/{_quoted(name)}"

    def _storage(self) -> str:
        """Cloud Storage, as Compute Engine knows it.

        All endpoints of googleapis.com, such as those of Private Service Connect, lead to one storage, which Compute
        Engine knows by its public name only. Any other endpoint is that of another cloud, with a storage of its own.
        """
        host = urllib.parse.urlsplit(self._endpoint).hostname or ""
        return STORAGE_ENDPOINT if host.endswith(".googleapis.com") else self._endpoint

    def _object_url(self, name: str) -> str:
        return f"{self._endpoint}/storage/v1/b/{_quoted(self.bucket)}/o/{_quoted(name)}"

    def _call(self, method: str, url: str, what: str, **more: Any) -> RestAnswer:
        return self.client.calls.call(STORAGE, method, url, what, **{"seconds": CALL_SECONDS, **more})

    @staticmethod
    def _again(call: Callable[[], T]) -> T:
        """The same again makes nothing new."""
        for _ in range(ATTEMPTS - 1):
            try:
                return call()
            except CloudAway as error:
                if not error.maybe_done:
                    raise
        return call()

    def _finish(self, answer: RestAnswer, what: str, wanted: Callable[[], None] = lambda: None) -> None:
        """Follow an operation of the project to its end.

        :raises ImageCreateException: it took too long.
        """
        calls = self.client.calls
        where = f"Provider {calls.provider}: {what}"
        data = answer.data if isinstance(answer.data, dict) else {}
        if "name" not in data:
            raise CloudRefused(f"{where} failed: there is no operation")
        operation = t.Operation.of(data)
        time = ImageTime(where, OPERATION_SECONDS, self.stopped, self._clock, wanted)
        unseen = 0
        for _ in time.looks():
            try:
                if not operation.done:
                    operation = self.client.operation_of_project(operation.name, f"waiting for {what}")
            except CloudNotFound as error:
                # The image may be there all the same: that its operation is not yet there proves nothing.
                unseen += 1
                if unseen == UNSEEN_LOOKS:
                    raise CloudAway(str(error)) from error
            if operation.done:
                failure = operation_failure(f"{where} failed", operation.data)
                if failure is not None:
                    raise failure
                return
            wanted()
        time.check()
        raise ImageCreateException(f"{where} took more than {OPERATION_SECONDS:g} s")


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def _items_and_token(page: Any) -> tuple[list[Mapping[str, Any]], str]:
    """Of a page; nothing at all is one without items."""
    whole: Mapping[str, Any] = {} if page is None else page
    return list(whole.get("items") or ()), str(whole.get("nextPageToken") or "")
