# SPDX-License-Identifier: Apache-2.0
"""The Azure Resource Manager: how each request is answered.

Shapes of answers as in the recordings that azure-service-operator and azure-cli have of Azure
(``tests/unit/simulators/azure/recorded_facts.yaml``).
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from simulators.azure import buckets, catalog, shapes
from simulators.azure.arm_ids import PROVIDERS, ArmPath
from simulators.azure.machines import ADDRESSES, DISKS, NICS, VMS
from simulators.azure.resources import GROUP, LOCATION, SUBSCRIPTION, ArmResource, base_url
from simulators.azure.upload_api import UploadApi
from simulators.azure.vm_spec import read_vm_spec
from simulators.base.messages import Answer, ApiError, Json, Request, json_answer
from simulators.base.pages import page
from simulators.base.throttle import Throttle

if TYPE_CHECKING:
    from simulators.azure.cloud import Subscription

Handler = Callable[[Request, ArmPath], Answer]

#: Codes of errors that have none of their own.
CODES: Final = {
    400: "BadRequest",
    401: "InvalidAuthenticationToken",
    403: "AuthorizationFailed",
    404: "ResourceNotFound",
    409: "Conflict",
    412: "PreconditionFailed",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
}
CONSOLE_PATH: Final = "/console/"
GROUP_OF_IDS: Final = f"/resourceGroups/{GROUP}/".encode()
#: Errors of networks have a list of details, even if it is empty.
_WITH_DETAILS: Final = frozenset({"NicInUse", "NicReservedForAnotherVm", "PublicIPAddressCannotBeDeleted"})


class ArmService:
    """Handlers by ``<kind>.<operation>``."""

    def __init__(self, cloud: Subscription) -> None:
        self.cloud = cloud
        self.throttle = Throttle(cloud.core.now)
        self.uploads = UploadApi(cloud, self.accepted)
        self.handlers: dict[str, Handler] = {
            "resourceGroups.get": self._group,
            "subnets.get": self._subnet,
            "skus.list": self._skus,
            "usages.list": self._usages,
            "operations.get": self._operation,
            "diskOperations.get": self._operation,
            "virtualMachines.put": self._put_vm,
            "virtualMachines.delete": self._delete_vm,
            "virtualMachines.instanceview": self._instance_view,
            "virtualMachines.retrievebootdiagnosticsdata": self._console,
            "networkInterfaces.delete": self._delete_interface,
            "publicIPAddresses.delete": self._delete_address,
            "disks.delete": self._delete_disk,
            "disks.put": self.uploads.put_disk,
            "disks.begingetaccess": self.uploads.begin_access,
            "disks.endgetaccess": self.uploads.end_access,
            "images.put": self.uploads.put_image,
            "images.delete": self._delete_image,
        }
        for kind in (VMS, NICS, ADDRESSES, DISKS, "images"):
            self.handlers[f"{kind}.list"] = self._list
            self.handlers[f"{kind}.get"] = self._get

    @staticmethod
    def operation(request: Request, path: ArmPath) -> str:
        """Such as ``virtualMachines.put``."""
        whole_list = request.method == "GET" and not path.name
        return f"{path.kind}.{path.action or ('list' if whole_list else request.method.lower())}"

    def serve(self, request: Request, path: ArmPath) -> Answer:
        """Does it; refusals have Azure's shape."""
        operation = self.operation(request, path)
        try:
            handler = self.handlers.get(operation)
            if handler is None:
                raise ApiError(404, f"No route for {request.method} {request.path}", "InvalidResourceType")
            if not request.argument("api-version"):
                text = "The api-version query parameter (?api-version=) is required for all requests."
                raise ApiError(400, text, "MissingApiVersionParameter")
            if path.subscription.lower() != SUBSCRIPTION:
                text = f"The subscription '{path.subscription}' could not be found."
                raise ApiError(404, text, "SubscriptionNotFound")
            if path.group and path.group.lower() != GROUP:
                raise ApiError(404, f"Resource group '{path.group}' could not be found.", "ResourceGroupNotFound")
            if self.cloud.core.knobs.throttles:
                buckets.take(self.throttle, request.method)
            answer = handler(request, path)
        except ApiError as error:
            self.cloud.core.events[f"refused {error.kind}"] += 1
            return self.error(error)
        if self.cloud.core.knobs.throttles:
            buckets.tell(self.throttle, request.method, answer)
        self._vary(answer)
        left = shapes.windows_left(operation)
        if left is not None:
            answer.headers["x-ms-ratelimit-remaining-resource"] = left
        return answer

    def _vary(self, answer: Answer) -> None:
        """Ids in the case that it is the turn of; some texts begin with a byte order mark."""
        group = self.cloud.core.turn("id", GROUP_OF_IDS, b"/resourceGroups/NODEPOOL/", b"/resourcegroups/nodepool/")
        mark = self.cloud.core.turn("mark", b"", b"", b"", codecs.BOM_UTF8)
        if answer.body:
            answer.body = mark + answer.body.replace(GROUP_OF_IDS, group)

    @staticmethod
    def error(error: ApiError) -> Answer:
        """An error in Azure's shape."""
        code = error.kind or CODES.get(error.status, "InternalServerError")
        told: Json = {"code": code, "message": error.message}
        if code in _WITH_DETAILS:
            told["details"] = []
        answer = json_answer({"error": told}, error.status)
        answer.headers |= error.headers
        return answer

    # -- of all kinds --

    def _get(self, _request: Request, path: ArmPath) -> Answer:
        image = self.cloud.resources.find("images", path.name) if path.kind == "images" else None
        if path.kind == "images" and (image is None or image.name in self.uploads.late):
            self.uploads.late.discard(path.name)
            raise ApiError(404, "The entity was not found in this Azure location.", "NotFound")
        return json_answer(self.cloud.resources.get(path.kind, path.name).document)

    def _list(self, request: Request, path: ArmPath) -> Answer:
        entries = [resource for resource in self.cloud.resources.of(path.kind) if resource.listed]
        if path.kind == VMS:
            entries += self.cloud.ghosts
        entries.sort(key=lambda resource: resource.name)
        return self._page(request, [(resource.name, resource.document) for resource in entries])

    def _page(self, request: Request, entries: Sequence[tuple[str, Json]]) -> Answer:
        try:
            found, token = page(
                entries,
                lambda entry: entry[0],
                request.argument("$skiptoken") or None,
                self.cloud.core.knobs.page_limit,
            )
        except ValueError:
            raise ApiError(400, "The skip token is not valid.", "InvalidSkipToken") from None
        turn = self.cloud.core.turn
        content: Json = {"value": [document for _name, document in found]}
        if token is None:
            return json_answer(content | turn("end", {}, {"nextLink": None}, {"nextLink": ""}))
        # The same server in another form: Azure adds its port, which is there already.
        base = turn("link", base_url(request), base_url(request).replace("http:", "HTTP:"))
        link = f"{base}{request.path}?api-version={request.argument('api-version')}"
        if not request.argument("later") and turn("page", False, True):
            # Azure filters late. The entries are on the next page.
            here = request.argument("$skiptoken")
            return json_answer({"value": [], "nextLink": f"{link}&later=1{f'&$skiptoken={here}' if here else ''}"})
        return json_answer(content | {"nextLink": f"{link}&$skiptoken={token}"})

    def accepted(self, request: Request, operation: str, status: int = 202, content: Json | None = None) -> Answer:
        where = f"{base_url(request)}{self.cloud.operations.path(operation)}"
        headers = {"Azure-AsyncOperation": where}
        if "/images/" not in request.path.lower():
            headers["Retry-After"] = str(self.cloud.core.knobs.retry_after_seconds)
        if status == 202:
            headers["Location"] = f"{where}&monitor=true"
            if self.cloud.core.knobs.only_location:
                del headers["Azure-AsyncOperation"]
        if content is None:
            return Answer(status, b"", headers)
        answer = json_answer(content, status)
        answer.headers |= headers
        return answer

    def _operation(self, request: Request, path: ArmPath) -> Answer:
        operation = self.cloud.operations.get(path.name)
        if not request.argument("monitor"):
            # Clients are to take any state for one that runs, but those of an end.
            runs = {} if operation.ended else {"status": self.cloud.core.turn("state", operation.status, "Validating")}
            return json_answer(operation.shown() | runs)
        if operation.status == "InProgress":
            return Answer(
                202, b"", {"Location": f"{base_url(request)}{request.path}?{_query(request)}", "Retry-After": "1"}
            )
        if operation.error is not None:
            return json_answer({"error": operation.error}, 409)
        if operation.output is None:
            return Answer(self.cloud.core.turn("no output", 200, 204), b"")
        return json_answer(operation.output)

    # -- VMs --

    def _put_vm(self, request: Request, path: ArmPath) -> Answer:
        found = self.cloud.resources.find(VMS, path.name)
        if found is not None:
            if request.headers.get("if-none-match") == "*":
                raise ApiError(412, f"The resource {path.name} exists already.", "PreconditionFailed")
            if found.properties["provisioningState"] == "Deleting":
                raise ApiError(409, f"The VM '{path.name}' is being deleted.", "OperationNotAllowed")
            return json_answer(found.document)
        spec = read_vm_spec(self.cloud, path.name, request.json())
        if self.cloud.core.turn("busy at a creation", *[False] * 5, True):
            text = "Another operation on this or dependent resource is in progress."
            raise ApiError(409, text, "AnotherOperationInProgress")
        vm, operation = self.cloud.machines.create(spec)
        return self.accepted(request, operation, 201, shapes.accepted_vm(vm.document))

    def _delete_vm(self, request: Request, path: ArmPath) -> Answer:
        vm = self.cloud.resources.find(VMS, path.name)
        if vm is None:
            return Answer(204, b"")
        if self.cloud.core.turn("busy at a deletion", *[False] * 3, True):
            raise ApiError(409, "The request failed due to conflict with a concurrent request. ", "Conflict")
        return self.accepted(request, self.cloud.machines.delete(vm))

    def _instance_view(self, _request: Request, path: ArmPath) -> Answer:
        vm = self.cloud.resources.get(VMS, path.name)
        state = vm.properties["provisioningState"].lower()
        error = self.cloud.machines.failures.get(vm.document["id"])
        while error is not None and error.get("details"):
            error = error["details"][0]
        disk = vm.properties["storageProfile"]["osDisk"]["name"]
        return json_answer(shapes.instance_view(state, error, disk, self.cloud.core.stamp()))

    def _console(self, request: Request, path: ArmPath) -> Answer:
        """RetrieveBootDiagnosticsDataResult in azure-mgmt-compute: addresses that need no login."""
        vm = self.cloud.resources.get(VMS, path.name)
        if not (vm.properties.get("diagnosticsProfile") or {}).get("bootDiagnostics", {}).get("enabled"):
            raise ApiError(409, "Boot diagnostics is not enabled on the VM.", "OperationNotAllowed")
        return json_answer({"serialConsoleLogBlobUri": f"{base_url(request)}{CONSOLE_PATH}{vm.name}?sig=s"})

    # -- what belongs to them --

    def _delete_interface(self, request: Request, path: ArmPath) -> Answer:
        nic = self.cloud.resources.find(NICS, path.name)
        if nic is None:
            return Answer(204, b"")
        if nic.properties.get("virtualMachine"):
            raise ApiError(400, f"Nic '{path.name}' is attached to a virtual machine.", "NicInUse")
        left = nic.reserved_until - self.cloud.core.now()
        if left > 0:
            text = f"Nic(s) in request is reserved for another Virtual Machine for {left:.0f} seconds."
            raise ApiError(400, text, "NicReservedForAnotherVm")
        self.cloud.remove_interface(nic, with_addresses=False)
        return self._done(request, nic)

    def _delete_address(self, request: Request, path: ArmPath) -> Answer:
        address = self.cloud.resources.find(ADDRESSES, path.name)
        if address is None:
            return Answer(204, b"")
        if address.properties.get("ipConfiguration"):
            text = f"Public IP address {path.name} can not be deleted since it is still allocated."
            raise ApiError(400, text, "PublicIPAddressCannotBeDeleted")
        self.cloud.remove_address(address)
        return self._done(request, address)

    def _delete_disk(self, request: Request, path: ArmPath) -> Answer:
        disk = self.cloud.resources.find(DISKS, path.name)
        if disk is None:
            return Answer(204, b"")
        if disk.properties.get("diskState") == "ActiveUpload":
            raise ApiError(
                409, f"There is an active shared access signature outstanding for disk {path.name}.", "Conflict"
            )
        if disk.document.get("managedBy"):
            raise ApiError(409, f"Disk {path.name} is attached to VM.", "OperationNotAllowed")
        self.cloud.resources.remove(disk)
        return self._done(request, disk)

    def _delete_image(self, request: Request, path: ArmPath) -> Answer:
        image = self.cloud.resources.find("images", path.name)
        if image is None:
            return Answer(204, b"")
        self.cloud.resources.remove(image)
        return self._done(request, image)

    def _done(self, request: Request, resource: ArmResource) -> Answer:
        operation = self.cloud.operations.begin(resource.document["id"])
        self.cloud.operations.end(operation)
        return self.accepted(request, operation)

    # -- what seldom changes --

    def _group(self, _request: Request, _path: ArmPath) -> Answer:
        whole_id = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"
        properties = {"provisioningState": "Succeeded"}
        kind = "Microsoft.Resources/resourceGroups"
        return json_answer(
            {"id": whole_id, "name": GROUP, "type": kind, "location": LOCATION, "properties": properties}
        )

    def _subnet(self, request: Request, path: ArmPath) -> Answer:
        networks = f"{PROVIDERS['virtualNetworks']}/virtualNetworks"
        whole_id = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/{networks}/{path.parent}/subnets/"
        whole_id += path.name
        if whole_id.lower() not in self.cloud.subnets:
            raise ApiError(404, f"Resource {whole_id} not found.", "NotFound")
        properties = {"provisioningState": "Succeeded", "addressPrefix": "10.0.0.0/16"}
        return json_answer({"id": whole_id, "name": path.name, "properties": properties})

    def _skus(self, request: Request, _path: ArmPath) -> Answer:
        wanted = request.argument("$filter")
        if wanted and wanted != f"location eq '{LOCATION}'":
            return json_answer({"value": []})
        entries = [(size.name, size.shown(LOCATION)) for size in catalog.SIZES.values()]
        return self._page(request, [*entries, ("disks", catalog.DISK_SKU)])

    def _usages(self, request: Request, path: ArmPath) -> Answer:
        if path.parent.lower() != LOCATION:
            raise ApiError(
                404, f"No registered provider found for location '{path.parent}'.", "NoRegisteredProviderFound"
            )
        network = path.provider.lower() == "microsoft.network"
        limits = catalog.NETWORK_USAGES if network else catalog.COMPUTE_USAGES
        used, quotas = self.cloud.machines.used(), self.cloud.core.knobs.quotas
        return self._page(
            request, [(name, catalog.usage(name, quotas.get(name, most), used[name])) for name, most in limits.items()]
        )


def _query(request: Request) -> str:
    return "&".join(f"{name}={values[0]}" for name, values in request.query.items())
