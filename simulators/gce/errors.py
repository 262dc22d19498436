# SPDX-License-Identifier: Apache-2.0
"""Errors as Google's APIs write them: of a call, and in an operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from simulators.base.messages import Answer, ApiError, Json, json_answer

#: Reasons of errors that have none of their own.
REASONS: Final = {
    400: "invalid",
    401: "authError",
    403: "forbidden",
    404: "notFound",
    409: "conflict",
    412: "conditionNotMet",
    429: "rateLimitExceeded",
    500: "internalError",
    503: "backendError",
}
STATUSES: Final = {401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}
TITLES: Final = {
    400: "BAD REQUEST",
    403: "FORBIDDEN",
    404: "NOT FOUND",
    409: "CONFLICT",
    429: "TOO MANY REQUESTS",
    500: "INTERNAL SERVER ERROR",
    503: "SERVICE UNAVAILABLE",
}
RATE: Final = "rateLimitExceeded"
MESSAGES: Final = {
    429: "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute' of service "
    "'compute.googleapis.com' for consumer 'project_number:123456789012'.",
    500: "Internal error. Please try again or contact Google Support.",
    503: "The service is currently unavailable.",
}


def error_answer(error: ApiError, turn: Callable[..., Any] = lambda _what, first, *_: first) -> Answer:
    """The answer of a call that was refused; ``kind`` of the error is Google's reason.

    :param turn: see `SimulationCore.turn`: some services answer with an array.
    """
    reason = error.kind or REASONS.get(error.status, "backendError")
    domain = "usageLimits" if reason in (RATE, "quotaExceeded") else "global"
    content: Json = {
        "code": error.status,
        "message": error.message,
        "errors": [{"message": error.message, "domain": domain, "reason": reason}],
    }
    status = "PERMISSION_DENIED" if error.status == 403 and reason == RATE else STATUSES.get(error.status)
    if status is not None:
        content["status"] = status
    whole: Json = {"error": content}
    answer = json_answer(turn("error", whole, {"error": {**content, "details": []}}, [whole]), error.status)
    answer.headers |= error.headers
    return answer


def operation_error(code: str, message: str, *details: Json) -> Json:
    """An error, as operations have it."""
    found: Json = {"code": code, "message": message}
    if details:
        found["errorDetails"] = list(details)
    return found


def not_found(path: str) -> ApiError:
    """There is no such resource."""
    return ApiError(404, f"The resource '{path}' was not found", "notFound")


def already_exists(path: str) -> ApiError:
    """There is one of the name."""
    return ApiError(409, f"The resource '{path}' already exists", "alreadyExists")


def invalid(field: str, value: object, why: str) -> ApiError:
    """A field has a value that it cannot have."""
    return ApiError(400, f"Invalid value for field '{field}': '{value}'. {why}", "invalid")
