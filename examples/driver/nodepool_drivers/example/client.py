# SPDX-License-Identifier: Apache-2.0
"""`Client`: the API of the cloud, and all that knows of it. Yours may wrap the SDK of your cloud.

There is no such cloud, but ``python -m simulators.example_cloud`` plays one::

    GET    /machines              {"machines": [{"id", "name", "status", "address", "zone", "cores", "ram", "tags"}]}
    GET    /machines/ID           a machine as it is now; lists may be a second late
    POST   /machines              {"name", "size", "image", "zone", "tags", "key"} -> a machine, "building"; sent again
                                  with the same key -> the same machine
    DELETE /machines/ID           it is "deleting" for a while, then there is none
    GET    /machines/ID/console   {"text"}
    GET    /images                {"images": [{"id", "name", "tags", "size", "md5"}]}
    POST   /images                {"name", "format", "tags"} -> an image
    PUT    /images/ID/data        the file -> the image, when it can be used
    DELETE /images/ID
    GET    /sizes                 {"sizes": {"small": {"cores": 2, "ram": 4096}}}
    GET    /zones                 {"zones": ["north", "south"]}
    GET    /limits                {"limits": {"instances": 20, "cores": 40}}
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

from nodepool.driver.framework.uploads import CountingFile
from nodepool.driver.utils import BucketSize, RateClasses
from nodepool.exceptions import (
    CapacityException,
    CloudUnavailableException,
    LaunchNodepoolException,
    NotFound,
    QuotaException,
)

from .types import Machine

# A call without a limit would hold up a thread for ever.
TIMEOUT_SECONDS: Final = 30
#: Calls that the cloud takes at once after a pause.
READ_BURST: Final = 10
CHANGE_BURST: Final = 5

# [errors]
#: What an HTTP status means. The class of an exception decides what the framework does next.
MEANING: Final[dict[int, type[Exception]]] = {
    403: QuotaException,
    404: NotFound,
    409: CapacityException,
}


def meaning(status: int, text: str) -> Exception:
    """The exception for an answer that is an error."""
    if status == 429 or status >= 500:
        error = CloudUnavailableException(text)
        # One call too many is not carried out. Who knows what happened before any other of these?
        error.maybe_done = status != 429
        return error
    return MEANING.get(status, LaunchNodepoolException)(text)


# [client]
class Client:
    """One cloud. All methods block; any thread may call them.

    :param rate: calls per second that read, and as many that change something; 0 = no limit.
    """

    def __init__(self, url: str, rate: float) -> None:
        self._url = url.rstrip("/")
        # The cloud counts them apart, so that lists do not keep machines from being made.
        self._classes = RateClasses({"change": BucketSize(CHANGE_BURST, rate)}, BucketSize(READ_BURST, rate))

    def machines(self) -> list[Machine]:
        return [Machine.of(found) for found in self._call("GET", "/machines")["machines"]]

    def machine(self, machine_id: str) -> Machine:
        return Machine.of(self._call("GET", f"/machines/{quote(machine_id)}"))

    def create_machine(self, order: dict[str, Any], permit: Callable[[], None]) -> str:
        return str(self._call("POST", "/machines", order, permit=permit)["id"])

    def delete_machine(self, machine_id: str) -> None:
        self._call("DELETE", f"/machines/{quote(machine_id)}")

    def console(self, machine_id: str) -> str:
        return str(self._call("GET", f"/machines/{quote(machine_id)}/console")["text"])

    def images(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._call("GET", "/images")["images"]
        return found

    def create_image(self, name: str, image_format: str | None, tags: dict[str, str]) -> str:
        return str(self._call("POST", "/images", {"name": name, "format": image_format, "tags": tags})["id"])

    def upload_image(self, image_id: str, content: CountingFile) -> dict[str, Any]:
        image: dict[str, Any] = self._call("PUT", f"/images/{quote(image_id)}/data", content, size=content.size)
        return image

    def delete_image(self, image_id: str) -> None:
        self._call("DELETE", f"/images/{quote(image_id)}")

    def sizes(self) -> dict[str, dict[str, float]]:
        sizes: dict[str, dict[str, float]] = self._call("GET", "/sizes")["sizes"]
        return sizes

    def zones(self) -> list[str]:
        return list(self._call("GET", "/zones")["zones"])

    def limits(self) -> dict[str, float]:
        return dict(self._call("GET", "/limits")["limits"])

    def _call(
        self,
        method: str,
        path: str,
        content: Any = None,
        size: int | None = None,
        permit: Callable[[], None] = lambda: None,
    ) -> Any:
        """One call; returns what the cloud answers.

        :param content: an object, or an open file of ``size`` bytes.
        :param permit: raises if the call must not be made any more: it may have waited for its turn.
        """
        body = json.dumps(content).encode() if isinstance(content, dict) else content
        request = urllib.request.Request(self._url + path, body, method=method)
        if size is not None:
            request.add_header("Content-Length", str(size))
        call = self._classes.wait("read" if method == "GET" else "change")
        permit()
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
                call.worked()
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                text = error.read(1000).decode(errors="replace")
            if error.code == 429:
                # All calls of its class wait now, and come less often then.
                pause = error.headers.get("Retry-After", "")
                call.throttled(float(pause) if pause.isdecimal() else None)
            raise meaning(error.code, f"{method} {path}: {error.code} {text}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            # No answer, or none that can be read: whether the cloud did it is not known.
            raise CloudUnavailableException(f"{method} {path}: {type(error).__name__}: {error}") from error
