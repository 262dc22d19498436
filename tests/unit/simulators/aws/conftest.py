# SPDX-License-Identifier: Apache-2.0
"""A region whose time the test moves, and a client of boto3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from simulators.aws import AwsSimulator
from simulators.aws.simulator import SECRET_KEY
from tests.support.manual_clock import ManualClock


class Caller:
    """A region and AWS's client. ``clock`` is the region's; its time passes only when the test says so."""

    def __init__(self, simulator: AwsSimulator, clock: ManualClock) -> None:
        self.simulator = simulator
        self.clock = clock
        self._clients: dict[str, Any] = {}
        with simulator.cloud() as cloud:
            self.image_id = cloud.image_id

    def client(self, service: str = "ec2", access_key: str = "AKIASIMULATED") -> Any:
        """A client that makes each call once."""
        key = f"{service} {access_key}"
        if key not in self._clients:
            self._clients[key] = boto3.client(
                service,
                region_name="us-east-1",
                endpoint_url=self.simulator.url,
                aws_access_key_id=access_key,
                aws_secret_access_key=SECRET_KEY,
                config=Config(retries={"mode": "standard", "total_max_attempts": 1}),
            )
        return self._clients[key]

    @property
    def ec2(self) -> Any:
        return self.client()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def run(self, number: int = 1, **more: Any) -> list[dict[str, Any]]:
        """RunInstances with what is needed."""
        given = {"ImageId": self.image_id, "InstanceType": "t3.small", "MinCount": number, "MaxCount": number, **more}
        answer = self.ec2.run_instances(**given)
        instances: list[dict[str, Any]] = answer["Instances"]
        return instances

    def run_id(self, **more: Any) -> str:
        """The id of one new instance."""
        return str(self.run(**more)[0]["InstanceId"])

    def shown(self, **arguments: Any) -> dict[str, dict[str, Any]]:
        """DescribeInstances, by id, over all pages."""
        pages = self.ec2.get_paginator("describe_instances").paginate(**arguments)
        return {
            instance["InstanceId"]: instance
            for answer in pages
            for reservation in answer["Reservations"]
            for instance in reservation["Instances"]
        }

    def states(self) -> list[str]:
        """Of all instances that are shown."""
        return [instance["State"]["Name"] for instance in self.shown().values()]


@pytest.fixture
def caller() -> Iterator[Caller]:
    clock = ManualClock()
    with AwsSimulator(clock=clock) as simulator:
        simulator.change(boot_seconds=10, end_seconds=5)
        made = Caller(simulator, clock)
        yield made
        made.close()
        assert simulator.state()["bugs"] == []


@pytest.fixture
def refused() -> Callable[..., str]:
    """The code that a call is refused with."""

    def code(call: Callable[..., Any], *arguments: Any, **named: Any) -> str:
        with pytest.raises(ClientError) as caught:
            call(*arguments, **named)
        return str(caught.value.response["Error"]["Code"])

    return code
