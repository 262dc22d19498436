# SPDX-License-Identifier: Apache-2.0
"""Clouds of a simulated world whose drivers make their calls with `RestCalls`: the real driver, but no connection."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping

import pytest
from requests.structures import CaseInsensitiveDict

from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.driver.framework.http import plain_http
from nodepool.driver.framework.http.plain_http import HttpAnswer, NoAnswer
from nodepool.driver.framework.http.rest_calls import RestCalls
from simulators.base.messages import Request
from tests.model.simulated_cloud import SimulatedCloud
from tests.model.world import World


class RestModelCloud(SimulatedCloud):
    """Its calls are those of `RestCalls`."""

    def is_login(self, path: str) -> bool:
        """Is it the path of a call for a token? Nobody else does something before or after it: threads of a launcher
        wait for each other's logins, which threads of a world cannot.
        """
        return path.endswith("/token")

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        """One call of the driver, in place of `plain_http.PlainHttp.send`."""
        parts = urllib.parse.urlsplit(url)
        given = {**headers, "host": parts.netloc}
        if self.is_login(parts.path):
            own = {name.lower(): value for name, value in given.items()}
            answer = self.application.handle(Request(method, parts.path, urllib.parse.parse_qs(parts.query), own, body))
        else:
            found = self.api.ask(method, url, given, body)
            if found is None:
                raise NoAnswer("no answer", maybe_done=True)
            answer = found
        told = CaseInsensitiveDict({"Content-Type": answer.content_type, **answer.headers})
        return HttpAnswer(answer.status, told, answer.body)


class ModelHttp:
    """In place of `plain_http.PlainHttp`."""

    def __init__(self, connections: int) -> None:
        pass

    def close(self) -> None:
        """There are no connections."""

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        query: Mapping[str, str] | None = None,
        seconds: float = 0.0,
    ) -> HttpAnswer:
        cloud = World.current().cloud
        assert isinstance(cloud, RestModelCloud)
        whole = f"{url}?{urllib.parse.urlencode(query)}" if query else url
        return cloud.send(method, whole, headers, body or b"")


class RestWorld(World):
    """A world with such a cloud."""

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        def sleep(calls: RestCalls, seconds: float) -> None:
            if self.baton.wait(calls.stopped.is_set, self.now + seconds):
                raise CloudAway("the provider was stopped", maybe_done=False)

        patch.setattr(RestCalls, "_sleep", sleep)
        patch.setattr(plain_http, "PlainHttp", ModelHttp)
