# SPDX-License-Identifier: Apache-2.0
"""`ExampleCloud`: plays the cloud of the driver in ``examples/driver`` over HTTP, and fails when it is asked to.

``python -m simulators.example_cloud`` runs it until it is interrupted. A simulator like this one for the cloud of
your driver is worth its while: the contract suite, and tests of what goes wrong, need nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from nodepool.driver.fake.cloud import (
    ACTIVE,
    CloudError,
    FakeCloud,
    FakeImage,
    FakeInstance,
    ImageError,
    NoSuchImage,
    NoSuchInstance,
    OverQuota,
)
from simulators.base.http_server import HttpServer
from simulators.base.messages import Answer, ApiError, BodySink, Request, json_answer
from simulators.faulty_images import Arrival, FaultyImages

#: Directory with the driver, for `nodepool.driver.registry.PATH_VARIABLE`.
EXAMPLE_DRIVERS: Final = Path(__file__).parents[1] / "examples" / "driver" / "nodepool_drivers"
SIZES: Final = {"small": {"cores": 2, "ram": 4096}, "large": {"cores": 8, "ram": 16384}}
ZONES: Final = ("north", "south")
#: Name of an image that is there from the beginning.
CLOUD_IMAGE: Final = "debian"


class ExampleCloud:
    """Use it as a context manager. ``machines`` and ``images`` have what is there, and the knobs for trouble.

    :param port: on 127.0.0.1; 0 chooses a free one.
    :param boot_seconds: until a machine runs.
    """

    def __init__(self, port: int = 0, boot_seconds: float = 0.0) -> None:
        self.machines = FakeCloud("example")
        self.machines.set(boot_seconds=boot_seconds)
        self.images = FaultyImages("example")
        self.images.create(CLOUD_IMAGE, "qcow2", {})
        self._server = HttpServer(self, port=port)

    @property
    def url(self) -> str:
        return f"http://{self._server.host}:{self._server.port}"

    def __enter__(self) -> ExampleCloud:
        self._server.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._server.stop()

    # -- for the HTTP server: everything runs in its thread --

    def body_sink(self, request: Request) -> BodySink | None:
        """Images are not kept."""
        match request.method, request.path.strip("/").split("/"):
            case "PUT", ["images", image_id, "data"]:
                with contextlib.suppress(ImageError):
                    return self.images.begin(image_id)
        return None

    def delay(self, request: Request) -> float:
        return self.images.upload_seconds if isinstance(request.sink, Arrival) else 0.0

    def handle(self, request: Request) -> Answer:
        try:
            return json_answer(self._serve(request))
        except OverQuota as error:
            return json_answer({"error": str(error)}, 403)
        except NoSuchInstance as error:
            return json_answer({"error": f"there is no machine {error}"}, 404)
        except ApiError as error:
            return json_answer({"error": error.message}, error.status)
        except NoSuchImage as error:
            return json_answer({"error": f"there is no image {error}"}, 404)
        except (CloudError, ImageError) as error:
            return json_answer({"error": str(error)}, 503)

    def _serve(self, request: Request) -> dict[str, Any]:
        kind, *rest = request.path.strip("/").split("/")
        calls: Mapping[tuple[str, str, int], Callable[..., dict[str, Any]]] = {
            ("GET", "machines", 0): lambda: {"machines": [_shown(found) for found in self.machines.instances()]},
            ("GET", "machines", 1): lambda machine: _shown(self.machines.instance(machine)),
            ("POST", "machines", 0): lambda: self._create_machine(request.json()),
            ("DELETE", "machines", 1): self._delete_machine,
            ("GET", "machines", 2): self._console,
            ("GET", "images", 0): lambda: {"images": [_shown_image(found) for found in self.images.images()]},
            ("POST", "images", 0): lambda: self._create_image(request.json()),
            ("PUT", "images", 2): lambda image, _: self._upload(image, request.sink),
            ("DELETE", "images", 1): self._delete_image,
            ("GET", "sizes", 0): lambda: {"sizes": SIZES},
            ("GET", "zones", 0): lambda: {"zones": ZONES},
            ("GET", "limits", 0): lambda: {"limits": self.machines.knobs.limits},
        }
        if self.machines.knobs.down:
            raise ApiError(503, "out of order")
        call = calls.get((request.method, kind, len(rest)))
        if call is None:
            raise ApiError(404, f"there is no {request.method} {request.path}")
        return call(*rest)

    # -- machines --

    def _create_machine(self, order: dict[str, Any]) -> dict[str, Any]:
        images = [name for image in self.images.images() for name in (image.id, image.name)]
        for key, known in (("size", SIZES), ("image", images), ("zone", [*ZONES, None])):
            if order.get(key) not in known:
                raise ApiError(400, f"there is no {key} {order.get(key)!r}")
        resources = SIZES[order["size"]]
        return _shown(
            self.machines.create(
                order["name"],
                metadata=order["tags"],
                resources=resources,
                az=order.get("zone"),
                key=order.get("key"),
            )
        )

    def _delete_machine(self, machine_id: str) -> dict[str, Any]:
        self.machines.delete(machine_id)
        return {}

    def _console(self, machine_id: str, _: str) -> dict[str, Any]:
        return {"text": f"{self.machines.instance(machine_id).id} login:"}

    # -- images --

    def _create_image(self, image: dict[str, Any]) -> dict[str, Any]:
        return _shown_image(self.images.create(image["name"], image.get("format"), image["tags"]))

    def _upload(self, image_id: str, sink: BodySink | None) -> dict[str, Any]:
        """The data are complete."""
        if not isinstance(sink, Arrival):
            # Refused at its beginning.
            self.images.image(image_id)
            raise ApiError(503, f"image {image_id} cannot be taken now")
        if sink.breaks:
            raise ApiError(503, f"the data of image {image_id} broke off")
        return _shown_image(self.images.end(image_id, sink))

    def _delete_image(self, image_id: str) -> dict[str, Any]:
        self.images.delete(image_id)
        return {}


def _shown_image(image: FakeImage) -> dict[str, Any]:
    """An image as the API shows it."""
    return {"id": image.id, "name": image.name, "tags": dict(image.metadata), "size": image.size, "md5": image.md5}


def _shown(machine: FakeInstance) -> dict[str, Any]:
    """A machine as the API shows it."""
    return {
        "id": machine.id,
        "name": machine.name,
        "status": "running" if machine.status == ACTIVE else machine.status,
        "address": machine.address,
        "zone": machine.az,
        "cores": machine.resources["cores"],
        "ram": machine.resources["ram"],
        "tags": dict(machine.metadata),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs it; writes its address to stdout when it answers."""
    parser = argparse.ArgumentParser(prog="python -m simulators.example_cloud", description=__doc__)
    parser.add_argument("--port", type=int, default=8910, help="on 127.0.0.1 (default: %(default)s)")
    parser.add_argument("--boot-seconds", type=float, default=2.0, help="until a machine runs (default: %(default)s)")
    options = parser.parse_args(arguments)
    with ExampleCloud(options.port, options.boot_seconds) as cloud:
        print(cloud.url, flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
