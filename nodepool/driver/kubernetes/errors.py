# SPDX-License-Identifier: Apache-2.0
"""What the API's answers mean, in the words of `nodepool.driver.framework.cloud_errors`. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNotFound,
    CloudQuota,
    CloudRefused,
    CloudSetup,
    LoginRefused,
    NotFoundByProxy,
    one_line,
)
from nodepool.driver.framework.http.rest_calls import PROXY
from nodepool.exceptions import LaunchError, RuntimeConfigurationException

ALREADY_EXISTS: Final = "AlreadyExists"
#: How the API says that a limit keeps an object out: of a ResourceQuota, of a LimitRange, of OpenShift's projects.
_QUOTA_TEXTS: Final = (
    "exceeded quota",
    "failed quota",
    "usage per container",
    "usage per pod",
    "to limit ratio",
    "cannot create more than",
)
#: What the API says of a path that it does not know, e.g. of a group that the cluster does not have.
_NO_SUCH_PATH: Final = "404 page not found"
#: A namespace takes nothing any more, because it was deleted by others.
_ENDING_TEXT: Final = "because it is being terminated"
#: Refused for now: something that the cluster makes by itself is not there yet.
_NO_ACCOUNT_TEXT: Final = "error looking up service account"
#: The same before Kubernetes 1.24: the account is there, and has no token for the pod.
_NO_TOKEN_TEXT: Final = "no api token found for service account"


class OtherOfTheName(CloudNotFound):
    """The object of the call is gone, and there is another one of its name."""


class NotYet(CloudAway):
    """The cluster has not made something yet that it makes by itself. The call had no effect."""

    def __init__(self, text: str) -> None:
        super().__init__(text, maybe_done=False)


class NoTokenYet(NotYet):
    """A pod is refused until the cluster has given a token to the account of its namespace."""


class InvalidObject(RuntimeConfigurationException):
    """The API never takes such an object: the label is wrong."""


def status_of(body: bytes) -> tuple[str, str]:
    """Reason and message of an answer that is no success; both may be empty."""
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError):
        return "", one_line(body[:2000].decode("utf-8", "replace"))
    if not isinstance(found, dict):
        return "", one_line(str(found))
    return str(found.get("reason") or ""), one_line(str(found.get("message") or ""))


def error_of(head: str, status: int, body: bytes) -> LaunchError | RuntimeConfigurationException:
    """The error for an answer that is no success.

    :param head: whose call it was, and which.
    :param status: of HTTP.
    """
    reason, message = status_of(body)
    if status == 404 and not body.lstrip().startswith(b"{"):
        # Not the API's word on an object, which is a ``Status``.
        if message == _NO_SUCH_PATH:
            return CloudRefused(f"{head}: {status} {message}", status, f"{status} {message}")
        return NotFoundByProxy(f"{head}: {status} {message}; {PROXY}", maybe_done=False)
    return refusal(head, status, reason, message)


def refusal(head: str, status: int, reason: str, message: str) -> LaunchError | RuntimeConfigurationException:
    """The same, from what the answer says."""
    said = f"{status} {reason}: {message}" if reason else f"{status} {message}"
    text, lower = f"{head}: {said}", message.lower()
    if _NO_ACCOUNT_TEXT in lower:
        return NotYet(text)
    if _NO_TOKEN_TEXT in lower:
        return NoTokenYet(text)
    if status == 401:
        return LoginRefused(f"{text}; renew the credentials of the kubeconfig", reason)
    if status == 404:
        return CloudNotFound(text, status, said, reason)
    if status == 403 and any(found in lower for found in _QUOTA_TEXTS):
        return CloudQuota(text, status, said, reason)
    if status == 403 and _ENDING_TEXT in lower:
        return CloudRefused(text, status, said, reason)
    if status == 403:
        return CloudSetup(f"{text}; {_remedy(lower)}", status, said, reason)
    if status == 429 or status >= 500:
        return CloudAway(text, maybe_done=status != 429, code=reason)
    if status in (400, 422) and reason in ("Invalid", "BadRequest"):
        return InvalidObject(text)
    return CloudRefused(text, status, said, reason)


def _remedy(lower: str) -> str:
    if "violates podsecurity" in lower:
        return "let labels of the label set pod-security.kubernetes.io/enforce, or ask for less in it"
    if "security context constraint" in lower:
        return "give the service account a security context constraint that allows it, or ask for less in the label"
    if "attempting to grant" in lower:
        return "give the launcher what it is to grant, see the documentation of the driver"
    return "give the launcher's account this right, see the documentation of the driver"


def exists(error: CloudRefused) -> bool:
    """Did a creation find an object of the name?"""
    return error.status == 409 and error.code == ALREADY_EXISTS
