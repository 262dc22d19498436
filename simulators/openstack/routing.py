# SPDX-License-Identifier: Apache-2.0
"""The base of all OpenStack services."""

from __future__ import annotations

import html
from http import HTTPStatus
from urllib.parse import urlencode

from simulators.base.routing import Handler, Route, Routes
from simulators.openstack.cloud import Cloud
from simulators.openstack.messages import Answer, ApiError, Json, Request, json_answer, new_id

__all__ = ["Handler", "Route", "Service", "base_url", "webob_page"]


class Service(Routes):
    """One OpenStack service below its prefix.

    :cvar name: first part of the path and of operation names.
    :cvar webob: pages of WebOb, and those of the proxy before the service, are among its errors.
    """

    name = ""
    webob = True

    def __init__(self, cloud: Cloud) -> None:
        super().__init__()
        self.cloud = cloud

    def told(self, error: ApiError) -> Answer:
        """An error in one of the forms that come from where the service is."""
        turn, own = self.cloud.core.turn, self.error(error)
        if self.webob:
            title = HTTPStatus(error.status).phrase
            text = {"message": f"{error.message}<br /><br />\n\n\n", "code": f"{error.status} {title}", "title": title}
            forms = [own, webob_page(error), json_answer(text, error.status)]
            if error.status >= 500:
                page = f"<html><body><h1>{error.status} {title}</h1>\n{error.message}\n</body></html>\n"
                forms.append(Answer(error.status, page.encode(), content_type="text/html"))
            own = turn(f"{self.name} error {len(forms)}", *forms)
        own.headers |= error.headers | turn("request id", {}, {"x-openstack-request-id": f"req-{new_id()}"})
        return own

    def more(self) -> bool:
        """Is there another page after the last one, an empty one? Filters of services come after their pages."""
        return self.cloud.core.turn(f"{self.name} page", False, False, False, True)

    def links(self, request: Request, marker: str | None) -> list[Json] | None:
        """``<plural>_links`` of a list; None = it has none.

        :param marker: of the next page.
        """
        before: Json = {"rel": "previous", "href": f"{base_url(request)}{request.path}?page_reverse=True"}
        if marker is None:
            return self.cloud.core.turn(f"{self.name} end", None, [], [before])
        # Services that do not know of the proxy in front of them name another scheme, host and port than the catalog.
        base = self.cloud.core.turn(f"{self.name} host", base_url(request), "HTTPS://Cloud.Example:443")
        query = urlencode(request.query | {"marker": [marker]}, doseq=True)
        after: Json = {"rel": "next", "href": f"{base}{request.path}?{query}"}
        return self.cloud.core.turn(f"{self.name} links", [after], [before, after])

    def available(self) -> bool:
        """False: the cloud has no such service."""
        return True

    def error(self, error: ApiError) -> Answer:
        """An error in the service's shape; this is Nova's and Cinder's."""
        names = {
            400: "badRequest",
            401: "unauthorized",
            403: "forbidden",
            404: "itemNotFound",
            409: "conflictingRequest",
        }
        names |= {413: "overLimit", 429: "tooManyRequests", 500: "computeFault", 503: "serviceUnavailable"}
        content = {names.get(error.status, "error"): {"code": error.status, "message": error.message}}
        answer = json_answer(content, error.status)
        answer.headers |= error.headers
        return answer


def base_url(request: Request) -> str:
    """Scheme and authority that the client used, for links."""
    return f"http://{request.headers.get('host', '127.0.0.1')}"


def webob_page(error: ApiError) -> Answer:
    """An error as WebOb writes it for clients that do not ask for JSON."""
    title = f"{error.status} {HTTPStatus(error.status).phrase}"
    head = f"<html>\n <head>\n  <title>{title}</title>\n </head>\n"
    body = f"  <h1>{title}</h1>\n  {html.escape(error.message)}<br /><br />\n\n\n\n"
    text = f"{head} <body>\n{body} </body>\n</html>"
    return Answer(error.status, text.encode(), dict(error.headers), "text/html; charset=UTF-8")
