# SPDX-License-Identifier: Apache-2.0
"""Operations on instances: run, describe, terminate, console."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from simulators.aws.core import ACCOUNT
from simulators.aws.filters import Table, matching, one_page
from simulators.aws.instance_record import CODES, TERMINATED, SimulatedInstance
from simulators.aws.run_spec import read_run_spec
from simulators.base.messages import ApiError, Json
from simulators.base.tokens import CreateTokens, TokenMismatch

if TYPE_CHECKING:
    from simulators.aws.cloud import Region

#: Longest client token.
MOST_TOKEN: Final = 64

FILTERS: Final[Table[SimulatedInstance]] = {
    "instance-id": lambda instance: [instance.id],
    "client-token": lambda instance: [instance.spec.token],
    "instance-state-name": lambda instance: [instance.state.shown.name],
    "instance-type": lambda instance: [instance.spec.type.name],
    "image-id": lambda instance: [instance.spec.image.id],
    "availability-zone": lambda instance: [instance.spec.zone],
    "subnet-id": lambda instance: [instance.spec.subnet.id],
    "key-name": lambda instance: [instance.spec.key_name],
    "host-id": lambda instance: [instance.spec.host_id],
    "reservation-id": lambda instance: [instance.reservation_id],
    "instance-lifecycle": lambda instance: ["spot"] if instance.spec.spot else [],
    "private-ip-address": lambda instance: [instance.private_ipv4],
    "ip-address": lambda instance: [instance.public_ipv4],
}


class InstanceOperations:
    """:ivar operations: handlers by name of operation."""

    def __init__(self, cloud: Region, shape: Any) -> None:
        """:param shape: of an Instance in the service model."""
        self.cloud = cloud
        self._shape = shape
        self._tokens: CreateTokens[list[SimulatedInstance]] = CreateTokens()
        self.operations: dict[str, Callable[[Json], Json]] = {
            "RunInstances": self._run,
            "DescribeInstances": self._describe,
            "TerminateInstances": self._terminate,
            "GetConsoleOutput": self._console,
        }

    def _run(self, arguments: Json) -> Json:
        least, most = arguments["MinCount"], arguments["MaxCount"]
        if not 1 <= least <= most:
            raise ApiError(400, f"Invalid values for MinCount and MaxCount: {least}, {most}", "InvalidParameterValue")
        token = arguments.get("ClientToken", "")
        if len(token) > MOST_TOKEN or not token.isascii():
            raise ApiError(400, "Invalid client token: at most 64 ASCII characters", "InvalidParameterValue")
        instances = self._earlier(token, arguments)
        if instances is None:
            spec = read_run_spec(self.cloud, arguments)
            instances = self.cloud.instances.run(spec, self.cloud.instances.room(spec, least, most))
            if token:
                self._tokens.remember(token, arguments, instances)
        return self._reservation(instances)

    def _earlier(self, token: str, arguments: Json) -> list[SimulatedInstance] | None:
        """What a call with the same token made."""
        if not token:
            return None
        try:
            found = self._tokens.find(token, arguments)
        except TokenMismatch:
            text = (
                "The client token you have provided is associated with a resource that is already deleted or has "
                "other parameters. Please use a different client token for the new resource."
            )
            raise ApiError(400, text, "IdempotentParameterMismatch") from None
        if found is not None:
            self.cloud.core.events["creations repeated"] += 1
            if all(instance.name == TERMINATED for instance in found):
                text = f"The instances of the client token {token} are terminated"
                raise ApiError(400, text, "IdempotentInstanceTerminated")
        return found

    def _describe(self, arguments: Json) -> Json:
        instances = self.cloud.instances
        ids = arguments.get("InstanceIds")
        if ids and "MaxResults" in arguments:
            text = "The parameter instancesSet cannot be used with the parameter maxResults"
            raise ApiError(400, text, "InvalidParameterCombination")
        asked = instances.get(ids) if ids else instances.visible()
        found = matching(asked, arguments.get("Filters", ()), FILTERS, lambda instance: instance.tags.shown)
        page, token = one_page(self.cloud.core, found, lambda instance: instance.id, arguments)
        groups = groupby(page, key=lambda instance: instance.reservation_id)
        return {"Reservations": [self._reservation(group) for _id, group in groups], "NextToken": token}

    def _reservation(self, instances: Iterable[SimulatedInstance]) -> Json:
        shown = list(instances)
        return {
            "ReservationId": shown[0].reservation_id,
            "OwnerId": ACCOUNT,
            "Groups": [],
            "Instances": [instance.text(self._shape, self.cloud.core.turn) for instance in shown],
        }

    def _terminate(self, arguments: Json) -> Json:
        changes = []
        for instance in self.cloud.instances.get(arguments["InstanceIds"]):
            before = instance.name
            self.cloud.instances.terminate(instance)
            changes.append(
                {
                    "InstanceId": instance.id,
                    "PreviousState": {"Code": CODES[before], "Name": before},
                    "CurrentState": {"Code": CODES[instance.name], "Name": instance.name},
                }
            )
        return {"TerminatingInstances": changes}

    def _console(self, arguments: Json) -> Json:
        core = self.cloud.core
        (instance,) = self.cloud.instances.get([arguments["InstanceId"]])
        text = f"[    0.000000] Linux version (simulated) of {instance.id}\n{instance.id} login: \n"
        output = "" if instance.name == "pending" else base64.b64encode(text.encode()).decode()
        return {"InstanceId": instance.id, "Timestamp": core.now(), "Output": output}
