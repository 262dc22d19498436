# SPDX-License-Identifier: Apache-2.0
"""``nodepool check`` of a provider with an adapter: what the adapter says, and the uploads of its labels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from nodepool.driver.framework.checks import CheckResult
from nodepool.driver.statemachine import Adapter
from nodepool.driver.statemachine.provider import checks


def config(**images: str | None) -> Any:
    """Label -> its diskimage; None = it has none."""
    labels = {
        name: SimpleNamespace(name=name, diskimage=None if image is None else SimpleNamespace(name=image))
        for name, image in images.items()
    }
    pools = {"main": SimpleNamespace(labels=labels), "more": SimpleNamespace(labels=["only", "names"])}
    return SimpleNamespace(name="cloud", pools=pools)


#: No node misses its instance.
LOST: Any = SimpleNamespace(alive=dict, missing=lambda alive, listed: set())


class OneCheck(Adapter):
    def __init__(self) -> None:
        pass

    def preflight(self) -> Any:
        yield CheckResult("cloud", True, "login works")


def test_adapter_and_uploads() -> None:
    uploads = {"debian": SimpleNamespace(build_id="0000000007")}
    section = config(small="debian", big="debian", old="fedora", cloud=None)
    login, debian, fedora = checks(section, OneCheck(), uploads.get, list, LOST)  # type: ignore[arg-type]
    assert login == CheckResult("cloud", True, "login works")
    assert debian == CheckResult("diskimage debian", True, "build 0000000007 is uploaded")
    assert (fedora.subject, fedora.status) == ("diskimage fedora", "failed")
    assert "for the label(s) old" in fedora.text


def test_without_zookeeper() -> None:
    """Nobody knows of uploads."""
    assert [result.subject for result in checks(config(small="debian"), OneCheck(), None, list, LOST)] == ["cloud"]


def test_adapter_without_checks() -> None:
    assert list(checks(config(), Adapter(config()), None, list, LOST)) == []
