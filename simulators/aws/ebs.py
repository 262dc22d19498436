# SPDX-License-Identifier: Apache-2.0
"""The direct API of EBS: snapshots that are written block by block.

https://docs.aws.amazon.com/ebs/latest/APIReference/Welcome.html
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from simulators.aws import buckets
from simulators.aws.core import ACCOUNT
from simulators.aws.filters import check_tags, tag_list
from simulators.aws.snapshots import BLOCK_BYTES, BLOCKS_A_GIB, PENDING, SimulatedSnapshot
from simulators.base.messages import Answer, ApiError, BodySink, Json, Request, json_answer
from simulators.base.throttle import Throttle
from simulators.base.tokens import CreateTokens, TokenMismatch

if TYPE_CHECKING:
    from simulators.aws.cloud import Region


class EbsService:
    """JSON, with what concerns a block in headers."""

    name = "ebs"

    def __init__(self, cloud: Region) -> None:
        self.cloud = cloud
        self.core = cloud.core
        self.throttle = Throttle(cloud.core.now)
        self._tokens: CreateTokens[SimulatedSnapshot] = CreateTokens()

    def body_sink(self, request: Request) -> BodySink | None:
        return None

    def operation(self, request: Request) -> str:
        return self._route(request)[0]

    def serve(self, request: Request) -> Answer:
        name, handler = self._route(request)
        if handler is None:
            raise ApiError(400, "There is no such operation", "ValidationException")
        if self.core.knobs.throttles:
            try:
                buckets.take(self.throttle, f"ebs.{name}", {})
            except ApiError:
                raise ApiError(400, "Rate exceeded", "RequestThrottledException") from None
        return handler()

    def error(self, error: ApiError) -> Answer:
        code = error.kind or ("InternalServerException" if error.status >= 500 else "ValidationException")
        body = json.dumps({"Message": error.message}).encode()
        return Answer(error.status, body, {**error.headers, "x-amzn-ErrorType": code})

    def _route(self, request: Request) -> tuple[str, Callable[[], Answer] | None]:
        parts = [part for part in request.path.split("/") if part]
        if request.method == "POST" and parts == ["snapshots"]:
            return "StartSnapshot", lambda: self._start(request.json())
        if request.method == "POST" and parts[:2] == ["snapshots", "completion"] and len(parts) == 3:
            return "CompleteSnapshot", lambda: self._complete(request, parts[2])
        if request.method == "PUT" and len(parts) == 4 and parts[::2] == ["snapshots", "blocks"]:
            return "PutSnapshotBlock", lambda: self._put(request, parts[1], int(parts[3]))
        return "unknown", None

    def _start(self, given: Json) -> Answer:
        token = given.get("ClientToken")
        try:
            snapshot = self._tokens.find(token, given) if token else None
        except TokenMismatch:
            raise ApiError(400, "The token was used with other parameters", "ConflictException") from None
        if snapshot is None:
            snapshots = self.cloud.snapshots
            if sum(found.state == PENDING for found in snapshots.snapshots.values()) >= self.core.knobs.import_limit:
                raise ApiError(400, "Too many snapshots are pending", "ConcurrentLimitExceededException")
            tags = {tag["Key"]: tag.get("Value", "") for tag in given.get("Tags", ())}
            check_tags(tags)
            snapshot = snapshots.add(int(given["VolumeSize"]), PENDING, given.get("Description", ""))
            snapshot.tags = tags
            if token:
                self._tokens.remember(token, given, snapshot)
        content = {
            "SnapshotId": snapshot.id,
            "OwnerId": ACCOUNT,
            "Status": snapshot.state,
            "StartTime": self.core.now(),
            "VolumeSize": snapshot.size_gib,
            "BlockSize": BLOCK_BYTES,
            "Tags": tag_list(snapshot.tags),
        }
        return json_answer(content, 201)

    def _put(self, request: Request, snapshot_id: str, index: int) -> Answer:
        snapshot = self._pending(snapshot_id)
        digest = hashlib.sha256(request.body).digest()
        if len(request.body) != BLOCK_BYTES or request.headers.get("x-amz-data-length") != str(BLOCK_BYTES):
            raise ApiError(400, f"A block has {BLOCK_BYTES} bytes", "ValidationException")
        if request.headers.get("x-amz-checksum-algorithm") != "SHA256" or _checksum(request) != digest:
            raise ApiError(400, "The checksum of the block does not match its data", "ValidationException")
        if index >= snapshot.size_gib * BLOCKS_A_GIB:
            raise ApiError(400, "The block is behind the end of the volume", "ValidationException")
        snapshot.blocks[index] = digest
        self.core.events["blocks written"] += 1
        told = {"x-amz-Checksum": request.headers["x-amz-checksum"], "x-amz-Checksum-Algorithm": "SHA256"}
        return Answer(201, b"{}", told)

    def _complete(self, request: Request, snapshot_id: str) -> Answer:
        snapshot = self._pending(snapshot_id)
        blocks = int(request.headers["x-amz-changedblockscount"])
        self.cloud.snapshots.complete(snapshot, blocks, _checksum(request))
        return json_answer({"Status": snapshot.state}, 202)

    def _pending(self, snapshot_id: str) -> SimulatedSnapshot:
        snapshot = self.cloud.snapshots.snapshots.get(snapshot_id)
        if snapshot is None:
            raise ApiError(404, f"The snapshot '{snapshot_id}' does not exist", "ResourceNotFoundException")
        if snapshot.state != PENDING:
            raise ApiError(400, f"The snapshot is {snapshot.state}", "ValidationException")
        return snapshot


def _checksum(request: Request) -> bytes | None:
    """What the client says; None = nothing."""
    told = request.headers.get("x-amz-checksum")
    try:
        return None if told is None else base64.b64decode(told, validate=True)
    except binascii.Error:
        raise ApiError(400, "The checksum is not Base64", "ValidationException") from None
