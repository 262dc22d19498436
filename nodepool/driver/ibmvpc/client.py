# SPDX-License-Identifier: Apache-2.0
"""`IbmVpc`: all calls that the driver makes to the API of VPC, and to that of resource groups.

https://cloud.ibm.com/apidocs/vpc and https://cloud.ibm.com/apidocs/resource-controller/resource-manager have them.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound
from nodepool.driver.framework.http.rest_calls import RestCalls
from nodepool.driver.framework.token_bucket import BucketSize
from nodepool.driver.ibmvpc.errors import VpcApi
from nodepool.driver.ibmvpc.types import IbmFloatingIp, IbmImage, IbmProfile, IbmRecord, IbmSubnet, IbmVolume

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import PlainHttp
    from nodepool.driver.ibmvpc.config import IbmProviderConfig
    from nodepool.driver.ibmvpc.login import IbmLogin

#: What the API does depends on it.
VERSION: Final = "2026-10-06"
#: Entries of a page: the most that IBM gives.
PAGE: Final = "100"
#: A list has no more pages than these: an answer that leads in a circle must end.
MOST_PAGES: Final = 1000
CALL_SECONDS: Final = 45.0

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

    :param rate: that of the configuration; 0 = no limit.
    """
    return {kind: BucketSize(BURST, speed * rate) for kind, speed in _SPEEDS.items()}


class IbmVpc:
    """One region. All methods block; any thread may call them. They raise what
    `nodepool.driver.framework.cloud_errors` has. Making it asks nobody.
    """

    def __init__(self, config: IbmProviderConfig, http: PlainHttp, login: IbmLogin) -> None:
        self._login = login
        self._region = config.region
        self.calls = RestCalls(config.name, http, VpcApi(), login, class_sizes(config.rate), BucketSize(1, config.rate))

    def close(self) -> None:
        """Calls that wait for their turn end; no new ones begin."""
        self.calls.close()

    def pause(self, seconds: float) -> None:
        """Wait between two calls. Blocks; raises CloudAway if the provider is stopped meanwhile."""
        self.calls.pause(seconds)

    # -- instances --

    def instances(self) -> list[IbmRecord]:
        """All of the region."""
        return [self._record(data) for data in self._list("instances")]

    def instance_named(self, name: str) -> IbmRecord | None:
        """The one of a name, which is unique in the region."""
        found = (self._record(data) for data in self._list("instances", name=name))
        return next(found, None)

    def create_instance(self, body: Mapping[str, Any], permit: Callable[[], None]) -> IbmRecord:
        """Make one. One that has its name is an error whose code is in `nodepool.driver.ibmvpc.errors.EXISTS`."""
        return self._record(self._create(CREATE, "instances", body, "creating an instance", permit))

    def delete_instance(self, instance_id: str) -> None:
        """Order the deletion. Its floating IPs become free, and its boot volume is deleted with it."""
        self._delete("instances", instance_id)

    # -- what belongs to them --

    def floating_ips(self) -> list[IbmFloatingIp]:
        """All of the region."""
        return [IbmFloatingIp.of(data) for data in self._list("floating_ips")]

    def floating_ip(self, floating_id: str, permit: Callable[[], None] = lambda: None) -> IbmFloatingIp:
        """One as it is now; raises CloudNotFound."""
        return IbmFloatingIp.of(self._get("floating_ips", floating_id, permit))

    def create_floating_ip(
        self, name: str, group_id: str, interface_id: str, permit: Callable[[], None]
    ) -> IbmFloatingIp:
        """Make one that is bound to an interface."""
        body = {"name": name, "resource_group": {"id": group_id}, "target": {"id": interface_id}}
        return IbmFloatingIp.of(self._create(ADDRESS, "floating_ips", body, "creating a floating IP", permit))

    def bind_floating_ip(
        self, floating_id: str, name: str, interface_id: str, permit: Callable[[], None]
    ) -> IbmFloatingIp:
        """Bind one that is there to an interface that has none, whatever it is bound to, and rename it."""
        body = {"name": name, "target": {"id": interface_id}}
        url, what = self._url("floating_ips", floating_id), "binding a floating IP"
        return IbmFloatingIp.of(self._change(ADDRESS, url, body, what, permit))

    def rename_floating_ip(self, floating_id: str, name: str, permit: Callable[[], None]) -> IbmFloatingIp:
        """Give one another name, whatever it is bound to."""
        url, what = self._url("floating_ips", floating_id), "claiming a floating IP"
        return IbmFloatingIp.of(self._change(ADDRESS, url, {"name": name}, what, permit))

    def delete_floating_ip(self, floating_id: str, permit: Callable[[], None]) -> None:
        """Delete one, whatever it is bound to."""
        self._delete("floating_ips", floating_id, permit)

    def volumes(self) -> list[IbmVolume]:
        """All of the region."""
        return [IbmVolume.of(data) for data in self._list("volumes")]

    def delete_volume(self, volume_id: str) -> None:
        self._delete("volumes", volume_id)

    # -- images --

    def images(self, **filters: str) -> Iterator[IbmImage]:
        """In the order of IBM; each page is a call.

        :param filters: such as ``name`` or ``visibility``.
        """
        return (IbmImage.of(data) for data in self._list("images", **filters))

    def image(self, image_id: str) -> IbmImage:
        """One as it is now; raises CloudNotFound."""
        return IbmImage.of(self._get("images", image_id))

    def create_image(self, body: Mapping[str, Any], permit: Callable[[], None]) -> IbmImage:
        """Order an import."""
        return IbmImage.of(self._create(CREATE, "images", body, "importing an image", permit))

    def rename_image(self, image_id: str, name: str) -> IbmImage:
        """Give an image another name."""
        url, what = self._url("images", image_id), "renaming an image"
        return IbmImage.of(self._change(CREATE, url, {"name": name}, what))

    def delete_image(self, image_id: str) -> None:
        self._delete("images", image_id)

    # -- what seldom changes --

    def vpcs(self) -> dict[str, str]:
        """Ids by name."""
        return {data["name"]: data["id"] for data in self._list("vpcs")}

    def subnets(self) -> list[IbmSubnet]:
        return [IbmSubnet.of(data) for data in self._list("subnets")]

    def keys(self) -> dict[str, str]:
        """SSH keys: ids by name."""
        return {data["name"]: data["id"] for data in self._list("keys")}

    def profiles(self) -> dict[str, IbmProfile]:
        """Profiles of instances, by name."""
        return {data["name"]: IbmProfile.of(data) for data in self._list("instance/profiles", "profiles")}

    def operating_systems(self) -> set[str]:
        """Names of those that an image may have."""
        return {str(data["name"]) for data in self._list("operating_systems")}

    # -- resource groups and services of the account --

    def groups(self) -> dict[str, str]:
        """Resource groups of the account: ids by name."""
        url = f"{self._login.credentials.groups_url}/v2/resource_groups"
        query = {"account_id": account} if (account := self._login.account_id()) else {}
        found = self._pages(url, query, "resources", "listing resource groups")
        return {data["name"]: data["id"] for data in found if data.get("state", "ACTIVE") == "ACTIVE"}

    def create_group(self, name: str) -> str:
        """Make a resource group; returns its id."""
        url = f"{self._login.credentials.groups_url}/v2/resource_groups"
        what = f"creating resource group {name}"
        body = {"name": name, "account_id": self._login.account_id()}
        answer = self.calls.call(CREATE, "POST", url, what, body=body, seconds=CALL_SECONDS)
        return str(self._object(answer.data, what)["id"])

    def storage_instance(self, name: str) -> str:
        """The id (CRN) of an instance of a service, by its name; raises CloudNotFound."""
        url = f"{self._login.credentials.resources_url}/v2/resource_instances"
        query = {"name": name, "type": "service_instance"}
        found = list(self._pages(url, query, "resources", "looking for the object storage"))
        if not found:
            text = f"Provider {self.calls.provider}: the account has no instance {name!r} of Cloud Object Storage"
            raise CloudNotFound(f"{text}; correct object-storage.instance-name", code="not_found", status=404)
        return str(found[0].get("crn") or found[0]["id"])

    # -- inside --

    def _record(self, data: Mapping[str, Any]) -> IbmRecord:
        return IbmRecord.of(data, self.calls.provider)

    def _url(self, *path: str) -> str:
        base = self._login.credentials.vpc_url or f"https://{self._region}.iaas.cloud.ibm.com/v1"
        return "/".join((base, *path[:1], *(urllib.parse.quote(part, safe="") for part in path[1:])))

    @staticmethod
    def _query(**more: str) -> dict[str, str]:
        return {"version": VERSION, "generation": "2", **more}

    def _get(self, kind: str, identity: str, permit: Callable[[], None] = lambda: None) -> Mapping[str, Any]:
        what = f"reading {kind}"
        url = self._url(kind, identity)
        answer = self.calls.call(READ, "GET", url, what, query=self._query(), seconds=CALL_SECONDS, permit=permit)
        return self._object(answer.data, what)

    def _create(
        self, call_class: str, kind: str, body: Mapping[str, Any], what: str, permit: Callable[[], None]
    ) -> Mapping[str, Any]:
        answer = self.calls.call(
            call_class,
            "POST",
            self._url(kind),
            what,
            body=body,
            query=self._query(),
            seconds=CALL_SECONDS,
            permit=permit,
        )
        return self._object(answer.data, what)

    def _change(
        self,
        call_class: str,
        url: str,
        body: Mapping[str, Any],
        what: str,
        permit: Callable[[], None] = lambda: None,
    ) -> Mapping[str, Any]:
        answer = self.calls.call(
            call_class,
            "PATCH",
            url,
            what,
            body=body,
            headers={"Content-Type": "application/merge-patch+json"},
            query=self._query(),
            seconds=CALL_SECONDS,
            permit=permit,
        )
        return self._object(answer.data, what)

    def _delete(self, kind: str, identity: str, permit: Callable[[], None] = lambda: None) -> None:
        what = f"deleting {kind}"
        url = self._url(kind, identity)
        self.calls.call(DELETE, "DELETE", url, what, query=self._query(), seconds=CALL_SECONDS, permit=permit)

    def _object(self, data: Any, what: str) -> Mapping[str, Any]:
        """An answer that must be an object with an id."""
        if not isinstance(data, dict) or not data.get("id"):
            raise CloudAway(f"Provider {self.calls.provider}: {what} failed: the answer is none of IBM's")
        return data

    def _list(self, path: str, entries: str = "", **filters: str) -> Iterator[Mapping[str, Any]]:
        """The entries of a list of the region.

        :param entries: key of the entries; "" = the path.
        """
        query = self._query(limit=PAGE, **filters)
        return self._pages(self._url(path), query, entries or path, f"listing {path}")

    def _pages(self, url: str, query: Mapping[str, str], entries: str, what: str) -> Iterator[Mapping[str, Any]]:
        """The entries of a list, over all its pages; each page is a call."""
        asked = dict(query)
        for _ in range(MOST_PAGES):
            data = self.calls.call(READ, "GET", url, what, query=asked, seconds=CALL_SECONDS).data
            found = data.get(entries) if isinstance(data, dict) else None
            if not isinstance(found, list):
                raise CloudAway(f"Provider {self.calls.provider}: {what} failed: the answer is no list")
            yield from found
            start = _next_page(data)
            if start is None:
                return
            asked = {**asked, "start": start}
        raise CloudAway(f"Provider {self.calls.provider}: {what} failed: the list does not end")


def _next_page(data: Mapping[str, Any]) -> str | None:
    """Where the next page begins; None = there is none.

    Only that counts of the address that is told: no other host is to see our token.
    """
    href = (data.get("next") or {}).get("href") or data.get("next_url") or ""
    found = urllib.parse.parse_qs(urllib.parse.urlsplit(href).query).get("start")
    return found[0] if found else None
