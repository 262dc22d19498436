# SPDX-License-Identifier: Apache-2.0
"""All images, and what builders do now, for commands. They are read directly, not from a cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from nodepool.model.builder_status import BuilderStatus
from nodepool.model.image_view import BuildView, ImagesView, ImageView
from nodepool.zk import image_paths, multi_read, status
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.image_tree import ImageTree
from nodepool.zk.status_records import BUILDER

#: Path -> names below, as ZooKeeper lists them.
_Names = Mapping[str, list[str]]


def read_images(client: ZooKeeperClient) -> ImagesView:
    """All images; bad records are logged and have no record in the view.

    As in released commands images and providers are in the order of their names, builds and uploads in the order in
    which ZooKeeper lists them. Blocks for some round trips, however many images there are: a packet asks for the
    znodes of a level.

    :raises ZKException: ZooKeeper could not be asked.
    """
    tree = ImageTree()
    listed = _read_names(client, tree)
    wanted = [f"{path}/{name}" for path, names in listed.items() for name in names]
    with_data = [path for path in wanted if image_paths.kind(image_paths.parts(path)).has_data]
    for path, found in zip(with_data, multi_read.read_data(client, with_data), strict=True):
        if found is None:
            tree.remove(path)
        else:
            tree.load(path, *found)
    views = {name: view for name in sorted(tree.image_names()) if (view := tree.view(name)) is not None}
    return ImagesView({name: _ordered_image(view, listed) for name, view in views.items()})


def builder_status(client: ZooKeeperClient) -> BuilderStatus:
    """How far all builders are. Blocks for round trips. Raises ZKException."""
    return BuilderStatus.of_records(status.read_all(client, BUILDER).values())


def _read_names(client: ZooKeeperClient, tree: ImageTree) -> dict[str, list[str]]:
    """Read what is there, level by level, into the tree."""
    listed: dict[str, list[str]] = {}
    level = [image_paths.IMAGES]
    while level:
        below: list[str] = []
        for path, names in zip(level, multi_read.read_children(client, level), strict=True):
            if names is None:
                # It went away meanwhile.
                tree.remove(path)
                continue
            tree.set_children(path, names)
            listed[path] = names
            children = [f"{path}/{name}" for name in names]
            below += [child for child in children if image_paths.kind(image_paths.parts(child)).has_children]
        level = below
    return listed


def _ordered_image(view: ImageView, listed: _Names) -> ImageView:
    names = listed.get(image_paths.builds(view.name), ())
    builds = {name: _ordered_build(view.name, view.builds[name], listed) for name in names if name in view.builds}
    return dataclasses.replace(view, builds=builds)


def _ordered_build(image: str, build: BuildView, listed: _Names) -> BuildView:
    uploads = {}
    for provider in sorted(build.uploads):
        by_id = {upload.id: upload for upload in build.uploads[provider]}
        names = listed.get(image_paths.uploads(image, build.id, provider), ())
        uploads[provider] = tuple(by_id[name] for name in names if name in by_id)
    return dataclasses.replace(build, uploads=uploads)
