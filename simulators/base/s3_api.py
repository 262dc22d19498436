# SPDX-License-Identifier: Apache-2.0
"""S3 with paths that begin with the bucket: what uploads of files need.

https://docs.aws.amazon.com/AmazonS3/latest/API/Welcome.html
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qsl
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from simulators.base.messages import Answer, ApiError, BodySink, Request, new_id
from simulators.base.pages import page
from simulators.base.stored_objects import OpenUpload, Piece, StoredObjects

_NAMESPACE: Final = "http://s3.amazonaws.com/doc/2006-03-01/"
#: No part but the last may be smaller.
_LEAST_PART: Final = 5 * 1024 * 1024
_KEYS_A_PAGE: Final = 1000

Handler = Callable[[Request, str, str], Answer]


class S3Api:
    """XML; methods and arguments of the query say which call it is.

    :param objects: what is stored.
    :param page_limit: most keys of a page.
    """

    name = "s3"

    def __init__(self, objects: StoredObjects, page_limit: Callable[[], int]) -> None:
        self.objects = objects
        self._page_limit = page_limit
        #: Method, is there a key, argument of the query that must be there.
        self._table: list[tuple[str, bool, str, str, Handler]] = [
            ("PUT", True, "partNumber", "UploadPart", self._put_part),
            ("PUT", True, "", "PutObject", self._put),
            ("POST", True, "uploads", "CreateMultipartUpload", self._begin),
            ("POST", True, "uploadId", "CompleteMultipartUpload", self._complete),
            ("DELETE", True, "uploadId", "AbortMultipartUpload", self._abort),
            ("DELETE", True, "", "DeleteObject", self._delete),
            ("HEAD", True, "", "HeadObject", self._head),
            ("GET", True, "tagging", "GetObjectTagging", self._tagging),
            ("GET", True, "uploadId", "ListParts", self._list_parts),
            ("GET", False, "list-type", "ListObjectsV2", self._list),
            ("GET", False, "uploads", "ListMultipartUploads", self._list_uploads),
            ("GET", False, "location", "GetBucketLocation", self._location),
            ("HEAD", False, "", "HeadBucket", self._head_bucket),
        ]

    def body_sink(self, request: Request) -> BodySink | None:
        return None

    def operation(self, request: Request) -> str:
        return self._route(request)[0]

    def serve(self, request: Request) -> Answer:
        _name, handler = self._route(request)
        if handler is None:
            raise ApiError(405, "The specified method is not allowed against this resource.", "MethodNotAllowed")
        bucket, key = _place(request)
        self.objects.bucket(bucket)
        return handler(request, bucket, key)

    def error(self, error: ApiError) -> Answer:
        code = {"AccessDeniedException": "AccessDenied", "UnrecognizedClientException": "InvalidAccessKeyId"}.get(
            error.kind, error.kind
        ) or ("InternalError" if error.status >= 500 else "InvalidRequest")
        body = f"<Error><Code>{escape(code)}</Code><Message>{escape(error.message)}</Message></Error>"
        status = 403 if error.status == 401 else error.status
        return Answer(status, body.encode(), dict(error.headers), "application/xml")

    def _route(self, request: Request) -> tuple[str, Handler | None]:
        has_key = bool(_place(request)[1])
        for method, with_key, argument, name, handler in self._table:
            if method == request.method and with_key == has_key and (not argument or argument in request.query):
                return name, handler
        return "unknown", None

    # -- buckets --

    def _location(self, _request: Request, _bucket: str, _key: str) -> Answer:
        return _xml("LocationConstraint", escape(self.objects.location))

    def _head_bucket(self, _request: Request, _bucket: str, _key: str) -> Answer:
        return Answer(200)

    # -- objects --

    def _put(self, request: Request, bucket: str, key: str) -> Answer:
        made = self.objects.put(bucket, key, [self._piece(request)], _tags(request))
        return Answer(200, b"", {"ETag": made.etag})

    def _head(self, request: Request, bucket: str, key: str) -> Answer:
        found = self.objects.get(bucket, key)
        told = {"x-amz-checksum-crc32": found.crc32} if found.crc32 and _wants_checksum(request) else {}
        return Answer(200, b"", {"ETag": found.etag, "Content-Length": str(found.size), **told})

    def _delete(self, _request: Request, bucket: str, key: str) -> Answer:
        if self.objects.bucket(bucket).pop(key, None) is not None:
            self.objects.core.events["objects deleted"] += 1
        return Answer(204)

    def _tagging(self, _request: Request, bucket: str, key: str) -> Answer:
        tags = self.objects.get(bucket, key).tags
        told = "".join(
            f"<Tag><Key>{escape(name)}</Key><Value>{escape(value)}</Value></Tag>" for name, value in tags.items()
        )
        return _xml("Tagging", f"<TagSet>{told}</TagSet>")

    def _list(self, request: Request, bucket: str, _key: str) -> Answer:
        prefix = request.argument("prefix")
        found = [stored for key, stored in sorted(self.objects.bucket(bucket).items()) if key.startswith(prefix)]
        given = request.argument("continuation-token") or None
        limit = min(_KEYS_A_PAGE, self._page_limit())
        try:
            entries, token = page(found, lambda stored: stored.key, given, limit)
        except ValueError:
            raise ApiError(400, "The continuation token provided is incorrect", "InvalidArgument") from None
        told = "".join(
            f"<Contents><Key>{escape(stored.key)}</Key><Size>{stored.size}</Size>"
            f"<LastModified>{stored.modified}</LastModified><ETag>{escape(stored.etag)}</ETag></Contents>"
            for stored in entries
        )
        more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
        head = f"<KeyCount>{len(entries)}</KeyCount><IsTruncated>{'true' if token else 'false'}</IsTruncated>"
        return _xml("ListBucketResult", f"{head}{more}{told}")

    # -- uploads in parts --

    def _begin(self, request: Request, bucket: str, key: str) -> Answer:
        made = OpenUpload(new_id(), key, self.objects.stamp(), _tags(request))
        self.objects.uploads[made.id] = made
        told = f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(key)}</Key><UploadId>{made.id}</UploadId>"
        return _xml("InitiateMultipartUploadResult", told)

    def _put_part(self, request: Request, _bucket: str, _key: str) -> Answer:
        upload = self.objects.upload(request.argument("uploadId"))
        piece = upload.parts[int(request.argument("partNumber"))] = self._piece(request)
        return Answer(200, b"", {"ETag": f'"{piece.md5}"'})

    def _list_parts(self, request: Request, bucket: str, key: str) -> Answer:
        upload = self.objects.upload(request.argument("uploadId"))
        told = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(_quoted(piece.md5))}</ETag>"
            f"<Size>{piece.size}</Size>"
            f"{f'<ChecksumCRC32>{escape(piece.crc32)}</ChecksumCRC32>' if piece.crc32 else ''}</Part>"
            for number, piece in sorted(upload.parts.items())
        )
        head = f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(key)}</Key><UploadId>{upload.id}</UploadId>"
        return _xml("ListPartsResult", f"{head}<IsTruncated>false</IsTruncated>{told}")

    def _complete(self, request: Request, bucket: str, key: str) -> Answer:
        upload = self.objects.upload(request.argument("uploadId"))
        told = [_part(element) for element in ElementTree.fromstring(request.body).iter() if _is(element, "Part")]
        numbers = [number for number, _etag in told]
        if numbers != sorted(set(numbers)) or not numbers or not upload.parts.keys() >= set(numbers):
            raise ApiError(400, "One or more of the specified parts could not be found.", "InvalidPart")
        if any(etag and etag != upload.parts[number].md5 for number, etag in told):
            raise ApiError(400, "The part's entity tag did not match what was uploaded.", "InvalidPart")
        pieces = [upload.parts[number] for number in numbers]
        if any(piece.size < _LEAST_PART for piece in pieces[:-1]):
            raise ApiError(400, "Your proposed upload is smaller than the minimum allowed size", "EntityTooSmall")
        made = self.objects.put(bucket, key, pieces, upload.tags, in_parts=True)
        del self.objects.uploads[upload.id]
        content = f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(key)}</Key><ETag>{escape(made.etag)}</ETag>"
        return _xml("CompleteMultipartUploadResult", content)

    def _abort(self, request: Request, _bucket: str, _key: str) -> Answer:
        del self.objects.uploads[self.objects.upload(request.argument("uploadId")).id]
        self.objects.core.events["uploads aborted"] += 1
        return Answer(204)

    def _list_uploads(self, request: Request, _bucket: str, _key: str) -> Answer:
        prefix = request.argument("prefix")
        told = "".join(
            f"<Upload><Key>{escape(upload.key)}</Key><UploadId>{upload.id}</UploadId>"
            f"<Initiated>{upload.begun}</Initiated></Upload>"
            for upload in self.objects.uploads.values()
            if upload.key.startswith(prefix)
        )
        return _xml("ListMultipartUploadsResult", f"<IsTruncated>false</IsTruncated>{told}")

    def _piece(self, request: Request) -> Piece:
        return Piece.of(request.body, request.headers.get("x-amz-checksum-crc32"), self.objects.keep_data)


def _place(request: Request) -> tuple[str, str]:
    """Bucket and key."""
    bucket, _, key = request.path.removeprefix("/").partition("/")
    return bucket, key


def _wants_checksum(request: Request) -> bool:
    return request.headers.get("x-amz-checksum-mode") == "ENABLED"


def _tags(request: Request) -> dict[str, str]:
    return dict(parse_qsl(request.headers.get("x-amz-tagging", "")))


def _is(element: Any, name: str) -> bool:
    return str(element.tag).rpartition("}")[2] == name


def _part(element: Any) -> tuple[int, str]:
    """Number and entity tag of a part, as the client tells them."""
    told = {str(child.tag).rpartition("}")[2]: child.text or "" for child in element}
    return int(told.get("PartNumber") or 0), told.get("ETag", "").strip('"')


def _quoted(text: str) -> str:
    return f'"{text}"'


def _xml(name: str, content: str) -> Answer:
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<{name} xmlns="{_NAMESPACE}">{content}</{name}>'
    return Answer(200, body.encode(), content_type="application/xml")
