# SPDX-License-Identifier: Apache-2.0
"""The image builder: from nothing to images that all clouds have, on request, away again; and what it costs to wait.

What builds and link need by themselves is measured with the same command and the same servers: the builds one after the
other, as one worker makes them, and then ``curl`` with the last image to all clouds at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from benchmarks.suite.goals import Bound
from benchmarks.suite.model import Metric, Row, Scenario
from benchmarks.suite.statistics import median, rounded
from benchmarks.support.candidates import Candidate
from benchmarks.support.image_site import ImageSite
from benchmarks.support.place import Stage
from benchmarks.support.plain_upload import upload_seconds
from benchmarks.support.simulated_cloud import simulated_clouds
from benchmarks.support.small_build import SmallBuild

NAME = "images"
MIB = 1 << 20
GIB = 1 << 30
#: The simulated cloud hashes what it gets, which real ones do, too; for throughput it must not be what is slow.
UNCHECKED = {"image_checksums": False}


def run(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    values = {**_many(stage, candidate, size), **_one_large(stage, candidate, size)}
    return [Row(NAME, "", candidate.name, rounded(values))]


@contextmanager
def _site(
    stage: Stage, candidate: Candidate, clouds: int, seconds: float, size: int, knobs: dict[str, Any]
) -> Iterator[ImageSite]:
    """A builder that does not run yet, and clouds."""
    names = [f"cloud-{number + 1}" for number in range(clouds)]
    with stage.place(candidate) as place, simulated_clouds(place.directory, names, knobs) as simulators:
        build = SmallBuild(place.directory, seconds, size)
        chroot = place.workplace.chroot
        with ImageSite(place.directory, stage.zookeeper, chroot, candidate.builder, simulators, build) as site:
            yield site


def _many(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> dict[str, float | None]:
    """Several images to several clouds, from empty; a build on request; a removal; nothing to do."""
    images = [f"image-{number + 1}" for number in range(size["images"])]
    with _site(stage, candidate, size["clouds"], size["build_seconds"], size["mib"] * MIB, {}) as site:
        before = next(iter(site.clouds.values())).state()["contents"]["images"]
        possible = sum(site.build.seconds(site.build.command.parent) for _ in images)
        possible += upload_seconds(list(site.clouds), site.build.content)
        site.configure(images)
        stage.progress.step(f"  {len(images)} images, {size['clouds']} clouds; possible: {possible:.1f} s")
        start = site.start()
        ready = site.wait_ready(images) - start
        idle = _idle(site, size)
        begun = _requests(site, images[0], size["requests"])
        # Deletions are to be measured, not the end of an upload.
        site.wait_settled(images[0])
        uploads = [seconds for image in images for seconds in site.upload_starts(image)]
        deletions = [_deletion(site, images[0]) for _ in range(size["deletions"])]
        site.configure(images[1:])
        changed = time.monotonic()
        gone = site.wait_gone(images[0], before + len(images) - 1) - changed
    return {
        "ready_seconds": ready,
        "possible_seconds": possible,
        "times_possible": ready / possible,
        "start_ms": 1000 * median(begun),
        "upload_start_ms": 1000 * median(uploads),
        "deletion_ms": 1000 * median(deletions),
        "gone_seconds": gone,
        "cpu_percent": idle,
    }


def _idle(site: ImageSite, size: Mapping[str, Any]) -> float:
    """Per cent of a core that it uses when there is nothing to do."""
    time.sleep(size["settle"])
    before, start = site.cpu_seconds(), time.monotonic()
    time.sleep(size["idle_seconds"])
    return 100 * (site.cpu_seconds() - before) / (time.monotonic() - start)


def _requests(site: ImageSite, image: str, count: int) -> list[float]:
    """Seconds from a request to the record of its build, at moments that no polling loop can favour."""
    jitter = random.Random(1)
    seconds = []
    for _ in range(count):
        time.sleep(jitter.uniform(1, 3))
        known = site.build_ids(image)
        start = time.monotonic()
        site.records.request_build(image)
        seconds.append(site.wait_begun(image, known) - start)
        # The request goes with the build.
        _wait_unrequested(site, image)
    return seconds


def _deletion(site: ImageSite, image: str) -> float:
    """Seconds from the wish that an upload goes until cloud and record are without it. It is uploaded again then."""
    cloud = next(iter(site.clouds))
    upload = site.records.image(image).uploads(cloud, "ready")[0]
    start = time.monotonic()
    site.records.change(upload.path, state="deleting")
    seconds = site.wait_upload_gone(upload) - start
    site.wait_settled(image)
    return seconds


def _wait_unrequested(site: ImageSite, image: str) -> None:
    while site.records.image(image).requested:
        site.check()
        time.sleep(0.1)


def _one_large(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> dict[str, float | None]:
    """One large file to one cloud, in turn with curl to the same server: the rate of a link varies with time."""
    length = size["large_mib"] * MIB
    with _site(stage, candidate, 1, 0, length, UNCHECKED) as site:
        (cloud,) = site.clouds
        site.configure(["large"])
        site.start()
        site.wait_ready(["large"])
        links, times, costs = [], [], []
        for _ in range(size["repeats"]):
            links.append(upload_seconds([cloud], site.build.content))
            # The same build once more: the disk has it, as it has what curl sends.
            known = site.records.image("large").uploads(cloud, "ready")
            paths = {upload.path for upload in known}
            before = site.cpu_seconds()
            for path in paths:
                site.records.change(path, state="deleting")
            started = _wait_new(site, cloud, paths, "uploading")
            times.append(_wait_new(site, cloud, paths, "ready") - started)
            costs.append(site.cpu_seconds() - before)
    return {
        "link_mib_per_second": size["large_mib"] / min(links),
        "throughput_percent": 100 * min(links) / min(times),
        "cpu_seconds_per_gib": min(costs) * GIB / length,
    }


def _wait_new(site: ImageSite, cloud: str, known: set[str], state: str) -> float:
    """Until an upload that is not ``known`` (paths) has got so far; returns when (monotonic)."""
    while True:
        site.check()
        uploads = site.records.image("large").uploads(cloud, state)
        if any(upload.path not in known for upload in uploads):
            return time.monotonic()
        time.sleep(0.002)


SCENARIO = Scenario(
    name=NAME,
    title="Image builder: 4 images of 2 s to 2 clouds, and 4 GiB to one",
    metrics=(
        Metric("ready_seconds", "from empty to all ready", "s", plot=True),
        Metric("possible_seconds", "builds and link by themselves", "s", more_is_better=None),
        Metric("times_possible", "times the possible"),
        Metric("start_ms", "request to build", "ms", plot=True),
        Metric("upload_start_ms", "build to upload", "ms", plot=True),
        Metric("deletion_ms", "deletion of an upload", "ms", plot=True),
        Metric("gone_seconds", "removal to gone everywhere", "s", plot=True),
        Metric("cpu_percent", "idle CPU", "% of a core", plot=True),
        Metric("link_mib_per_second", "curl", "MiB/s", more_is_better=None),
        Metric("throughput_percent", "throughput", "% of curl", more_is_better=True, plot=True),
        Metric("cpu_seconds_per_gib", "CPU per GiB", "s", plot=True),
    ),
    goals=(
        Bound("times_possible", at_most=1.2),
        Bound("start_ms", at_most=200),
        Bound("upload_start_ms", at_most=200),
        Bound("deletion_ms", at_most=200),
        Bound("cpu_percent", at_most=0.2),
        Bound("throughput_percent", at_least=90),
        Bound("cpu_seconds_per_gib", at_most=2),
    ),
    run=run,
    sizes={
        "images": 4,
        "clouds": 2,
        "build_seconds": 2.0,
        "mib": 64,
        "requests": 9,
        "deletions": 3,
        "settle": 10,
        "idle_seconds": 60,
        # As large as usual images. With 1 GiB over a link of 2 GiB/s a tenth of the time would be what does not grow
        # with the size: records in ZooKeeper, the image before its data, the look at what has arrived.
        "large_mib": 4096,
        "repeats": 6,
    },
    quick={"mib": 4, "requests": 2, "deletions": 1, "settle": 2, "idle_seconds": 10, "large_mib": 64, "repeats": 1},
)
