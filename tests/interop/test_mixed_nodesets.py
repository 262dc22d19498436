# SPDX-License-Identifier: Apache-2.0
"""Zuul gets nodes of pools of two launchers, each of which is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.launcher_config import FakeProvider
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

if TYPE_CHECKING:
    from tests.support.zuul_client import ZuulClient

PROVIDERS = [FakeProvider([label], f"cloud-{label}", settings={"boot-seconds": 0.5}) for label in ("a", "b")]
OPTIONS = {"labels": {"a": {}, "b": {"mixed-nodesets": True}}, "session_seconds": 2.0}


def test_zuul_takes_nodes_of_two_launchers(workplace: Workplace, zuul: ZuulClient) -> None:
    """MN-2, MN-3: in their order, and locked one by one; a launcher of either side is killed in the middle of it."""
    launchers = [workplace.launch(provider, **OPTIONS) for provider in PROVIDERS]  # type: ignore[arg-type]
    for killed in (None, 0, 1):
        requests = [zuul.submit(["b", "a", "b"]) for _ in range(6)]
        if killed is not None:
            wait_for("launches run", lambda: len(workplace.znodes.nodes()) > 6)
            launchers[killed].kill()
            launchers[killed] = workplace.launch(PROVIDERS[killed], wait=False, **OPTIONS)  # type: ignore[arg-type]
        for request in requests:
            nodeset = zuul.accept(zuul.wait(request))
            assert [node.provider for node in nodeset.getNodes()] == ["cloud-b", "cloud-a", "cloud-b"]
            zuul.use(nodeset)
            zuul.give_back(nodeset)
    wait_for("no request is left", lambda: not workplace.znodes.children("/nodepool/requests"))
