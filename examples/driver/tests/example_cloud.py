# SPDX-License-Identifier: Apache-2.0
"""Plays the cloud of the example driver over HTTP. ``client.py`` of the driver describes its API.

``python example_cloud.py`` runs it until it is interrupted, on port 8910.
"""

from __future__ import annotations

import hashlib
import http.server
import itertools
import json
import threading
from http import HTTPStatus
from typing import Any

SIZES = {"small": {"cores": 2, "ram": 4096}, "large": {"cores": 8, "ram": 16384}}
ZONES = ("north", "south")
LIMITS = {"instances": 20, "cores": 100, "ram": 400_000}


class Refused(Exception):
    """What the API answers in place of a result."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class ExampleCloud:
    """Use it as a context manager.

    :param port: on 127.0.0.1; 0 chooses a free one.
    """

    def __init__(self, port: int = 0) -> None:
        self.machines: dict[str, dict[str, Any]] = {}
        self.images: dict[str, dict[str, Any]] = {}
        self._numbers = itertools.count(1)
        #: One request at a time changes something.
        self._lock = threading.Lock()
        cloud = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, result = HTTPStatus.OK, {}
                try:
                    result = cloud._serve(self.command, self.path.strip("/").split("/"), body)
                except Refused as error:
                    status, result = error.status, {"error": str(error)}
                data = json.dumps(result).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._serve_image(self._create_image({"name": "debian", "tags": {}})["id"], b"")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> ExampleCloud:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, method: str, path: list[str], body: bytes) -> dict[str, Any]:
        with self._lock:
            match method, path:
                case "GET", ["machines"]:
                    return {"machines": [*self.machines.values()]}
                case "GET", ["machines", number]:
                    return self._found(self.machines, number)
                case "POST", ["machines"]:
                    return self._create_machine(json.loads(body))
                case "DELETE", ["machines", number]:
                    self._found(self.machines, number)
                    del self.machines[number]
                    return {}
                case "GET", ["machines", number, "console"]:
                    return {"text": f"{self._found(self.machines, number)['name']} login:"}
                case "GET", ["images"]:
                    return {"images": [*self.images.values()]}
                case "POST", ["images"]:
                    return self._create_image(json.loads(body))
                case "PUT", ["images", number, "data"]:
                    return self._serve_image(number, body)
                case "DELETE", ["images", number]:
                    self._found(self.images, number)
                    del self.images[number]
                    return {}
                case "GET", ["sizes"]:
                    return {"sizes": SIZES}
                case "GET", ["zones"]:
                    return {"zones": ZONES}
                case "GET", ["limits"]:
                    return {"limits": LIMITS}
        raise Refused(HTTPStatus.NOT_FOUND, f"there is no {method} {'/'.join(path)}")

    def _found(self, things: dict[str, dict[str, Any]], number: str) -> dict[str, Any]:
        if number not in things:
            raise Refused(HTTPStatus.NOT_FOUND, f"there is no {number}")
        return things[number]

    def _create_machine(self, order: dict[str, Any]) -> dict[str, Any]:
        images = [name for image in self.images.values() for name in (image["id"], image["name"])]
        for key, known in (("size", SIZES), ("image", images), ("zone", [*ZONES, None])):
            if order.get(key) not in known:
                raise Refused(HTTPStatus.BAD_REQUEST, f"there is no {key} {order.get(key)!r}")
        # An order that comes again has made its machine.
        for machine in self.machines.values():
            if order.get("key") and machine["key"] == order["key"]:
                return machine
        if len(self.machines) >= LIMITS["instances"]:
            raise Refused(HTTPStatus.FORBIDDEN, "over quota: instances")
        number = next(self._numbers)
        machine = {
            "id": f"m{number}",
            "name": order["name"],
            "status": "running",
            "address": f"192.0.2.{number % 250}",
            "zone": order.get("zone") or ZONES[0],
            "tags": order["tags"],
            "key": order.get("key"),
            **SIZES[order["size"]],
        }
        return self.machines.setdefault(machine["id"], machine)

    def _create_image(self, image: dict[str, Any]) -> dict[str, Any]:
        made = {"id": f"i{next(self._numbers)}", "name": image["name"], "tags": image["tags"], "size": 0, "md5": None}
        return self.images.setdefault(made["id"], made)

    def _serve_image(self, number: str, data: bytes) -> dict[str, Any]:
        image = self._found(self.images, number)
        image.update(size=len(data), md5=hashlib.md5(data, usedforsecurity=False).hexdigest())
        return image


if __name__ == "__main__":
    with ExampleCloud(8910) as running:
        print(running.url, flush=True)
        threading.Event().wait()
