# SPDX-License-Identifier: Apache-2.0
"""A provider section, and values as IBM tells them."""

from __future__ import annotations

import json
from typing import Any

from nodepool.driver.framework.http.plain_http import HttpAnswer, NoAnswer
from nodepool.driver.ibmvpc import IbmVpcDriver
from nodepool.driver.ibmvpc.config import IbmLabel, IbmProviderConfig
from nodepool.driver.ibmvpc.errors import IbmError, meaning
from nodepool.driver.ibmvpc.types import IbmFloatingIp
from nodepool.driver.statemachine import instance
from tests.support.provider_sections import load_section, section_with
from tests.unit.driver.simulated_adapter import NODE

PROVIDER = "south"
GROUP = f"np_{PROVIDER}_main"
METADATA = instance.for_node(NODE, "main", PROVIDER)

_SECTION: dict[str, Any] = {
    "name": PROVIDER,
    "driver": "ibmvpc",
    "vpc": "ci",
    "region": "us-south",
    "zone": "us-south-1",
    "subnet": "nodes-1",
    "rate": 0,
    "cloud-images": [{"name": "debian", "username": "root", "image-name": "ibm-debian-12", "keys": ["zuul"]}],
    "pools": [{"name": "main", "labels": [{"name": "small", "cloud-image": "debian", "profile": "bx2-2x8"}]}],
}


def section(label: dict[str, Any] | None = None, pool: dict[str, Any] | None = None, **provider: Any) -> dict[str, Any]:
    """A provider section with one label.

    :param label: more keys of it; ``pool`` and ``provider`` likewise, with ``-`` for ``_``; None takes one away.
    """
    made = section_with(_SECTION, label, pool, **provider)
    return {name: value for name, value in made.items() if value is not None}


def load(data: dict[str, Any]) -> IbmProviderConfig:
    """Load a section in a configuration that has its labels and images."""
    made: IbmProviderConfig = load_section(IbmVpcDriver(), data)
    return made


def label_of(config: IbmProviderConfig) -> IbmLabel:
    found: IbmLabel = config.pools["main"].labels["small"]
    return found


def refusal(code: str, status: int = 400) -> Exception:
    """What the client raises for an error of IBM."""
    return meaning("Provider south: it failed", [IbmError(code, "IBM says so")], status)


def floating(
    number: int, name: str = "", target: str = "", group: str = GROUP, zone: str = "us-south-1"
) -> IbmFloatingIp:
    return IbmFloatingIp.of(
        {
            "id": f"fip-{number}",
            "name": name or f"np{number:010}",
            "address": f"192.0.2.{number}",
            "status": "available",
            "zone": {"name": zone},
            "resource_group": {"id": f"id-{group}", "name": group},
            "created_at": f"2026-01-{number:02}T00:00:00Z",
            **({"target": {"id": target}} if target else {}),
        }
    )


class Http:
    """Answers with what the test wrote, and keeps what was sent: method, address, headers, body, query."""

    def __init__(self) -> None:
        self.answers: list[HttpAnswer | NoAnswer] = []
        self.sent: list[tuple[str, str, dict[str, str], str, dict[str, str]]] = []

    def answer(self, data: Any = None, status: int = 200, **headers: str) -> None:
        content = b"" if data is None else json.dumps(data).encode()
        self.answers.append(HttpAnswer(status, headers, content))

    def token(self, token: str, seconds: float = 3600) -> None:
        self.answer({"access_token": token, "expires_in": seconds})

    def send(
        self,
        method: str,
        url: str,
        headers: Any,
        body: Any = None,
        query: Any = None,
        seconds: float = 0.0,
    ) -> HttpAnswer:
        self.sent.append((method, url, dict(headers), (body or b"").decode(), dict(query or {})))
        answer = self.answers.pop(0)
        if isinstance(answer, NoAnswer):
            raise answer
        return answer

    def close(self) -> None:
        """Nothing is open."""
