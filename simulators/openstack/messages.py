# SPDX-License-Identifier: Apache-2.0
"""What passes between the HTTP server and the services (`simulators.base`), and OpenStack's usual 404."""

from __future__ import annotations

from simulators.base.messages import (
    Answer,
    ApiError,
    BodySink,
    Json,
    Request,
    SteeredSink,
    json_answer,
    new_id,
)

__all__ = [
    "Answer",
    "ApiError",
    "BodySink",
    "Json",
    "Request",
    "SteeredSink",
    "json_answer",
    "new_id",
    "not_found",
]


def not_found(what: str, name: str) -> ApiError:
    """Nova's and Neutron's usual 404."""
    return ApiError(404, f"{what} {name} could not be found.", f"{what}NotFound")
