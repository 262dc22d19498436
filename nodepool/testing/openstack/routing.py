# SPDX-License-Identifier: Apache-2.0
"""The base of all OpenStack services."""

from __future__ import annotations

from urllib.parse import urlencode

from nodepool.testing.openstack.cloud import Cloud
from nodepool.testing.openstack.messages import Answer, ApiError, Request, json_answer
from nodepool.testing.simulator.routing import Handler, Route, Routes

__all__ = ["Handler", "Route", "Service", "base_url", "next_link"]


class Service(Routes):
    """One OpenStack service below its prefix.

    :cvar name: first part of the path and of operation names.
    """

    name = ""

    def __init__(self, cloud: Cloud) -> None:
        super().__init__()
        self.cloud = cloud

    def available(self) -> bool:
        """False: the cloud has no such service."""
        return True

    def error(self, error: ApiError) -> Answer:
        """An error in the service's shape; this is Nova's and Cinder's."""
        names = {
            400: "badRequest",
            401: "unauthorized",
            403: "forbidden",
            404: "itemNotFound",
            409: "conflictingRequest",
        }
        names |= {413: "overLimit", 429: "tooManyRequests", 500: "computeFault", 503: "serviceUnavailable"}
        content = {names.get(error.status, "error"): {"code": error.status, "message": error.message}}
        answer = json_answer(content, error.status)
        answer.headers |= error.headers
        return answer


def base_url(request: Request) -> str:
    """Scheme and authority that the client used, for links."""
    return f"http://{request.headers.get('host', '127.0.0.1')}"


def next_link(request: Request, marker: str | None) -> str:
    """The address of the next page; "" when there is none."""
    if marker is None:
        return ""
    return f"{base_url(request)}{request.path}?{urlencode(request.query | {'marker': [marker]}, doseq=True)}"
