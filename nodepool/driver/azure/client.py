# SPDX-License-Identifier: Apache-2.0
"""What Azure says, and `Arm`: all calls of the Azure Resource Manager that the driver makes.

First what errors mean, in the words of `nodepool.driver.framework.cloud_errors` (AZ-10, CM-6). An error is ``{"code",
"message", "details": [...]}``; the code that says most is often one of the details, or in a message that is JSON. The
same form is used by answers, by operations that failed, and by states of a VM. Then come small values, then the calls.

Ids and names are compared without case: Azure changes it.
"""

from __future__ import annotations

import contextlib
import json
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar

from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNotFound,
    CloudRefused,
    CloudSetup,
    CodedError,
    NotFoundByProxy,
    codes,
)
from nodepool.driver.framework.http.rest_calls import (
    PROXY,
    CodedApi,
    NoAnswer,
    RestAnswer,
    RestCalls,
    listed,
    same_server,
)
from nodepool.driver.framework.rate import BucketSize
from nodepool.driver.statemachine.inventory import CloudRecord

if TYPE_CHECKING:
    from nodepool.driver.azure.config import AzureProviderConfig
    from nodepool.driver.azure.login import AzureLogin
    from nodepool.driver.framework.http.plain_http import HttpAnswer, PlainHttp

#: How the codes of limits of networks end, such as ``IPv4StandardSkuPublicIpCountLimitReached``; without case.
_COUNT_LIMIT: Final = "countlimitreached"
#: Codes of quota that mean it only if the message says so.
MAYBE_QUOTA: Final = frozenset({"OperationNotAllowed", "Conflict", "BadRequest"})
_QUOTA_WORDS: Final = re.compile(r"exceeding approved .*quota|quota limit|quota has been reached", re.IGNORECASE)
#: Codes that mean it only if the message says so.
_MAYBE_BUSY: Final = frozenset({"OperationNotAllowed", "Conflict"})
_BUSY_WORDS: Final = re.compile(
    "marked for deletion|concurrent request|another operation|operation is in progress|being (deleted|provisioned)",
    re.IGNORECASE,
)
#: With status 404: the call went to the wrong place. That says nothing of what was asked for.
WRONG_PLACE: Final = codes(
    "SubscriptionNotFound InvalidSubscriptionId InvalidResourceType InvalidResourceNamespace NoRegisteredProviderFound "
    "MissingSubscriptionRegistration LocationNotAvailableForResourceType"
)
#: With fewer calls left than these in a class, the class pauses: for a moment, or because its window has minutes.
LOWEST_LEFT: Final = 3
_PAUSE_SECONDS: Final = 1.0
_WINDOW_PAUSE_SECONDS: Final = 5.0
_LEFT: Final = re.compile(r"x-ms-ratelimit-remaining-subscription-(?:global-)?(?:reads|writes|deletes)", re.IGNORECASE)
_RESOURCE_LEFT: Final = "x-ms-ratelimit-remaining-resource"
#: Such a window, ``Microsoft.Compute/LowCostGetResource`` for example, is of calls about one VM: others go on.
_OF_ONE: Final = "Resource"
#: How deep details may be in each other.
_DEEPEST: Final = 5


class CloudBusy(CloudRefused):
    """Refused only for now: the same call will be accepted when something else has ended."""


class ArmApi(CodedApi):
    """What the answers of the Azure Resource Manager mean."""

    #: A quota of the subscription, or another limit, is used up. It may be free again soon, so the launch waits.
    quota = codes(
        "QuotaExceeded ResourceQuotaExceeded SubscriptionQuotaExceeded SubnetIsFull "
        "MaxStorageAccountsCountPerSubscriptionExceeded"
    )
    #: There is no capacity in this zone, or none of this size. Others may have some.
    capacity = codes(
        "AllocationFailed ZonalAllocationFailed OverconstrainedAllocationRequest OverconstrainedZonalAllocationRequest "
        "SkuNotAvailable AllocationTimeout"
    )
    #: Too many calls: nothing was done.
    throttled_codes = frozenset({"TooManyRequests", "SubscriptionRequestsThrottled"})
    #: The credentials are not, or no longer, valid: nothing was done.
    login = codes(
        "InvalidAuthenticationToken InvalidAuthenticationTokenTenant ExpiredAuthenticationToken AuthenticationFailed "
        "AuthenticationFailedMissingToken"
    )
    #: The credentials are good, but not for this.
    denied = codes("AuthorizationFailed LinkedAuthorizationFailed RequestDisallowedByPolicy LinkedAccessCheckFailed")
    #: Azure has trouble of its own. Who knows what was done?
    away = codes("InternalServerError ServiceUnavailable InternalExecutionError InternalOperationError ServerTimeout")
    busy = codes(
        "AnotherOperationInProgress RetryableError RetryableErrorDueToAnotherOperation OperationPreempted "
        "NicReservedForAnotherVm ConflictingConcurrentWriteNotAllowed AttachDiskWhileBeingDetached "
        "ReferencedResourceNotProvisioned CanceledAndSupersededDueToAnotherOperation"
    )
    busy_error = CloudBusy
    last_says_most = True
    #: The remedy for each that has one.
    remedies: ClassVar[Mapping[str, str]] = {
        "AuthorizationFailed": "give the credentials the role that the documentation of the driver shows",
        "LinkedAuthorizationFailed": "give the credentials the role that the documentation of the driver shows",
        "RequestDisallowedByPolicy": "a policy of the subscription forbids it: change the policy or the label",
        "ResourceGroupNotFound": "correct resource-group, or make the resource group",
        "ResourceGroupBeingDeleted": "the resource group is being deleted: name another one in resource-group",
        "ScopeLocked": "remove the lock of the resource group, or name another one in resource-group",
        "SubscriptionNotFound": "correct subscriptionId in the file of auth-path",
        "InvalidSubscriptionId": "correct subscriptionId in the file of auth-path",
        "NoRegisteredProviderFound": "correct location",
        "LocationNotAvailableForResourceType": "correct location",
        "ImageNotFound": "correct the image of the label",
        "PlatformImageNotFound": "correct image-reference",
        "GalleryImageNotFound": "correct the gallery, the image or its version",
        "InvalidParameter": "check vm-size, image and volume-size of the label: they do not fit together",
        "VMSizeDoesntSupport": "choose another vm-size",
        "MarketplacePurchaseEligibilityFailed": "accept the terms of the image in the Marketplace",
        "ResourcePurchaseValidationFailed": "accept the terms of the image in the Marketplace",
        "SubnetIsFull": "use a larger subnet, or lower max-servers",
    }
    more_quota = "ask for more under Quotas in the portal, or lower max-servers"
    check_login = "check the file of auth-path"

    def throttled(self, answer: HttpAnswer) -> bool:
        # Networks say with the same status that one resource is busy: other calls need not wait.
        return answer.status == 429 and not any(map(self.is_busy, self.errors_in(answer.data)))

    def seconds_left_alone(self, kind: str, answer: HttpAnswer) -> float | None:
        # Hardly any call is left.
        for part in answer.headers.get(_RESOURCE_LEFT, "").split(","):
            window, _, left = part.rpartition(";")
            if not window.strip().endswith(_OF_ONE) and left.strip().isdigit() and int(left) < LOWEST_LEFT:
                return _WINDOW_PAUSE_SECONDS
        for name, value in answer.headers.items():
            if _LEFT.fullmatch(name) and value.isdigit() and int(value) < LOWEST_LEFT:
                return _PAUSE_SECONDS
        return None

    def errors_in(self, data: Any) -> list[CodedError]:
        """All errors in an answer or an operation, the outer one first."""
        return list(_walk(data.get("error", data) if isinstance(data, dict) else data, _DEEPEST))

    def is_quota(self, error: CodedError) -> bool:
        if super().is_quota(error) or error.code.lower().endswith(_COUNT_LIMIT):
            return True
        return error.code in MAYBE_QUOTA and _QUOTA_WORDS.search(error.message) is not None

    def is_busy(self, error: CodedError) -> bool:
        if super().is_busy(error):
            return True
        return error.code in _MAYBE_BUSY and _BUSY_WORDS.search(error.message) is not None

    def not_found(self, text: str, errors: Sequence[CodedError], code: str) -> CloudRefused | CloudAway:
        if not errors:
            # Azure says what it did not find. This is the answer of something before it, and proves nothing.
            return NotFoundByProxy(f"{text}; {PROXY}", code=code)
        wrong_place = any(error.code in WRONG_PLACE for error in errors)
        return (CloudSetup if wrong_place else CloudNotFound)(text, code=code, status=404)


class _Enclosing(CodedError):
    """Its message is JSON. It is shown by the errors in it, which follow; the message says what kind of error it is."""

    __slots__ = ()

    def __str__(self) -> str:
        return self.code


def _walk(data: Any, depth: int) -> Iterator[CodedError]:
    """Not all services keep to the form: where a list belongs may be one error, and a list where one belongs."""
    if isinstance(data, list):
        for entry in data:
            yield from _walk(entry if isinstance(entry, dict) else None, depth)
    if depth <= 0 or not isinstance(data, dict):
        return
    code, message = data.get("code"), data.get("message")
    kind, nested = CodedError, None
    if isinstance(message, str) and message.lstrip().startswith("{"):
        kind = _Enclosing
        with contextlib.suppress(ValueError, RecursionError):
            nested = json.loads(message)
    if isinstance(code, str) and code:
        yield kind(code, message if isinstance(message, str) else "")
    if isinstance(nested, dict):
        yield from _walk(nested.get("error", nested), depth - 1)
    yield from _walk(data.get("details"), depth - 1)
    yield from _walk(data.get("innererror"), depth - 1)


_API: Final = ArmApi()
errors_in: Final = _API.errors_in
meaning: Final = _API.meaning


# What there is in a resource group, as small values.

T = TypeVar("T")

CREATING: Final = "Creating"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
CANCELED: Final = "Canceled"
DELETING: Final = "Deleting"


def _properties_of(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return data.get("properties") or {}


def _state_of(data: Mapping[str, Any]) -> str:
    """``provisioningState``, in the form of `SUCCEEDED`: clients are to compare it without case, as azure-core does."""
    return str(_properties_of(data).get("provisioningState") or "").capitalize()


def plain_location(text: str) -> str:
    """A location as ids have it: ``North Europe`` is ``northeurope``. Azure accepts and gives both."""
    return text.replace(" ", "").lower()


def _tags_of(data: Mapping[str, Any]) -> dict[str, str]:
    """The tags of anything. Their names ignore case for Azure, which keeps that of the first who set one."""
    return {
        (name.lower() if name.lower().startswith("nodepool_") else name): str(value)
        for name, value in (data.get("tags") or {}).items()
    }


def name_of(resource_id: str) -> str:
    """The last part of an id."""
    return resource_id.rpartition("/")[2]


class Addresses(NamedTuple):
    """Of one VM."""

    public_ipv4: str | None = None
    public_ipv6: str | None = None
    private_ipv4: str | None = None
    private_ipv6: str | None = None


class VmRecord(CloudRecord):
    """A VM as a list shows it: a record of the inventory (AZ-7). What is deleted is in no list.

    :ivar id: its name, in lower case: the one thing that is known before it is made.
    :ivar vm_id: changes when a VM of the same name is made anew.
    :ivar interface_id: of the first network interface, in lower case.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        properties = _properties_of(data)
        interfaces = (properties.get("networkProfile") or {}).get("networkInterfaces") or ()
        # An answer may have the id alone.
        self.id: str = (data.get("name") or name_of(data["id"])).lower()
        self.status = _state_of(data)
        self.metadata = _tags_of(data)
        self.size: str = (properties.get("hardwareProfile") or {}).get("vmSize") or ""
        self.location: str = data.get("location") or ""
        self.zone: str = next(iter(data.get("zones") or ()), "")
        self.spot = properties.get("priority") in ("Spot", "SpotPlus", "Low")
        self.vm_id: str = properties.get("vmId") or ""
        self.interface_id: str = next(((entry.get("id") or "").lower() for entry in interfaces), "")
        self.addresses = Addresses()


def _failures_in(instance_view: Mapping[str, Any]) -> list[CodedError]:
    """What the states of a VM say of its failure: codes such as ``ProvisioningState/failed/AllocationFailed``."""
    found = []
    for status in instance_view.get("statuses") or ():
        what, _, code = str(status.get("code") or "").rpartition("/")
        if what.lower() == "provisioningstate/failed":
            found.append(CodedError(code, status.get("message") or ""))
    return found


class IpConfiguration(CloudRecord):
    """One family of addresses of a network interface. ``public_id``: of its public address, in lower case."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        properties = _properties_of(data)
        self.ipv6 = str(properties.get("privateIPAddressVersion")).lower() == "ipv6"
        self.address: str | None = properties.get("privateIPAddress") or None
        self.public_id: str = ((properties.get("publicIPAddress") or {}).get("id") or "").lower()


class ArmResource(CloudRecord):
    """Something of the resource group that is no VM: network interface, public address, disk or image.

    :ivar used: a VM has the interface or the disk, or an interface the address.
    :ivar address: of a public address; ``configurations``: of a network interface.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        properties = _properties_of(data)
        self.id: str = data["id"]
        self.name: str = data.get("name") or name_of(data["id"])
        self.status = _state_of(data)
        self.location: str = data.get("location") or ""
        self.metadata = _tags_of(data)
        self.used = bool(properties.get("virtualMachine") or properties.get("ipConfiguration") or data.get("managedBy"))
        self.address: str | None = properties.get("ipAddress") or None
        self.configurations = [IpConfiguration(one) for one in properties.get("ipConfigurations") or ()]

    @property
    def public_ids(self) -> list[str]:
        """Ids of the public addresses of a network interface."""
        return [configuration.public_id for configuration in self.configurations if configuration.public_id]


def by_id(found: Iterable[ArmResource]) -> dict[str, ArmResource]:
    """By id in lower case."""
    return {resource.id.lower(): resource for resource in found}


def addresses_of(interface: ArmResource, public: Mapping[str, ArmResource]) -> Addresses | None:
    """The addresses of an interface; None = some of them are not there yet (AZ-7).

    :param public: public addresses, by id in lower case.
    """
    found: dict[str, str] = {}
    for configuration in interface.configurations:
        family = "ipv6" if configuration.ipv6 else "ipv4"
        if configuration.address is None:
            return None
        found[f"private_{family}"] = configuration.address
        if configuration.public_id:
            known = public.get(configuration.public_id)
            if known is None or known.address is None:
                return None
            found[f"public_{family}"] = known.address
    return Addresses(**found) if found else None


class VmSize(CloudRecord):
    """A size of VMs in the location.

    :ivar family: name of the quota of its cores. ``zones``: those that the subscription may use. ``restricted``: why it
        may not use the size in the location; "" = it may.
    """

    def __init__(self, data: Mapping[str, Any], location: str) -> None:
        capabilities = {entry.get("name"): entry.get("value") for entry in data.get("capabilities") or ()}
        here = (
            info for info in data.get("locationInfo") or () if plain_location(info.get("location") or "") == location
        )
        restrictions = data.get("restrictions") or ()
        whole = (entry for entry in restrictions if entry.get("type") == "Location")
        closed = {
            zone
            for entry in restrictions
            if entry.get("type") == "Zone"
            for zone in (entry.get("restrictionInfo") or {}).get("zones") or ()
        }
        self.name: str = data["name"]
        self.family: str = data.get("family") or ""
        self.cores = int(capabilities.get("vCPUs") or 0)
        self.ram_mib = int(float(capabilities.get("MemoryGB") or 0) * 1024)
        self.zones = tuple(zone for zone in (next(here, None) or {}).get("zones") or () if zone not in closed)
        self.restricted: str = next((entry.get("reasonCode") or "restricted" for entry in whole), "")


class Usage(CloudRecord):
    """A quota of the subscription in the location."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.name = str((data.get("name") or {}).get("value") or "")
        self.limit, self.used = float(data["limit"]), float(data.get("currentValue") or 0)


# `Arm`: the calls.

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
_LIMITS: Final = {READ: BucketSize(250, 25.0), WRITE: BucketSize(200, 10.0), DELETE: BucketSize(200, 10.0)}

COMPUTE: Final = "Microsoft.Compute"
NETWORK: Final = "Microsoft.Network"
#: Kinds of resources in the resource group, as paths name them.
VMS: Final = f"{COMPUTE}/virtualMachines"
DISKS: Final = f"{COMPUTE}/disks"
IMAGES: Final = f"{COMPUTE}/images"
INTERFACES: Final = f"{NETWORK}/networkInterfaces"
ADDRESSES: Final = f"{NETWORK}/publicIPAddresses"
#: Kind -> what one of it is called in errors.
_WORDS: Final = {VMS: "a VM", IMAGES: "an image", INTERFACES: "an interface", ADDRESSES: "an address"}
CALL_SECONDS: Final = 45.0


def _version_of(kind: str) -> str:
    if kind == DISKS:
        return DISKS_VERSION
    return NETWORK_VERSION if kind.startswith(NETWORK) else COMPUTE_VERSION


class Arm:
    """One resource group. All methods block; any thread may call them. They raise what
    `nodepool.driver.framework.cloud_errors` has. Making it asks no one.
    """

    def __init__(self, config: AzureProviderConfig, http: PlainHttp, login: AzureLogin) -> None:
        self._login = login
        self._http = http
        self._group = config.resource_group
        self._location = plain_location(config.location)
        sizes = dict.fromkeys(_LIMITS, BucketSize(1, 0)) if config.rate == 0 else _LIMITS
        self.calls = RestCalls(config.name, http, ArmApi(), login, sizes, sizes[READ], ceiling=config.rate or 0.0)
        self._call = partial(self.calls.call, seconds=CALL_SECONDS)

    # -- VMs --

    def vms(self) -> list[VmRecord]:
        """All of the resource group, without addresses."""
        return list(self._list(VMS, VmRecord))

    def vm(self, name: str) -> VmRecord:
        """One VM as it is now; raises CloudNotFound."""
        return self._get(VMS, name, VmRecord)

    def create_vm(self, name: str, body: Mapping[str, Any], permit: Callable[[], None]) -> str | None:
        """Make a VM with all that belongs to it; returns the address of the operation, if there is one.

        :raises CloudRefused: with status 412 if there is a VM of the name.
        """
        url = self._url(self.path(VMS, name), COMPUTE_VERSION)
        # So that no VM is changed that is there already.
        headers = {"If-None-Match": "*"}
        answer = self._call(WRITE, "PUT", url, "creating a VM", body=body, headers=headers, permit=permit)
        return answer.headers.get("Azure-AsyncOperation")

    def vm_failure(self, name: str, operation: str | None, head: str) -> Exception | None:
        """Why the creation of a VM failed, in the words of Azure; None = it does not say.

        :param operation: address that `create_vm` returned; None = it is not known.
        """
        errors: list[CodedError] = []
        if operation is not None and same_server(operation, self._base):
            with contextlib.suppress(CloudNotFound):
                # Azure forgets operations.
                errors = errors_in(self._call(READ, "GET", operation, "reading an operation").data)
        if not errors:
            path = f"{self.path(VMS, name)}/instanceView"
            errors = self._read(path, COMPUTE_VERSION, "reading the state of a VM", _failures_in)
        return meaning(head, errors) if errors else None

    def console(self, name: str) -> str | None:
        """What a VM with boot diagnostics wrote to its serial console; None = nothing so far. Raises CloudNotFound."""
        found = self.request("POST", VMS, name, "reading the console", "/retrieveBootDiagnosticsData").data
        address = found.get("serialConsoleLogBlobUri") if isinstance(found, dict) else None
        if not isinstance(address, str) or urllib.parse.urlsplit(address).scheme not in ("https", "http"):
            return None
        try:
            answer = self._http.send("GET", address, {}, seconds=CALL_SECONDS)
        except NoAnswer:
            # Without what it says: the address is as good as a password.
            return None
        return answer.content.decode(errors="replace") if answer.status == 200 else None

    # -- resources of any kind --

    def all_of(self, kind: str) -> list[ArmResource]:
        """All of the resource group.

        :param kind: such as `DISKS`.
        """
        return list(self._list(kind, ArmResource))

    def one_of(self, kind: str, name: str) -> ArmResource:
        """One of them; raises CloudNotFound."""
        return self._get(kind, name, ArmResource)

    def image(self, name: str) -> ArmResource:
        """An image; raises CloudNotFound."""
        return self.one_of(IMAGES, name)

    def delete(self, kind: str, name: str) -> None:
        """Order the deletion of a resource; raises CloudNotFound if there is none."""
        if self.request("DELETE", kind, name, f"deleting {name}").status == 204:
            raise CloudNotFound(
                f"Provider {self.calls.provider}: {name} does not exist any more", code="NotFound", status=204
            )

    def request(
        self, method: str, kind: str, name: str, what: str, action: str = "", body: Mapping[str, Any] | None = None
    ) -> RestAnswer:
        """A call that changes a resource.

        :param what: for errors.
        :param action: below the resource.
        """
        url = self._url(self.path(kind, name) + action, _version_of(kind))
        return self._call(DELETE if method == "DELETE" else WRITE, method, url, what, body=body)

    def operation(self, url: str, what: str) -> RestAnswer:
        """Read an operation, at an address that Azure gave.

        :raises CloudAway: it does not lead to Azure: no other host is to see our token.
        """
        if not same_server(url, self._base):
            raise CloudAway(f"Provider {self.calls.provider}: Azure names an operation at another host")
        return self._call(READ, "GET", url, f"waiting for {what}")

    # -- what seldom changes --

    def subnet(self, group: str, network: str, subnet: str) -> str:
        """Path of a subnet."""
        network, subnet = (urllib.parse.quote(name, safe="") for name in (network, subnet))
        return f"{self._group_path(group)}/providers/{NETWORK}/virtualNetworks/{network}/subnets/{subnet}"

    def subnet_id(self, path: str) -> str:
        """Id of a subnet, as Azure writes it; raises CloudNotFound."""
        return self._read(path, NETWORK_VERSION, "reading the subnet", lambda data: str(data["id"]))

    def image_exists(self, image_id: str) -> None:
        """Raises CloudNotFound if there is no image, or version of one in a gallery, of the id."""
        version = GALLERIES_VERSION if "/galleries/" in image_id.lower() else COMPUTE_VERSION
        self._read(image_id, version, "reading the image", lambda data: data["id"])

    def group_location(self) -> str:
        """Location of the resource group; raises CloudNotFound."""
        path = self._group_path(self._group)
        return self._read(path, GROUPS_VERSION, "reading the resource group", lambda data: str(data["location"]))

    def sizes(self) -> dict[str, VmSize]:
        """Sizes of VMs in the location, by lower-case name."""
        url = f"{self._base}{self._subscription}/providers/{COMPUTE}/skus"
        query = {"api-version": SKUS_VERSION, "$filter": f"location eq '{self._location}'"}

        def size(data: Mapping[str, Any]) -> VmSize | None:
            return VmSize(data, self._location) if data.get("resourceType") == "virtualMachines" else None

        found = self._pages(url, query, "listing the sizes of VMs", size)
        return {size.name.lower(): size for size in found if size is not None}

    def usages(self) -> list[Usage]:
        """Limits and use of the subscription in the location, of VMs and of networks."""
        found: list[Usage] = []
        for provider, version in ((COMPUTE, COMPUTE_VERSION), (NETWORK, NETWORK_VERSION)):
            url = f"{self._base}{self._subscription}/providers/{provider}/locations/{self._location}/usages"
            found.extend(self._pages(url, {"api-version": version}, f"listing the quota of {provider}", Usage))
        return found

    # -- inside --

    @property
    def _base(self) -> str:
        return self._login.account.arm_url

    @property
    def _subscription(self) -> str:
        return f"/subscriptions/{urllib.parse.quote(self._login.account.subscription_id, safe='')}"

    def _group_path(self, group: str) -> str:
        return f"{self._subscription}/resourceGroups/{urllib.parse.quote(group, safe='')}"

    def path(self, kind: str, name: str) -> str:
        """Id of a resource of the group, whether it is there or not."""
        return f"{self._group_path(self._group)}/providers/{kind}/{urllib.parse.quote(name, safe='')}"

    def _url(self, path: str, version: str) -> str:
        if not path.startswith("/"):
            # An id of the configuration. Behind the host it would name another host, which must not see our token.
            raise CloudSetup(
                f"Provider {self.calls.provider}: {path!r} is no id of Azure; begin it with /subscriptions/"
            )
        return f"{self._base}{path}?api-version={version}"

    def _get(self, kind: str, name: str, of: Callable[[Mapping[str, Any]], T]) -> T:
        return self._read(self.path(kind, name), _version_of(kind), f"reading {_WORDS[kind]}", of)

    def _read(self, path: str, version: str, what: str, of: Callable[[Mapping[str, Any]], T]) -> T:
        return self.calls.read(what, of, self._call(READ, "GET", self._url(path, version), what).data)

    def _list(self, kind: str, of: Callable[[Mapping[str, Any]], T]) -> Iterator[T]:
        url = f"{self._base}{self._group_path(self._group)}/providers/{kind}"
        return self._pages(url, {"api-version": _version_of(kind)}, f"listing {name_of(kind)}", of)

    def _pages(
        self, url: str, query: Mapping[str, str], what: str, of: Callable[[Mapping[str, Any]], T]
    ) -> Iterator[T]:
        """The entries of a list, over all its pages; each page is a call."""

        def ask(link: str | None) -> Any:
            return self._call(READ, "GET", link or url, what, query=None if link else query).data

        def read(data: Mapping[str, Any]) -> tuple[list[T], str | None]:
            link = data.get("nextLink")
            if link and not same_server(link, self._base):
                raise ValueError("the next page is at another host")
            return [of(entry) for entry in listed(data["value"])], link

        return self.calls.pages(what, ask, read)
