# SPDX-License-Identifier: Apache-2.0
"""The JSON API of Cloud Storage, as far as uploads of images need it.

https://cloud.google.com/storage/docs/performing-resumable-uploads
"""

from __future__ import annotations

import re
from typing import Final

from simulators.base.messages import Answer, ApiError, Json, Request, json_answer
from simulators.base.pages import page
from simulators.gce.cloud import Project
from simulators.gce.errors import error_answer
from simulators.gce.field_mask import masked, read_mask
from simulators.gce.objects import PIECE_BYTES, UploadSession

PREFIX, UPLOAD_PREFIX = "/storage/v1/b/", "/upload/storage/v1/b/"
#: As counters and error rules call the pieces of an upload, and its beginning.
PIECE, BEGIN = "objects.upload", "objects.insert"
_RANGE: Final = re.compile(r"bytes (?:\*|(\d+)-(\d+))/(\*|\d+)")


class GoogleStorageApi:
    """Serves what is below ``/storage/v1`` and ``/upload/storage/v1``."""

    def __init__(self, cloud: Project) -> None:
        self.cloud = cloud

    @staticmethod
    def operation(request: Request) -> str | None:
        """Such as ``objects.get``; None = it is not for the storage."""
        if request.path.startswith(UPLOAD_PREFIX):
            return BEGIN if request.method == "POST" else PIECE
        if not request.path.startswith(PREFIX):
            return None
        parts = request.path.removeprefix(PREFIX).split("/", 2)
        if len(parts) == 1:
            return "buckets.get"
        if parts[1] == "iam":
            return "buckets.testIamPermissions"
        if len(parts) == 2:
            return "objects.list"
        return "objects.delete" if request.method == "DELETE" else "objects.get"

    def serve(self, request: Request) -> Answer:
        """Does it; refusals have Google's shape."""
        operation = self.operation(request)
        assert operation is not None
        upload = operation in (BEGIN, PIECE)
        bucket, _, rest = request.path.removeprefix(UPLOAD_PREFIX if upload else PREFIX).partition("/")
        key = rest.removeprefix("o").removeprefix("/")
        store = self.cloud.objects
        try:
            if operation == BEGIN:
                return self._begin(request, bucket)
            if operation == PIECE:
                return self._piece(request)
            if operation == "buckets.get":
                store.bucket(bucket)
                return json_answer({"kind": "storage#bucket", "id": bucket, "name": bucket, "location": "US"})
            if operation == "buckets.testIamPermissions":
                store.bucket(bucket)
                wanted = request.query.get("permissions", [])
                return json_answer({"kind": "storage#testIamPermissionsResponse", "permissions": wanted})
            if operation == "objects.list":
                return self._list(request, bucket)
            if operation == "objects.delete":
                store.delete(bucket, key)
                return Answer(204)
            data, document = store.get(bucket, key)
            if request.argument("alt") == "media":
                return Answer(200, data, content_type=document["contentType"])
            return json_answer(masked(document, read_mask(request.argument("fields"))))
        except ApiError as error:
            self.cloud.core.events[f"refused {error.kind}"] += 1
            return error_answer(error)

    def _list(self, request: Request, bucket: str) -> Answer:
        prefix = request.argument("prefix")
        names = sorted(name for name in self.cloud.objects.bucket(bucket) if name.startswith(prefix))
        most = int(request.argument("maxResults") or 1000)
        try:
            found, token = page(names, lambda name: name, request.argument("pageToken") or None, most)
        except ValueError:
            raise ApiError(400, "Invalid value for field 'pageToken'.") from None
        content: Json = {"kind": "storage#objects"}
        if found:
            content["items"] = [self.cloud.objects.get(bucket, name)[1] for name in found]
        if token is not None:
            content["nextPageToken"] = token
        return json_answer(masked(content, read_mask(request.argument("fields"))))

    # -- uploads --

    def _begin(self, request: Request, bucket: str) -> Answer:
        given = request.json() if request.body else {}
        key = request.argument("name") or given.get("name", "")
        kind = request.argument("uploadType")
        if not key:
            raise ApiError(400, "Required parameter: name", "required")
        if kind == "media":
            return json_answer(self.cloud.objects.put(bucket, key, request.body, {}))
        if kind != "resumable":
            raise ApiError(400, f"Invalid upload type {kind!r}.", "invalid")
        given.setdefault("contentType", request.headers.get("x-upload-content-type", "application/octet-stream"))
        upload_id = self.cloud.objects.begin(bucket, key, given)
        scheme, host = request.headers.get("x-forwarded-proto", "http"), request.headers.get("host", "127.0.0.1")
        where = f"{scheme}://{host}{UPLOAD_PREFIX}{bucket}/o?uploadType=resumable&upload_id={upload_id}"
        return Answer(200, b"", {"Location": where, "X-GUploader-UploadID": upload_id})

    def _piece(self, request: Request) -> Answer:
        store, upload_id = self.cloud.objects, request.argument("upload_id")
        session = store.session(upload_id)
        if request.method == "DELETE":
            del store.sessions[upload_id]
            return Answer(499)
        if session.made is not None:
            return json_answer(session.made)
        found = _RANGE.fullmatch(request.headers.get("content-range", f"bytes 0-{len(request.body) - 1}/*"))
        whole = "content-range" not in request.headers
        if found is None:
            raise ApiError(400, "Invalid Content-Range.", "badContentRange")
        total = len(request.body) if whole else None if found[3] == "*" else int(found[3])
        if found[1] is not None:
            answer = self._take(request, session, int(found[1]), int(found[2]), total)
            if answer is not None:
                return answer
        if total is None or len(session.data) < total:
            return self._incomplete(session)
        announced = dict(session.document)
        for entry in request.headers.get("x-goog-hash", "").split(","):
            name, _, value = entry.strip().partition("=")
            announced |= {"crc32c": value} if name == "crc32c" else {"md5Hash": value} if name == "md5" else {}
        session.made = store.put(session.bucket, session.key, bytes(session.data), announced)
        session.data = bytearray()
        return json_answer(session.made)

    def _take(
        self, request: Request, session: UploadSession, first: int, last: int, total: int | None
    ) -> Answer | None:
        """Keeps what a piece brings; an answer = it ends here."""
        body, core = request.body, self.cloud.core
        if last - first + 1 != len(body) or first > len(session.data):
            text = f"Invalid request.  There were {len(body)} byte(s) for {first}-{last} after {len(session.data)}."
            raise ApiError(400, text, "badContentRange")
        cut = core.happens(core.knobs.upload_cut_rate, "upload cut")
        short = core.happens(core.knobs.upload_short_rate, "upload short")
        body = body[len(session.data) - first :]
        final = total is not None and last + 1 == total
        if cut or short:
            body = body[: len(body) // 2]
        if cut or short or not final:
            kept = (len(session.data) + len(body)) // PIECE_BYTES * PIECE_BYTES - len(session.data)
            body = body[: max(0, kept)]
        session.data += body
        if cut:
            core.events["uploads cut"] += 1
            return Answer(silence=0.0)
        return None

    @staticmethod
    def _incomplete(session: UploadSession) -> Answer:
        headers = {"Range": f"bytes=0-{len(session.data) - 1}"} if session.data else {}
        return Answer(308, b"", headers)
