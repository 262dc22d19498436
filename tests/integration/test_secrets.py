# SPDX-License-Identifier: Apache-2.0
"""Passwords, tokens and user data get into no log, whatever its level, into no znode, and into no stack dump.

doc/source/explanation/security.rst, "Secrets".
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError

from nodepool.cmd import daemon
from nodepool.driver.framework import fact
from nodepool.plan.retries import Backoff
from nodepool.runtime import providers
from simulators.openstack.identity_api import IdentityApi
from tests.support.openstack_place import Place
from tests.support.pool_znodes import PoolZnodes
from tests.support.tables import table
from tests.support.wait import wait_for

PASSWORD = "pass-W0RD-of-the-cloud"
OLD_PASSWORD = "an-0LD-password"
USER_DATA = "user-data-with-a-key"
#: What answers to creations have, see `simulators.openstack.compute_api`.
ADMIN_PASS = "simulated-admin-pass"
#: All that were used.
TOKENS: set[str] = set()
#: Everything that says something by itself. An operator may set them all to DEBUG.
LOGGERS = table(__file__, "loggers")


@pytest.fixture
def identities(monkeypatch: pytest.MonkeyPatch) -> list[IdentityApi]:
    """The simulated Keystone, which knows all tokens; there as soon as one was used."""
    found: list[IdentityApi] = []
    valid = IdentityApi.valid

    def noted(self: IdentityApi, token: str) -> bool:
        if self not in found:
            found.append(self)
        if token:
            TOKENS.add(token)
        return valid(self, token)

    TOKENS.clear()
    monkeypatch.setattr(IdentityApi, "valid", noted)
    return found


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LOGGERS:
        caplog.set_level(logging.DEBUG, logger=name)
    monkeypatch.setattr(providers, "RETRY", Backoff(0.2, 0.5))
    monkeypatch.setattr(fact, "ERROR_SECONDS", 0.3)


def write_clouds(place: Place, password: str = PASSWORD, **changes: Any) -> None:
    entry = place.simulator.clouds_yaml_entry()
    entry["auth"] = {**entry["auth"], "password": password}
    place.write_clouds(simulator={**entry, **changes})


def all_data(znodes: PoolZnodes, path: str = "/nodepool") -> Iterator[bytes]:
    try:
        data, _ = znodes.kazoo.get(path)
        names = znodes.kazoo.get_children(path)
    except NoNodeError:
        # Locks and records go while they are read.
        return
    yield data
    for name in names:
        yield from all_data(znodes, f"{path}/{name}")


def check(place: Place, caplog: pytest.LogCaptureFixture, *more: str) -> None:
    """Nothing secret is in what was logged, or is in ZooKeeper."""
    secrets = [PASSWORD, USER_DATA, ADMIN_PASS, *TOKENS, *more]
    formatter = logging.Formatter()
    lines = [formatter.format(record) for record in caplog.records]
    lines += [repr(vars(record)) for record in caplog.records]
    lines += [data.decode("utf-8", "replace") for data in all_data(place.znodes)]
    lines.append(daemon.stacks())
    found = [line for line in lines for secret in secrets if secret in line]
    assert not found


def test_a_node_from_launch_to_deletion(
    place: Place, caplog: pytest.LogCaptureFixture, identities: list[IdentityApi]
) -> None:
    """With a token that expires in between, and an error of the cloud."""
    place.simulator.change(password=PASSWORD)
    write_clouds(place)
    place.label["userdata"] = f"#cloud-config\npassword: {USER_DATA}\n"
    place.launch()
    request = place.znodes.submit(["small"])
    place.fulfilled(request)
    with place.simulator.cloud():
        identities[0].tokens.clear()
    place.simulator.change(errors=[{"operation": "compute.create_server", "kind": "500", "after": True, "count": 1}])
    second = place.znodes.submit(["small"])
    place.fulfilled(second)
    check(place, caplog)
    # The test would prove nothing if these were not there at all.
    assert len(TOKENS) > 1
    assert any(record.name.startswith("urllib3") for record in caplog.records)
    assert "compute POST /servers: 202 in" in caplog.text
    place.give_back(request)
    place.give_back(second)
    wait_for("nothing is left", lambda: place.contents()["servers"] == 0)
    check(place, caplog)


def test_refused_login(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """The cloud says who was refused, not with what."""
    place.simulator.change(password=PASSWORD)
    write_clouds(place, password=OLD_PASSWORD)
    place.launch()
    place.znodes.submit(["small"])
    wait_for("the login is refused", lambda: "refuses the login" in caplog.text)
    check(place, caplog, OLD_PASSWORD)


@pytest.mark.parametrize("line", ['password: "{secret}', "password: !{secret}", "password: *{secret}"])
def test_broken_clouds_yaml(place: Place, caplog: pytest.LogCaptureFixture, line: str) -> None:
    """An error of YAML names the line, and quotes nothing of it."""
    place.clouds_file.write_text(
        "clouds:\n  simulator:\n    auth:\n      " + line.replace("{secret}", PASSWORD) + "\n", encoding="utf-8"
    )
    place.launch()
    wait_for("it is reported", lambda: "clouds.yaml" in caplog.text)
    check(place, caplog)
