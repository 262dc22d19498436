# SPDX-License-Identifier: Apache-2.0
"""`IbmVpc`: all calls that the driver makes to the API of VPC, and to that of resource groups.

https://cloud.ibm.com/apidocs/vpc and https://cloud.ibm.com/apidocs/resource-controller/resource-manager have them.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound
from nodepool.driver.framework.fact import MAX_AGE_SECONDS, Fact
from nodepool.driver.framework.http.rest_calls import RestCalls
from nodepool.driver.framework.rate import BucketSize
from nodepool.driver.ibmvpc.errors import VpcApi
from nodepool.driver.ibmvpc.types import IbmFloatingIp, IbmImage, IbmProfile, IbmRecord, IbmSubnet, IbmVolume

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import PlainHttp
    from nodepool.driver.ibmvpc.config import IbmProviderConfig
    from nodepool.driver.ibmvpc.login import IbmLogin

T = TypeVar("T")

#: What the API does depends on it.
VERSION: Final = "2026-10-06"
#: Entries of a page: the most that IBM gives.
PAGE: Final = "100"
#: A list has no more pages than these: an answer that leads in a circle must end.
MOST_PAGES: Final = 1000
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
    `nodepool.driver.framework.cloud_errors` has. Making it asks nobody.
    """

    def __init__(self, config: IbmProviderConfig, http: PlainHttp, login: IbmLogin) -> None:
        self._login = login
        self._region = config.region
        #: Resource groups of the account: ids by name.
        self.known_groups: Fact[dict[str, str]] = Fact(self.groups)
        #: Names by id of those that were made here: lists may be late.
        self._made_groups: dict[str, str] = {}
        rate = config.rate or 0.0
        self.calls = RestCalls(config.name, http, VpcApi(), login, class_sizes(rate), BucketSize(1, rate))

    def close(self) -> None:
        """Calls that wait for their turn end; no new ones begin."""
        self.calls.close()

    def pause(self, seconds: float) -> None:
        """Wait between two calls. Blocks; raises CloudAway if the provider is stopped meanwhile."""
        self.calls.pause(seconds)

    # -- instances --

    def instances(self) -> list[IbmRecord]:
        """All of the region."""
        return list(self._list("instances", self._record))

    def instance_named(self, name: str) -> IbmRecord | None:
        """The one of a name, which is unique in the region."""
        return next(self._list("instances", self._record, name=name), None)

    def create_instance(self, body: Mapping[str, Any], permit: Callable[[], None]) -> IbmRecord:
        """Make one. One that has its name is an error whose code is in `nodepool.driver.ibmvpc.errors.EXISTS`."""
        return self._write(CREATE, "POST", self._url("instances"), self._record, body, "creating an instance", permit)

    def delete_instance(self, instance_id: str) -> None:
        """Order the deletion. Its floating IPs become free, and its boot volume is deleted with it."""
        self._delete("instances", instance_id)

    # -- what belongs to them --

    def floating_ips(self) -> list[IbmFloatingIp]:
        """All of the region."""
        return list(self._list("floating_ips", IbmFloatingIp.of))

    def floating_ip(self, floating_id: str, permit: Callable[[], None] = lambda: None) -> IbmFloatingIp:
        """One as it is now; raises CloudNotFound."""
        return self._get("floating_ips", floating_id, IbmFloatingIp.of, permit)

    def create_floating_ip(
        self, name: str, group_id: str, interface_id: str, permit: Callable[[], None]
    ) -> IbmFloatingIp:
        """Make one that is bound to an interface."""
        body = {"name": name, "resource_group": {"id": group_id}, "target": {"id": interface_id}}
        return self._write(
            ADDRESS, "POST", self._url("floating_ips"), IbmFloatingIp.of, body, "creating a floating IP", permit
        )

    def bind_floating_ip(
        self, floating_id: str, name: str, interface_id: str, permit: Callable[[], None]
    ) -> IbmFloatingIp:
        """Bind one that is there to an interface that has none, whatever it is bound to, and rename it."""
        body = {"name": name, "target": {"id": interface_id}}
        url, what = self._url("floating_ips", floating_id), "binding a floating IP"
        return self._write(ADDRESS, "PATCH", url, IbmFloatingIp.of, body, what, permit)

    def rename_floating_ip(self, floating_id: str, name: str, permit: Callable[[], None]) -> IbmFloatingIp:
        """Give one another name, whatever it is bound to."""
        url, what = self._url("floating_ips", floating_id), "claiming a floating IP"
        return self._write(ADDRESS, "PATCH", url, IbmFloatingIp.of, {"name": name}, what, permit)

    def delete_floating_ip(self, floating_id: str, permit: Callable[[], None]) -> None:
        """Delete one, whatever it is bound to."""
        self._delete("floating_ips", floating_id, permit)

    def volumes(self) -> list[IbmVolume]:
        """All of the region."""
        return list(self._list("volumes", IbmVolume.of))

    def delete_volume(self, volume_id: str) -> None:
        self._delete("volumes", volume_id)

    # -- images --

    def images(self, **filters: str) -> Iterator[IbmImage]:
        """In the order of IBM; each page is a call.

        :param filters: such as ``name`` or ``visibility``.
        """
        return self._list("images", IbmImage.of, **filters)

    def image(self, image_id: str) -> IbmImage:
        """One as it is now; raises CloudNotFound."""
        return self._get("images", image_id, IbmImage.of)

    def create_image(self, body: Mapping[str, Any], permit: Callable[[], None]) -> IbmImage:
        """Order an import."""
        return self._write(CREATE, "POST", self._url("images"), IbmImage.of, body, "importing an image", permit)

    def rename_image(self, image_id: str, name: str) -> IbmImage:
        """Give an image another name."""
        url, what = self._url("images", image_id), "renaming an image"
        return self._write(CREATE, "PATCH", url, IbmImage.of, {"name": name}, what)

    def delete_image(self, image_id: str) -> None:
        self._delete("images", image_id)

    # -- what seldom changes --

    def vpcs(self) -> dict[str, str]:
        """Ids by name."""
        return dict(self._list("vpcs", _name_and_id))

    def subnets(self) -> list[IbmSubnet]:
        return list(self._list("subnets", IbmSubnet.of))

    def keys(self) -> dict[str, str]:
        """SSH keys: ids by name."""
        return dict(self._list("keys", _name_and_id))

    def profiles(self) -> dict[str, IbmProfile]:
        """Profiles of instances, by name."""
        return {found.name: found for found in self._list("instance/profiles", IbmProfile.of, "profiles")}

    def operating_systems(self) -> set[str]:
        """Names of those that an image may have."""
        return set(self._list("operating_systems", lambda data: str(data["name"])))

    # -- resource groups and services of the account --

    def groups(self) -> dict[str, str]:
        """Resource groups of the account: ids by name."""
        url = f"{self._login.credentials.groups_url}/v2/resource_groups"
        query = {"account_id": account} if (account := self._login.account_id()) else {}
        what = "listing resource groups"
        found = [self.calls.read(what, _group, data) for data in self._pages(url, query, "resources", what)]
        return {name: identity for name, identity, active in found if active}

    def create_group(self, name: str) -> str:
        """Make a resource group; returns its id."""
        url = f"{self._login.credentials.groups_url}/v2/resource_groups"
        what = f"creating resource group {name}"
        body = {"name": name, "account_id": self._login.account_id()}
        answer = self.calls.call(CREATE, "POST", url, what, body=body, seconds=CALL_SECONDS)
        made = self._object(answer.data, what, lambda data: str(data["id"]))
        self._made_groups[made] = name
        return made

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

    def _get(self, kind: str, identity: str, of: Callable[[Any], T], permit: Callable[[], None] = lambda: None) -> T:
        what = f"reading {kind}"
        url = self._url(kind, identity)
        answer = self.calls.call(READ, "GET", url, what, query=self._query(), seconds=CALL_SECONDS, permit=permit)
        return self._object(answer.data, what, of)

    def _write(
        self,
        call_class: str,
        method: str,
        url: str,
        of: Callable[[Any], T],
        body: Mapping[str, Any],
        what: str,
        permit: Callable[[], None] = lambda: None,
    ) -> T:
        headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else None
        query = self._query()
        answer = self.calls.call(
            call_class,
            method,
            url,
            what,
            body=body,
            headers=headers,
            query=query,
            seconds=CALL_SECONDS,
            permit=permit,
        )
        return self._object(answer.data, what, of)

    def _delete(self, kind: str, identity: str, permit: Callable[[], None] = lambda: None) -> None:
        what = f"deleting {kind}"
        url = self._url(kind, identity)
        self.calls.call(DELETE, "DELETE", url, what, query=self._query(), seconds=CALL_SECONDS, permit=permit)

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

    def _list(self, path: str, of: Callable[[Any], T], entries: str = "", **filters: str) -> Iterator[T]:
        """The entries of a list of the region.

        :param of: what an entry says.
        :param entries: key of the entries; "" = the path.
        """
        query, what = self._query(limit=PAGE, **filters), f"listing {path}"
        for data in self._pages(self._url(path), query, entries or path, what):
            yield self.calls.read(what, lambda data: of(self._with_group(data)), data)

    def _pages(self, url: str, query: Mapping[str, str], entries: str, what: str) -> Iterator[Mapping[str, Any]]:
        """The entries of a list, over all its pages; each page is a call."""
        asked = dict(query)
        for _ in range(MOST_PAGES):
            data = self.calls.call(READ, "GET", url, what, query=asked, seconds=CALL_SECONDS).data
            found = data.get(entries, "") if isinstance(data, dict) else ""
            # Null stands for a list without entries.
            if not isinstance(found, list | None):
                raise CloudAway(f"Provider {self.calls.provider}: {what} failed: the answer is no list")
            yield from found or ()
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


def _name_and_id(data: Mapping[str, Any]) -> tuple[str, str]:
    return data["name"], data["id"]


def _group(data: Mapping[str, Any]) -> tuple[str, str, bool]:
    """Name and id of a resource group, and whether it is to be used."""
    return data["name"], data["id"], data.get("state", "ACTIVE") == "ACTIVE"
