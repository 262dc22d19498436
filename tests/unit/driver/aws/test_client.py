# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.client`."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.aws.client import Ec2
from nodepool.driver.aws.errors import AwsNotFound
from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused
from nodepool.exceptions import NotFound
from tests.unit.driver.aws.support import Region, Rig, error, instance, shown


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def region(rig: Rig) -> Region:
    return rig.region


@pytest.fixture
def client(rig: Rig) -> Ec2:
    return rig.adapter.client


def test_lists_say_how_long_their_pages_are(client: Ec2, region: Region) -> None:
    """AW-15: AWS takes twice as many of these."""
    region.answers["describe_instances"] = [{**shown(instance("i-1")), "NextToken": "x"}, shown(instance("i-2"))]
    assert [record.id for record in client.instances()] == ["i-1", "i-2"]
    assert client.volumes() == []
    assert [arguments.get("MaxResults") for _, arguments in region.calls] == [1000, 1000, 500]


def test_one_instance(client: Ec2, region: Region) -> None:
    """Asked for by a filter, because an id that is not known yet would be an error; its absence is one."""
    region.answers["describe_instances"] = [shown(instance("i-1")), shown()]
    assert client.instance("i-1").id == "i-1"
    with pytest.raises(NotFound):
        client.instance("i-1")
    assert region.last("describe_instances")["Filters"] == [{"Name": "instance-id", "Values": ["i-1"]}]


def test_by_token(client: Ec2, region: Region) -> None:
    region.answers["describe_instances"] = shown(instance("i-1"))
    assert [record.id for record in client.instances_of_token("np-1")] == ["i-1"]
    assert region.last("describe_instances")["Filters"] == [{"Name": "client-token", "Values": ["np-1"]}]


def terminate(client: Ec2, *ids: str) -> dict[str, Exception]:
    return client.terminate(lambda: list(ids))


def refusing(*unknown: str, named: bool = True) -> Any:
    """Refuses each call that has one of these; as EC2, none of the others ends then."""

    def answer(arguments: dict[str, Any]) -> Any:
        bad = [instance_id for instance_id in arguments["InstanceIds"] if instance_id in unknown]
        return error("InvalidInstanceID.NotFound", f"'{', '.join(bad)}'" if named else "no") if bad else {}

    return answer


def test_end_of_many(client: Ec2, region: Region) -> None:
    """AW-15: in one call."""
    assert terminate(client, "i-1", "i-2", "i-3") == {}
    assert [arguments for _, arguments in region.calls] == [{"InstanceIds": ["i-1", "i-2", "i-3"]}]


@pytest.mark.parametrize(("named", "calls"), [(True, 2), (False, 5)])
def test_one_that_is_not_there(
    client: Ec2,
    region: Region,
    named: bool,
    calls: int,
) -> None:
    """AW-15: it does not keep the others, whether the error names it or not."""
    region.answers["terminate_instances"] = refusing("i-2", named=named)
    errors = terminate(client, "i-1", "i-2", "i-3", "i-4")
    assert list(errors) == ["i-2"]
    assert isinstance(errors["i-2"], NotFound)
    assert region.count("terminate_instances") == calls
    ended = [
        instance_id
        for _, arguments in region.calls
        for instance_id in arguments["InstanceIds"]
        if "i-2" not in arguments["InstanceIds"]
    ]
    assert sorted(ended) == ["i-1", "i-3", "i-4"]


def test_none_that_is_there(client: Ec2, region: Region) -> None:
    region.answers["terminate_instances"] = refusing("i-1", "i-2")
    assert set(terminate(client, "i-1", "i-2")) == {"i-1", "i-2"}


def test_refused_for_another_reason(client: Ec2, region: Region) -> None:
    """The others end, too."""
    protected = error("OperationNotPermitted", "i-1 is protected")
    region.answers["terminate_instances"] = lambda arguments: protected if "i-1" in arguments["InstanceIds"] else {}
    errors = terminate(client, "i-1", "i-2")
    assert list(errors) == ["i-1"]
    assert isinstance(errors["i-1"], CloudRefused)


def test_no_answer_to_the_end_of_many(client: Ec2, region: Region) -> None:
    """It is the error of all of them."""
    region.answers["terminate_instances"] = error("InternalError", status=500)
    with pytest.raises(CloudAway):
        terminate(client, "i-1", "i-2")


def test_image(client: Ec2, region: Region) -> None:
    assert client.image("ami-1").id == "ami-1"
    region.answers["describe_images"] = {"Images": []}
    with pytest.raises(AwsNotFound, match="there is no image ami-1; correct image-id"):
        client.image("ami-1")


def test_console(client: Ec2, region: Region) -> None:
    region.answers["get_console_output"] = [{"Output": "login:"}, {}, error("InvalidInstanceID.NotFound")]
    assert [client.console("i-1") for _ in range(3)] == ["login:", None, None]


def test_tags(client: Ec2, region: Region) -> None:
    region.answers["create_tags"] = {}
    client.tag(lambda: (["i-1"], {"a": "b"}))
    assert region.last("create_tags") == {"Resources": ["i-1"], "Tags": [{"Key": "a", "Value": "b"}]}
