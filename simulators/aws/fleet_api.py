# SPDX-License-Identifier: Apache-2.0
"""CreateFleet, as far as fleets of the type ``instant`` go: they make instances at once, and are nothing afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from simulators.aws.run_spec import read_run_spec
from simulators.base.messages import ApiError, Json
from simulators.base.tokens import CreateTokens, TokenMismatch

if TYPE_CHECKING:
    from simulators.aws.cloud import Region
    from simulators.aws.instance_record import SimulatedInstance

#: What an override and a template may say of an instance.
_OF_INSTANCES: Final = ("InstanceType", "ImageId", "SubnetId")
_ON_DEMAND: Final = ("lowest-price", "prioritized")
_SPOT: Final = (
    *("lowest-price", "diversified", "capacity-optimized", "capacity-optimized-prioritized"),
    "price-capacity-optimized",
)


class FleetOperations:
    """:ivar operations: handlers by name of operation."""

    def __init__(self, cloud: Region) -> None:
        self.cloud = cloud
        self._tokens: CreateTokens[Json] = CreateTokens()
        self.operations: dict[str, Callable[[Json], Json]] = {"CreateFleet": self._create}

    def _create(self, arguments: Json) -> Json:
        token = arguments.get("ClientToken", "")
        try:
            answer = self._tokens.find(token, arguments) if token else None
        except TokenMismatch:
            text = "The client token was used with other parameters."
            raise ApiError(400, text, "IdempotentParameterMismatch") from None
        if answer is not None:
            self.cloud.core.events["creations repeated"] += 1
            return answer
        answer = self._made(arguments)
        if token:
            self._tokens.remember(token, arguments, answer)
        return answer

    def _made(self, arguments: Json) -> Json:
        if arguments.get("Type") != "instant":
            raise ApiError(400, "The simulated region has fleets of the type instant only", "InvalidParameterValue")
        wanted = arguments["TargetCapacitySpecification"]
        spot = wanted.get("DefaultTargetCapacityType", "on-demand") == "spot"
        _check_strategy(arguments, spot)
        fleet_id = self.cloud.core.new_id("fleet")
        missing = wanted["TotalTargetCapacity"]
        instances, errors = [], []
        for template, override in self._overrides(arguments):
            if missing == 0:
                break
            told = {"LaunchTemplateAndOverrides": {"Overrides": override}, "Lifecycle": "spot" if spot else "on-demand"}
            try:
                made = self._run(arguments, template, override, spot, missing, fleet_id)
            except ApiError as error:
                # What one type lacks is told in an answer that is no error.
                errors.append({**told, "ErrorCode": error.kind, "ErrorMessage": error.message})
                continue
            missing -= len(made)
            ids = [instance.id for instance in made]
            instances.append({**told, "InstanceIds": ids, "InstanceType": made[0].spec.type.name})
        return {"FleetId": fleet_id, "Errors": errors, "Instances": instances}

    def _overrides(self, arguments: Json) -> Iterator[tuple[Json, Json]]:
        """The data of the template and each override, in the order in which they are tried."""
        found = []
        for config in arguments["LaunchTemplateConfigs"]:
            named = config["LaunchTemplateSpecification"]
            template = self.cloud.templates.find(named.get("LaunchTemplateId"), named.get("LaunchTemplateName"))
            found += [(template.data, override) for override in config.get("Overrides") or [{}]]
        yield from sorted(found, key=lambda pair: float(pair[1].get("Priority", 0)))

    def _run(
        self, arguments: Json, template: Json, override: Json, spot: bool, missing: int, fleet_id: str
    ) -> list[SimulatedInstance]:
        given = {key: value for key, value in template.items() if key != "TagSpecifications"}
        given |= {key: override[key] for key in _OF_INSTANCES if key in override}
        if "AvailabilityZone" in override:
            given["Placement"] = {"AvailabilityZone": override["AvailabilityZone"]}
        given["TagSpecifications"] = arguments.get("TagSpecifications", ())
        given["ClientToken"] = f"{fleet_id}-0"
        if spot:
            given["InstanceMarketOptions"] = {"MarketType": "spot"}
        spec = read_run_spec(self.cloud, given)
        spec.tags["aws:ec2:fleet-id"] = fleet_id
        return self.cloud.instances.run(spec, self.cloud.instances.room(spec, 1, missing))


def _check_strategy(arguments: Json, spot: bool) -> None:
    options, known = ("SpotOptions", _SPOT) if spot else ("OnDemandOptions", _ON_DEMAND)
    strategy = arguments.get(options, {}).get("AllocationStrategy")
    if strategy is not None and strategy not in known:
        raise ApiError(400, f"{strategy} is no allocation strategy of {options}", "InvalidParameterValue")
