# SPDX-License-Identifier: Apache-2.0
"""Keystone v3: tokens and the catalogue (https://docs.openstack.org/api-ref/identity/v3/)."""

from __future__ import annotations

from datetime import UTC, datetime

from simulators.openstack.cloud import Cloud
from simulators.openstack.messages import Answer, ApiError, Json, Request, json_answer, new_id
from simulators.openstack.routing import Service, base_url

PROJECT_NAME = "nodepool"


class IdentityApi(Service):
    """Passwords and application credentials (their secret is the password) get a token for the one project."""

    name = "identity"
    webob = False

    def __init__(self, cloud: Cloud) -> None:
        super().__init__(cloud)
        #: Tokens and when they end.
        self.tokens: dict[str, float] = {}
        self.route("GET", "", "versions", self._versions, open=True)
        self.route("GET", "v3", "version", self._version, open=True)
        self.route("POST", "v3/auth/tokens", "create_token", self._create_token, open=True)
        self.route("GET", "v3/auth/tokens", "get_token", self._get_token)
        self.route("GET", "v3/auth/catalog", "catalog", self._get_catalog)
        self.route("GET", "v3/auth/projects", "list_projects", self._projects)
        self.route("GET", "v3/projects", "list_projects", self._projects)

    def valid(self, token: str) -> bool:
        """Whether the token may be used now."""
        return self.tokens.get(token, 0.0) > self.cloud.core.now()

    def error(self, error: ApiError) -> Answer:
        """Keystone's shape."""
        titles = {401: "Unauthorized", 403: "Forbidden", 404: "Not Found"}
        content = {"code": error.status, "message": error.message, "title": titles.get(error.status, "Error")}
        answer = json_answer({"error": content}, error.status)
        answer.headers |= error.headers
        return answer

    def _document(self, request: Request) -> Json:
        return {
            "id": "v3.14",
            "status": "stable",
            "updated": "2020-04-07T00:00:00Z",
            "links": [{"rel": "self", "href": f"{base_url(request)}/identity/v3/"}],
            "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}],
        }

    def _versions(self, request: Request, _values: list[str]) -> Answer:
        return json_answer({"versions": {"values": [self._document(request)]}}, 300)

    def _version(self, request: Request, _values: list[str]) -> Answer:
        return json_answer({"version": self._document(request)})

    def _create_token(self, request: Request, _values: list[str]) -> Answer:
        identity = request.member("auth").get("identity", {})
        knobs = self.cloud.core.knobs
        right = False
        if "password" in identity:
            user = identity["password"].get("user", {})
            known = user.get("name") == knobs.username or user.get("id") == self.cloud.core.user_id
            right = known and user.get("password") == knobs.password
        elif "application_credential" in identity:
            right = identity["application_credential"].get("secret") == knobs.password
        elif "token" in identity:
            right = self.valid(str(identity["token"].get("id", "")))
        if not right:
            raise ApiError(401, "The request you have made requires authentication.")
        token = f"simulated-{new_id()}"
        self.tokens[token] = self.cloud.core.now() + knobs.token_seconds
        content = self._token(request, token)
        if "application_credential" not in identity and "project" not in _mapping(request.member("auth").get("scope")):
            # Without a project a token is good for nothing: there is no catalogue.
            del content["project"], content["catalog"], content["roles"]
        return json_answer({"token": content}, 201, X_Subject_Token=token)

    def _get_token(self, request: Request, _values: list[str]) -> Answer:
        token = request.headers.get("x-subject-token", "")
        if not self.valid(token):
            raise ApiError(404, "Could not find token.")
        return json_answer({"token": self._token(request, token)}, X_Subject_Token=token)

    def _get_catalog(self, request: Request, _values: list[str]) -> Answer:
        return json_answer({"catalog": self._catalog(request), "links": {}})

    def _projects(self, _request: Request, _values: list[str]) -> Answer:
        return json_answer({"projects": [{"id": self.cloud.core.project_id, "name": PROJECT_NAME, "enabled": True}]})

    def _token(self, request: Request, token: str) -> Json:
        core = self.cloud.core
        domain = {"id": "default", "name": "Default"}
        return {
            "methods": ["password"],
            "expires_at": datetime.fromtimestamp(self.tokens[token], UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "issued_at": datetime.fromtimestamp(core.now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "user": {"id": core.user_id, "name": core.knobs.username, "domain": domain, "password_expires_at": None},
            "project": {"id": core.project_id, "name": PROJECT_NAME, "domain": domain},
            "roles": [{"id": "1", "name": "member"}],
            "catalog": self._catalog(request),
            "is_domain": False,
            "audit_ids": ["simulated"],
        }

    def _catalog(self, request: Request) -> list[Json]:
        base = base_url(request)
        # Another name of the same host, which shows which one was taken.
        roots = {"public": base, "internal": base.replace("127.0.0.1", "localhost")}
        services = [("identity", "keystone", "/identity"), ("compute", "nova", "/compute/v2.1")]
        services += [("network", "neutron", "/network"), ("image", "glance", "/image")]
        if self.cloud.core.knobs.block_storage:
            services.append(("volumev3", "cinderv3", f"/volume/v3/{self.cloud.core.project_id}"))
        if self.cloud.core.knobs.image_tasks:
            services.append(("object-store", "swift", f"/object/v1/AUTH_{self.cloud.core.project_id}"))
        return [
            {
                "id": f"{number:032x}",
                "type": kind,
                "name": name,
                "endpoints": [
                    {
                        "id": f"{number:015x}{side}{place:016x}",
                        "interface": interface,
                        "region": region,
                        "region_id": region,
                        "url": root + path,
                    }
                    for place, region in enumerate(self.cloud.core.knobs.regions)
                    for side, (interface, root) in enumerate(roots.items())
                ],
            }
            for number, (kind, name, path) in enumerate(services)
        ]


def _mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}
