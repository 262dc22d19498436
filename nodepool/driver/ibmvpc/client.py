# SPDX-License-Identifier: Apache-2.0
"""`IbmVpc`: all calls that the driver makes to the API of VPC, and to that of resource groups.

The calls to VPC are those of IBM's client, `ibm_vpc.VpcV1`: it knows addresses, parameters and bodies. What it would
send goes through `RestCalls`, which has the login, the pace, the repeats and the bounds of all calls. Resource groups
have a library of their own, which is not needed for two calls:
https://cloud.ibm.com/apidocs/resource-controller/resource-manager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qs, urlsplit

from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.driver.framework.fact import MAX_AGE_SECONDS, Fact
from nodepool.driver.framework.http.rest_calls import RestCalls, listed
from nodepool.driver.framework.rate import BucketSize
from nodepool.driver.ibmvpc.types import IbmFloatingIp, IbmImage, IbmProfile, IbmRecord, IbmSubnet, IbmVolume, VpcApi

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import PlainHttp
    from nodepool.driver.ibmvpc.config import IbmProviderConfig
    from nodepool.driver.ibmvpc.login import IbmLogin

T = TypeVar("T")

#: What the API does depends on it.
VERSION: Final = "2026-10-06"
#: Entries of a page: the most that IBM gives.
PAGE: Final = 100
CALL_SECONDS: Final = 45.0
#: A list that lacks a name or an id is asked for again unless it is as new as this, in seconds.
MISSING_SECONDS: Final = 10.0

#: Classes of calls. IBM does not say what it allows: what it puts off slows its class down.
READ: Final = "read"
CREATE: Final = "create"
ADDRESS: Final = "floating IP"
DELETE: Final = "delete"
#: Calls of a class that may begin at once after a pause, and how many times as fast as ``rate`` it is.
BURST: Final = 20
_SPEEDS: Final = {READ: 5.0, CREATE: 1.0, ADDRESS: 1.0, DELETE: 1.0}


def class_sizes(rate: float) -> dict[str, BucketSize]:
    """Buckets of the classes.

    :param rate: that of the configuration; 0 = the answers of IBM set the pace.
    """
    return {kind: BucketSize(BURST, speed * rate) for kind, speed in _SPEEDS.items()}


class IbmVpc:
    """One region. All methods block; any thread may call them. They raise what
    `nodepool.driver.framework.cloud_errors` has. Making it asks no one, but imports IBM's library.
    """

    def __init__(self, config: IbmProviderConfig, http: PlainHttp, login: IbmLogin) -> None:
        from ibm_cloud_sdk_core.authenticators import NoAuthAuthenticator
        from ibm_vpc import VpcV1

        # At DEBUG it makes `http.client` write what all libraries of the process send, with their tokens.
        talkative = logging.getLogger("ibm-cloud-sdk-core")
        talkative.setLevel(max(talkative.level, logging.INFO))
        self._login = login
        self._region_url = f"https://{config.region}.iaas.cloud.ibm.com/v1"
        #: Resource groups of the account: ids by name.
        self.known_groups: Fact[dict[str, str]] = Fact(self.groups)
        #: Names by id of those that were made here: lists may be late.
        self._made_groups: dict[str, str] = {}
        rate = config.rate or 0.0
        self.calls = RestCalls(config.name, http, VpcApi(), login, class_sizes(rate), BucketSize(1, rate))
        self._vpc = VpcV1(VERSION, NoAuthAuthenticator())
        self._vpc.send = self._send

    # -- instances --

    def instances(self) -> list[IbmRecord]:
        """All of the region."""
        return list(self._list("instances", self._record))

    def instance_named(self, name: str) -> IbmRecord | None:
        """The one of a name, which is unique in the region."""
        return next(self._list("instances", self._record, name=name), None)

    def create_instance(self, body: Mapping[str, Any], permit: Callable[[], None]) -> IbmRecord:
        """Make one. One that has its name is an error whose code is in `nodepool.driver.ibmvpc.types.EXISTS`."""
        return self._one(CREATE, "creating an instance", self._record, "create_instance", body, permit=permit)

    # -- what belongs to them --

    def floating_ips(self) -> list[IbmFloatingIp]:
        """All of the region."""
        return list(self._list("floating_ips", IbmFloatingIp))

    def floating_ip(self, floating_id: str) -> IbmFloatingIp:
        """One as it is now; raises CloudNotFound."""
        return self._one(READ, "reading floating_ips", IbmFloatingIp, "get_floating_ip", floating_id)

    def create_floating_ip(
        self, name: str, group_id: str, interface_id: str, permit: Callable[[], None]
    ) -> IbmFloatingIp:
        """Make one that is bound to an interface."""
        body = {"name": name, "resource_group": {"id": group_id}, "target": {"id": interface_id}}
        what = "creating a floating IP"
        return self._one(ADDRESS, what, IbmFloatingIp, "create_floating_ip", body, permit=permit)

    def bind_floating_ip(
        self, floating_id: str, name: str, interface_id: str, permit: Callable[[], None]
    ) -> IbmFloatingIp:
        """Bind one that is there to an interface that has none, whatever it is bound to, and rename it."""
        body, what = {"name": name, "target": {"id": interface_id}}, "binding a floating IP"
        return self._one(ADDRESS, what, IbmFloatingIp, "update_floating_ip", floating_id, body, permit=permit)

    def rename_floating_ip(self, floating_id: str, name: str) -> IbmFloatingIp:
        """Give one another name, whatever it is bound to."""
        what = "renaming a floating IP"
        return self._one(ADDRESS, what, IbmFloatingIp, "update_floating_ip", floating_id, {"name": name})

    def volumes(self) -> list[IbmVolume]:
        """All of the region."""
        return list(self._list("volumes", IbmVolume))

    def delete(self, kind: str, identity: str, permit: Callable[[], None] = lambda: None) -> None:
        """Order the deletion of an ``instance``, a ``floating_ip``, a ``volume`` or an ``image``.

        The floating IPs of an instance become free, and its boot volume is deleted with it. A floating IP is deleted
        whatever it is bound to.
        """
        self._ask(DELETE, f"deleting {kind}s", f"delete_{kind}", identity, permit=permit)

    # -- images --

    def images(self, **filters: str) -> Iterator[IbmImage]:
        """In the order of IBM; each page is a call.

        :param filters: such as ``name`` or ``visibility``.
        """
        return self._list("images", IbmImage, **filters)

    def image(self, image_id: str) -> IbmImage:
        """One as it is now; raises CloudNotFound."""
        return self._one(READ, "reading images", IbmImage, "get_image", image_id)

    def create_image(self, body: Mapping[str, Any], permit: Callable[[], None]) -> IbmImage:
        """Order an import."""
        return self._one(CREATE, "importing an image", IbmImage, "create_image", body, permit=permit)

    def rename_image(self, image_id: str, name: str) -> IbmImage:
        """Give an image another name."""
        return self._one(CREATE, "renaming an image", IbmImage, "update_image", image_id, {"name": name})

    # -- what seldom changes --

    def ids(self, kind: str) -> dict[str, str]:
        """Ids by name of all that there is of a kind, such as ``vpcs`` or ``keys``."""
        return dict(self._list(kind, lambda data: (data["name"], data["id"])))

    def subnets(self) -> list[IbmSubnet]:
        return list(self._list("subnets", IbmSubnet))

    def profiles(self) -> dict[str, IbmProfile]:
        """Profiles of instances, by name."""
        return {found.name: found for found in self._list("instance_profiles", IbmProfile)}

    def operating_systems(self) -> set[str]:
        """Names of those that an image may have."""
        return set(self._list("operating_systems", lambda data: str(data["name"])))

    # -- resource groups of the account --

    def groups(self) -> dict[str, str]:
        """Resource groups of the account: ids by name."""
        query = {"account_id": account} if (account := self._login.account_id()) else {}
        url, what = f"{self._login.credentials.groups_url}/v2/resource_groups", "listing resource groups"
        data = self.calls.call(READ, "GET", url, what, query=query, seconds=CALL_SECONDS).data

        def read(data: Any) -> dict[str, str]:
            used = [one for one in listed(data["resources"]) if one.get("state", "ACTIVE") == "ACTIVE"]
            return {one["name"]: one["id"] for one in used}

        return self.calls.read(what, read, data)

    def create_group(self, name: str) -> str:
        """Make a resource group; returns its id."""
        url, what = f"{self._login.credentials.groups_url}/v2/resource_groups", f"creating resource group {name}"
        body = {"name": name, "account_id": self._login.account_id()}
        answer = self.calls.call(CREATE, "POST", url, what, body=body, seconds=CALL_SECONDS)
        made = self._object(answer.data, what, lambda data: str(data["id"]))
        self._made_groups[made] = name
        return made

    # -- inside --

    def _record(self, data: Mapping[str, Any]) -> IbmRecord:
        return IbmRecord(data, self.calls.provider)

    def _ask(
        self, kind: str, what: str, operation: str, *arguments: Any, permit: Any = lambda: None, **named: Any
    ) -> Any:
        """Have a method of IBM's client called.

        :param kind: class of the call; ``what``: for errors; ``permit``: see `RestCalls.call`.
        """
        self._vpc.set_service_url(self._login.credentials.vpc_url or self._region_url)
        return getattr(self._vpc, operation)(*arguments, **named, call=(kind, what, permit)).get_result()

    def _send(self, request: Mapping[str, Any], call: tuple[str, str, Callable[[], None]]) -> Any:
        """In place of `ibm_cloud_sdk_core.BaseService.send`."""
        from ibm_cloud_sdk_core import DetailedResponse

        kind, what, permit = call
        answer = self.calls.call(
            kind,
            request["method"],
            request["url"],
            what,
            content=request["data"],
            query=request["params"],
            headers={name.title(): value for name, value in request["headers"].items()},
            seconds=CALL_SECONDS,
            permit=permit,
        )
        return DetailedResponse(response=answer.data, headers=answer.headers, status_code=answer.status)

    def _one(self, kind: str, what: str, of: Callable[[Any], T], operation: str, *arguments: Any, **more: Any) -> T:
        return self._object(self._ask(kind, what, operation, *arguments, **more), what, of)

    def _object(self, data: Any, what: str, of: Callable[[Any], T]) -> T:
        """What an answer says that must be an object with an id."""
        if not isinstance(data, dict) or not data.get("id"):
            raise CloudAway(f"Provider {self.calls.provider}: {what} failed: the answer is none of IBM's")
        return self.calls.read(what, lambda data: of(self._with_group(data)), data)

    def _with_group(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """The same with the name of its resource group, which lists of images leave out. May block.

        A group that the account does not list has no name. Nothing of this driver is in such a group.
        """
        group = data.get("resource_group") or {}
        identity = group.get("id")
        if not identity or group.get("name"):
            return data
        name = self._made_groups.get(identity)
        for max_age in (MAX_AGE_SECONDS, MISSING_SECONDS):
            if name is None:
                listed = self.known_groups.get(max_age).items()
                name = next((name for name, found in listed if found == identity), None)
        return {**data, "resource_group": {**group, "name": name}}

    def _list(self, kind: str, of: Callable[[Any], T], **filters: str) -> Iterator[T]:
        """The entries of a list of the region, over all its pages; each page is a call.

        :param of: what an entry says.
        """
        what, entries = f"listing {kind}", kind.removeprefix("instance_")

        def ask(start: Mapping[str, str] | None) -> Any:
            return self._ask(READ, what, f"list_{kind}", limit=PAGE, **filters, **(start or {}))

        def read(data: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], dict[str, str]]:
            # Only that counts of the address that is named: no other host is to see our token.
            href = (data.get("next") or {}).get("href") or ""
            start = {name: texts[0] for name, texts in parse_qs(urlsplit(href).query).items() if name == "start"}
            # Null stands for a list without entries.
            return listed([] if data[entries] is None else data[entries]), start

        for data in self.calls.pages(what, ask, read):
            yield self.calls.read(what, lambda data: of(self._with_group(data)), data)
