# SPDX-License-Identifier: Apache-2.0
"""What all parts of the simulated region share: ids, CRNs, addresses of things, and refusals in IBM's shape."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from simulators.base.core import SimulationCore
from simulators.base.messages import ApiError, Json
from simulators.ibmvpc.settings import IbmVpcSettings

ACCOUNT: Final = "a1b2c3d4e5f64718a9b0c1d2e3f40516"
REGION: Final = "us-south"
#: Zones, and what the ids of things in them begin with.
ZONES: Final = {f"{REGION}-1": "0717", f"{REGION}-2": "0727", f"{REGION}-3": "0737"}
_REGIONAL: Final = "r006"


class VpcError(ApiError):
    """A refusal of the VPC API.

    :param kind: IBM's code.
    :param target: name of the field or parameter that is wrong; "" = none.
    :param value: of it.
    """

    def __init__(self, status: int, kind: str, message: str, target: str = "", value: Any = None) -> None:
        super().__init__(status, message, kind)
        self.target: Json | None = None
        if target:
            where = "parameter" if target in ("version", "generation", "limit", "start", "id") else "field"
            self.target = {"name": target, "type": where} | ({} if value is None else {"value": str(value)})


def not_found(what: str, identity: str, status: int = 404) -> VpcError:
    """:param status: 404 where the path names it, 400 where the body does."""
    return VpcError(status, "not_found", f"{what} {identity} not found.", "id", identity)


class IbmCore(SimulationCore[IbmVpcSettings]):
    """Ids and times as IBM writes them."""

    def __init__(self, knobs: IbmVpcSettings, seed: int = 0, clock: Callable[[], float] | None = None) -> None:
        super().__init__(knobs, seed, clock)
        self._numbers = itertools.count(1)

    def number(self) -> int:
        """Of the next thing that is made."""
        return next(self._numbers)

    def new_id(self, zone: str = "", separator: str = "-") -> str:
        """Such as ``r006-<uuid>``, or ``0717-<uuid>`` of a thing in a zone; the same in each run."""
        # Far apart, as those of IBM are: nothing may count on their order.
        spread = (self.number() * 0x9E3779B97F4A7C15F39CC0605CEDC835) % (1 << 128)
        return f"{ZONES[zone] if zone else _REGIONAL}{separator}{uuid.UUID(int=spread, version=4)}"

    def stamp(self, later_seconds: float = 0.0) -> str:
        """Now, or later: UTC, by turns with and without a fraction."""
        text = datetime.fromtimestamp(int(self.now() + later_seconds), UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return self.turn("time", f"{text}Z", f"{text}.000Z")


def href(path: str) -> str:
    """Where a thing is, as IBM tells it."""
    return f"https://{REGION}.iaas.cloud.ibm.com/v1/{path}"


def crn(kind: str, identity: str, zone: str = "") -> str:
    """The Cloud Resource Name of a thing of the VPC service."""
    return f"crn:v1:bluemix:public:is:{zone or REGION}:a/{ACCOUNT}::{kind}:{identity}"


def zone_reference(zone: str) -> Json:
    return {"href": href(f"regions/{REGION}/zones/{zone}"), "name": zone}
