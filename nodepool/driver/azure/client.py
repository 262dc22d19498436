# SPDX-License-Identifier: Apache-2.0
"""`Arm`: all calls of the Azure Resource Manager that the driver makes for machines."""

from __future__ import annotations

import contextlib
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from nodepool.driver.azure.errors import ArmApi, AzureError, errors_in, meaning
from nodepool.driver.azure.types import (
    AzureDisk,
    AzureImage,
    Interface,
    PublicAddress,
    Usage,
    VmRecord,
    VmSize,
    plain_location,
)
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudSetup
from nodepool.driver.framework.http.rest_calls import RestAnswer, RestCalls, same_server
from nodepool.driver.framework.rate import BucketSize

if TYPE_CHECKING:
    from nodepool.driver.azure.config import AzureProviderConfig
    from nodepool.driver.azure.login import AzureLogin
    from nodepool.driver.framework.http.plain_http import PlainHttp

T = TypeVar("T")

#: Versions of the APIs: VMs, images and usages; disks; sizes; all of networks; resource groups; galleries.
COMPUTE_VERSION: Final = "2025-11-01"
DISKS_VERSION: Final = "2024-03-02"
SKUS_VERSION: Final = "2021-07-01"
NETWORK_VERSION: Final = "2025-05-01"
GROUPS_VERSION: Final = "2021-04-01"
GALLERIES_VERSION: Final = "2023-07-03"

#: Classes of calls as Azure counts them: https://learn.microsoft.com/azure/azure-resource-manager/management/
#: request-limits-and-throttling. Sizes of buckets and calls a second, of a subscription and a region.
READ: Final = "read"
WRITE: Final = "write"
DELETE: Final = "delete"
_LIMITS: Final = {READ: (250, 25.0), WRITE: (200, 10.0), DELETE: (200, 10.0)}

COMPUTE: Final = "Microsoft.Compute"
NETWORK: Final = "Microsoft.Network"
#: Kinds of resources in the resource group: name in paths -> version.
VMS: Final = f"{COMPUTE}/virtualMachines"
DISKS: Final = f"{COMPUTE}/disks"
IMAGES: Final = f"{COMPUTE}/images"
INTERFACES: Final = f"{NETWORK}/networkInterfaces"
ADDRESSES: Final = f"{NETWORK}/publicIPAddresses"
_VERSIONS: Final = {
    VMS: COMPUTE_VERSION,
    DISKS: DISKS_VERSION,
    IMAGES: COMPUTE_VERSION,
    INTERFACES: NETWORK_VERSION,
    ADDRESSES: NETWORK_VERSION,
}
#: A list has no more pages than these: an answer that leads in a circle must end.
MOST_PAGES: Final = 1000
CALL_SECONDS: Final = 45.0


def class_sizes(rate: float | None) -> dict[str, BucketSize]:
    """Buckets of the classes.

    :param rate: of the configuration; 0 = no limit.
    """
    if rate == 0:
        return dict.fromkeys(_LIMITS, BucketSize(1, 0))
    return {kind: BucketSize(burst, speed) for kind, (burst, speed) in _LIMITS.items()}


class Arm:
    """One resource group. All methods block; any thread may call them. They raise what
    `nodepool.driver.framework.cloud_errors` has. Making it asks nobody.
    """

    def __init__(self, config: AzureProviderConfig, http: PlainHttp, login: AzureLogin) -> None:
        self._login = login
        self._group = config.resource_group
        self._location = plain_location(config.location)
        sizes = class_sizes(config.rate)
        self.calls = RestCalls(config.name, http, ArmApi(), login, sizes, sizes[READ], ceiling=config.rate or 0.0)

    def close(self) -> None:
        """Calls that wait for their turn end; no new ones begin."""
        self.calls.close()

    # -- VMs --

    def vms(self) -> list[VmRecord]:
        """All of the resource group, without addresses."""
        return list(self._list(VMS, VmRecord.of))

    def vm(self, name: str) -> VmRecord:
        """One VM as it is now; raises CloudNotFound."""
        return self._get(self._path(VMS, name), COMPUTE_VERSION, "reading a VM", VmRecord.of)

    def create_vm(self, name: str, body: Mapping[str, Any], permit: Callable[[], None]) -> str | None:
        """Make a VM with all that belongs to it; returns the address of the operation, if there is one.

        :raises CloudRefused: with status 412 if there is a VM of the name.
        """
        answer = self.calls.call(
            WRITE,
            "PUT",
            self._url(self._path(VMS, name), COMPUTE_VERSION),
            "creating a VM",
            body=body,
            # So that no VM is changed that is there already.
            headers={"If-None-Match": "*"},
            seconds=CALL_SECONDS,
            permit=permit,
        )
        return answer.headers.get("Azure-AsyncOperation")

    def vm_failure(self, name: str, operation: str | None, head: str) -> Exception | None:
        """Why the creation of a VM failed, in the words of Azure; None = it does not say.

        :param operation: address that `create_vm` returned; None = it is not known.
        """
        errors: list[AzureError] = []
        if operation is not None and same_server(operation, self._base):
            with contextlib.suppress(CloudNotFound):
                # Azure forgets operations.
                errors = errors_in(self.calls.call(READ, "GET", operation, "reading an operation").data)
        if not errors:
            path = f"{self._path(VMS, name)}/instanceView"
            errors = self._get(path, COMPUTE_VERSION, "reading the state of a VM", VmRecord.failures_in)
        return meaning(head, errors) if errors else None

    def delete(self, kind: str, name: str) -> None:
        """Order the deletion of a resource; raises CloudNotFound if there is none.

        :param kind: such as `VMS`.
        """
        if self.begin_delete(kind, name).status == 204:
            raise CloudNotFound(f"Provider {self.calls.provider}: {name} is gone", code="NotFound", status=204)

    def begin_delete(self, kind: str, name: str) -> RestAnswer:
        """The same; returns the answer, whose status is 204 if there is none."""
        return self.request(DELETE, "DELETE", kind, name, f"deleting {name}")

    def request(
        self,
        call_class: str,
        method: str,
        kind: str,
        name: str,
        what: str,
        action: str = "",
        body: Mapping[str, Any] | None = None,
    ) -> RestAnswer:
        """Any call about a resource of the group.

        :param call_class: such as `WRITE`.
        :param what: for errors.
        :param action: below the resource.
        """
        path = self._path(kind, name) + (f"/{action}" if action else "")
        url = self._url(path, _VERSIONS[kind])
        return self.calls.call(call_class, method, url, what, body=body, seconds=CALL_SECONDS)

    def checked(self, url: str) -> str:
        """An address of an operation that Azure told.

        :raises CloudAway: it does not lead to Azure: no other host is to see our token.
        """
        if not same_server(url, self._base):
            raise CloudAway(f"Provider {self.calls.provider}: Azure names an operation at another host")
        return url

    # -- what belongs to them --

    def interfaces(self) -> list[Interface]:
        return list(self._list(INTERFACES, Interface.of))

    def interface(self, name: str) -> Interface:
        """One of them; raises CloudNotFound."""
        return self._get(self._path(INTERFACES, name), NETWORK_VERSION, "reading an interface", Interface.of)

    def address(self, name: str) -> PublicAddress:
        """A public address; raises CloudNotFound."""
        return self._get(self._path(ADDRESSES, name), NETWORK_VERSION, "reading an address", PublicAddress.of)

    def addresses(self) -> list[PublicAddress]:
        return list(self._list(ADDRESSES, PublicAddress.of))

    def disks(self) -> list[AzureDisk]:
        return list(self._list(DISKS, AzureDisk.of))

    # -- what seldom changes --

    def subnet_id(self, group: str, network: str, subnet: str) -> str:
        """Id of a subnet; raises CloudNotFound."""
        quoted = urllib.parse.quote(network, safe="")
        path = f"{self._group_path(group)}/providers/{NETWORK}/virtualNetworks/{quoted}"
        path = f"{path}/subnets/{urllib.parse.quote(subnet, safe='')}"
        return self._get(path, NETWORK_VERSION, "reading the subnet", lambda data: str(data["id"]))

    def subnet_exists(self, subnet_id: str) -> None:
        """Raises CloudNotFound if there is no subnet of the id."""
        self._get(subnet_id, NETWORK_VERSION, "reading the subnet", lambda data: data["id"])

    def sizes(self) -> dict[str, VmSize]:
        """Sizes of VMs in the location, by lower-case name."""
        path = f"{self._subscription}/providers/{COMPUTE}/skus"
        query = {"api-version": SKUS_VERSION, "$filter": f"location eq '{self._location}'"}

        def size(data: Mapping[str, Any]) -> VmSize | None:
            return VmSize.of(data, self._location) if data.get("resourceType") == "virtualMachines" else None

        found = self._pages(f"{self._base}{path}", query, "listing the sizes of VMs", size)
        return {size.name.lower(): size for size in found if size is not None}

    def usages(self) -> list[Usage]:
        """Limits and use of the subscription in the location, of VMs and of networks."""
        found: list[Usage] = []
        for provider, version in ((COMPUTE, COMPUTE_VERSION), (NETWORK, NETWORK_VERSION)):
            path = f"{self._subscription}/providers/{provider}/locations/{self._location}/usages"
            what = f"listing the quota of {provider}"
            found.extend(self._pages(f"{self._base}{path}", {"api-version": version}, what, Usage.of))
        return found

    def image(self, name: str) -> AzureImage:
        """An image of the resource group; raises CloudNotFound."""
        return self._get(self._path(IMAGES, name), COMPUTE_VERSION, "reading an image", AzureImage.of)

    def images(self) -> list[AzureImage]:
        """All of the resource group."""
        return list(self._list(IMAGES, AzureImage.of))

    def image_exists(self, image_id: str) -> None:
        """Raises CloudNotFound if there is no image, or version of one in a gallery, of the id."""
        version = GALLERIES_VERSION if "/galleries/" in image_id.lower() else COMPUTE_VERSION
        self._get(image_id, version, "reading the image", lambda data: data["id"])

    def group_location(self) -> str:
        """Location of the resource group; raises CloudNotFound."""
        path = self._group_path(self._group)
        return self._get(path, GROUPS_VERSION, "reading the resource group", lambda data: str(data["location"]))

    # -- inside --

    @property
    def _base(self) -> str:
        return self._login.account.arm_url

    @property
    def _subscription(self) -> str:
        return f"/subscriptions/{urllib.parse.quote(self._login.account.subscription_id, safe='')}"

    def _group_path(self, group: str) -> str:
        return f"{self._subscription}/resourceGroups/{urllib.parse.quote(group, safe='')}"

    def _path(self, kind: str, name: str) -> str:
        """Id of a resource of the group."""
        return f"{self._group_path(self._group)}/providers/{kind}/{urllib.parse.quote(name, safe='')}"

    def resource_id(self, kind: str, name: str) -> str:
        """Id of a resource of the group, whether it is there or not."""
        return self._path(kind, name)

    def _url(self, path: str, version: str) -> str:
        if not path.startswith("/"):
            # An id of the configuration. Behind the host it would name another host, which must not see our token.
            raise CloudSetup(
                f"Provider {self.calls.provider}: {path!r} is no id of Azure; begin it with /subscriptions/"
            )
        return f"{self._base}{path}?api-version={version}"

    def _get(self, path: str, version: str, what: str, of: Callable[[Mapping[str, Any]], T]) -> T:
        data = self.calls.call(READ, "GET", self._url(path, version), what, seconds=CALL_SECONDS).data
        return self.calls.read(what, of, data)

    def _list(self, kind: str, of: Callable[[Mapping[str, Any]], T]) -> Iterator[T]:
        path = f"{self._group_path(self._group)}/providers/{kind}"
        what = f"listing {kind.partition('/')[2]}"
        return self._pages(f"{self._base}{path}", {"api-version": _VERSIONS[kind]}, what, of)

    def _pages(
        self, url: str, query: Mapping[str, str], what: str, of: Callable[[Mapping[str, Any]], T]
    ) -> Iterator[T]:
        """The entries of a list, over all its pages; each page is a call. A page may be empty and not the last one."""
        given: Mapping[str, str] | None = query
        for _ in range(MOST_PAGES):
            data = self.calls.call(READ, "GET", url, what, query=given, seconds=CALL_SECONDS).data
            if not isinstance(data, dict) or not isinstance(data.get("value"), list):
                raise CloudAway(f"Provider {self.calls.provider}: {what} failed: the answer is no list")
            for entry in data["value"]:
                yield self.calls.read(what, of, entry)
            url, given = data.get("nextLink") or "", None
            if not url:
                return
            if not same_server(url, self._base):
                raise CloudAway(f"Provider {self.calls.provider}: {what} failed: the next page is at another host")
        raise CloudAway(f"Provider {self.calls.provider}: {what} failed: the list does not end")
