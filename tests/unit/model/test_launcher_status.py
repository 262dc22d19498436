# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from nodepool.model.event import Event
from nodepool.model.record import InvalidRecord
from nodepool.model.status import AbsentProvider, LauncherStatus, ReloadStatus

FULL = LauncherStatus(
    host="l1",
    pid=42,
    version="12.0.0",
    config_file="/etc/nodepool/nodepool.yaml",
    config="9f3c",
    since=1763809000.5,
    servers="zk1:2281",
    state="draining",
    pools=("cloud-1/main",),
    absent=(AbsentProvider("cloud-2", "openstack", "no such cloud", 1763809000, 1763809060),),
    tenant_limits={"t1": {"cores": 80}},
    reload=ReloadStatus(1763809100, False, "nodepool.yaml:3: providers[0].drivr: unknown key"),
    maintenance="launcher l1 is drained by alice: upgrade",
    events=(Event(1763809100, "l1", "launcher l1", "reload failed"),),
    omitted=1,
)


@pytest.mark.parametrize("status", [FULL, LauncherStatus()])
def test_written_and_read(status: LauncherStatus) -> None:
    assert LauncherStatus.of_record(json.loads(json.dumps(status.to_dict()))) == status


def test_of_another_version() -> None:
    assert LauncherStatus.of_record({"host": "x", "unknown": [1]}) == LauncherStatus(host="x")


def test_a_bad_one_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="events is a str"):
        LauncherStatus.of_record({"events": "none"})
