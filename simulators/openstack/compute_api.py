# SPDX-License-Identifier: Apache-2.0
"""Nova v2.1 (https://docs.openstack.org/api-ref/compute/)."""

from __future__ import annotations

from datetime import UTC, datetime

from simulators.openstack.cloud import Cloud
from simulators.openstack.collection import list_body, page_size
from simulators.openstack.compute_extras import ComputeExtras
from simulators.openstack.create_spec import read_create_spec
from simulators.openstack.messages import Answer, ApiError, Json, Request, json_answer
from simulators.openstack.routing import Service, base_url
from simulators.openstack.servers import EMBEDDED_FLAVOR, Server

NEWEST = (2, 93)
PREFIX = "v2.1"


class ComputeApi(Service):
    """Servers; the rest is in `ComputeExtras`."""

    name = "compute"

    def __init__(self, cloud: Cloud) -> None:
        super().__init__(cloud)
        #: Finished lists by query and form, for the servers' version below.
        self._lists: dict[tuple[str, bool], bytes] = {}
        self._lists_version = -1
        self.route("GET", "", "versions", self._versions, open=True)
        self.route("GET", PREFIX, "version", self._version, open=True)
        self.route("GET", f"{PREFIX}/servers", "list_servers_brief", self._list_brief)
        self.route("GET", f"{PREFIX}/servers/detail", "list_servers", self._list)
        self.route("POST", f"{PREFIX}/servers", "create_server", self._create)
        self.route("GET", f"{PREFIX}/servers/{{}}", "get_server", self._get)
        self.route("DELETE", f"{PREFIX}/servers/{{}}", "delete_server", self._delete)
        self.route("POST", f"{PREFIX}/servers/{{}}/action", "server_action", self._action)
        self.route("GET", f"{PREFIX}/servers/{{}}/metadata", "get_metadata", self._get_metadata)
        self.route("POST", f"{PREFIX}/servers/{{}}/metadata", "update_metadata", self._update_metadata)
        ComputeExtras(cloud).register(self, PREFIX)

    def _version_document(self, request: Request) -> Json:
        return {
            "id": "v2.1",
            "status": "CURRENT",
            "version": f"{NEWEST[0]}.{NEWEST[1]}",
            "min_version": "2.1",
            "updated": "2013-07-23T11:33:21Z",
            "links": [{"rel": "self", "href": f"{base_url(request)}/compute/v2.1/"}],
        }

    def _versions(self, request: Request, _values: list[str]) -> Answer:
        return json_answer({"versions": [self._version_document(request)]})

    def _version(self, request: Request, _values: list[str]) -> Answer:
        return json_answer({"version": self._version_document(request)})

    def _list(self, request: Request, _values: list[str]) -> Answer:
        servers = self.cloud.compute.servers
        embedded = microversion(request) >= EMBEDDED_FLAVOR
        if servers.version != self._lists_version:
            self._lists.clear()
            self._lists_version = servers.version
        key = (repr(request.query), embedded)
        if key not in self._lists:
            page, links = self._page(request)
            turn = self.cloud.core.turn
            texts = [server.text(embedded, in_list=True, turn=turn) for server in page]
            self._lists[key] = list_body("servers", texts, links)
        return Answer(body=self._lists[key])

    def _list_brief(self, request: Request, _values: list[str]) -> Answer:
        page, links = self._page(request)
        content: Json = {"servers": [{"id": server.id, "name": server.name, "links": []} for server in page]}
        if links is not None:
            content["servers_links"] = links
        return json_answer(content)

    def _page(self, request: Request) -> tuple[list[Server], list[Json] | None]:
        table = self.cloud.compute.servers
        if since := request.argument("changes-since"):
            found = table.changed_since(_utc_stamp(since))
        else:
            found = list(table.newest_first())
        if name := request.argument("name"):
            found = [server for server in found if name in server.name]
        if status := request.argument("status"):
            found = [server for server in found if server.status == status.upper()]
        if marker := request.argument("marker"):
            number = table.number_of(marker)
            found = [server for server in found if server.number < number]
        limit = page_size(request.query, self.cloud.core.knobs.page_limit)
        page = found[:limit]
        return page, self.links(request, page[-1].id if page and (len(found) > limit or self.more()) else None)

    def _create(self, request: Request, _values: list[str]) -> Answer:
        spec = read_create_spec(self.cloud, request.member("server"), microversion(request))
        server = self.cloud.compute.create(spec)
        self.cloud.core.accepted("Instance", server.id)
        url = f"{base_url(request)}/compute/v2.1/servers/{server.id}"
        content = {
            "id": server.id,
            "links": [{"rel": "self", "href": url}],
            "OS-DCF:diskConfig": "MANUAL",
            "security_groups": [{"name": name} for name in server.security_groups],
            "adminPass": "simulated-admin-pass",
        }
        return json_answer({"server": content}, 202, Location=url)

    def _get(self, request: Request, values: list[str]) -> Answer:
        self.cloud.core.check_known("Instance", values[0])
        server = self.cloud.compute.servers.get(values[0])
        text = server.text(microversion(request) >= EMBEDDED_FLAVOR, in_list=False, turn=self.cloud.core.turn)
        return Answer(body=b'{"server": ' + text + b"}")

    def _delete(self, _request: Request, values: list[str]) -> Answer:
        self.cloud.core.check_known("Instance", values[0])
        self.cloud.compute.delete(values[0])
        return Answer(204)

    def _action(self, request: Request, values: list[str]) -> Answer:
        server = self.cloud.compute.servers.get(values[0])
        if "os-getConsoleOutput" not in request.json():
            return Answer(202)
        if server.status == "BUILD":
            raise ApiError(409, f"Instance {server.id} is not ready")
        return json_answer({"output": self.cloud.compute.console(server)})

    def _get_metadata(self, _request: Request, values: list[str]) -> Answer:
        return json_answer({"metadata": self.cloud.compute.servers.get(values[0]).metadata})

    def _update_metadata(self, request: Request, values: list[str]) -> Answer:
        server = self.cloud.compute.servers.get(values[0])
        server.metadata |= request.member("metadata")
        self.cloud.compute.servers.changed(server, self.cloud.core.stamp())
        return json_answer({"metadata": server.metadata})


def microversion(request: Request) -> tuple[int, int]:
    """What the client asks for, 2.1 by default.

    :raises ApiError: 406, the service has no such version.
    """
    text = request.headers.get("x-openstack-nova-api-version", "")
    for entry in request.headers.get("openstack-api-version", "").split(","):
        service, _, version = entry.strip().partition(" ")
        if service == "compute":
            text = version
    if not text:
        return (2, 1)
    if text == "latest":
        return NEWEST
    major, _, minor = text.partition(".")
    wanted = (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)
    if not (2, 1) <= wanted <= NEWEST:
        raise ApiError(406, f"Version {text} is not supported by the API. Minimum is 2.1 and maximum is 2.93.")
    return wanted


def _utc_stamp(text: str) -> str:
    try:
        # A plus that the client did not escape came as a space.
        moment = datetime.fromisoformat(text.replace(" ", "+"))
    except ValueError:
        raise ApiError(400, f"Invalid input for query parameters changes-since. Value: {text}.") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
