# SPDX-License-Identifier: Apache-2.0
"""Provider sections of which the keys are declared: what is the same for every driver.

First images that labels name, then the bases of sections, then a section that cannot be used
(`UnavailableProviderConfig`).
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from nodepool.driver import config
from nodepool.driver.framework.keyscan import SSH_CONNECTION_TYPES
from nodepool.exceptions import ConfigError
from nodepool.model.config_keys import (
    ANY_MAPPING,
    FILLED_TEXT,
    FLAG,
    REQUIRED,
    SECONDS,
    TEXT,
    From,
    Whole,
    key,
    section_class,
    with_default,
)

if TYPE_CHECKING:
    from nodepool.config.objects import Config, DiskImage


PoolT = TypeVar("PoolT", bound=config.ConfigPool)


# Images: the settings of those that labels name, and checks that they are there.


#: Of keys with values that are made for each request.
DYNAMIC_HELP: Final = (
    'The same with values of the request: ``tenant: "{request.tenant_name}"``. There are ``id``, ``labels``, '
    "``requestor``, ``requestor_data``, ``relative_priority``, ``event_id``, ``created_time`` and ``tenant_name``. "
    "A value that cannot be formatted is left out and logged."
)


class DiskImageSettings(config.ImageSettings):
    """An entry of a provider's ``diskimages``: an image that the builder uploads there.

    :param image: the top-level image; says how to log in.
    """

    without_keys: ClassVar[tuple[str, ...]] = ("username", "python-path", "shell-type")

    name: str = key(
        FILLED_TEXT,
        REQUIRED,
        "Of an image in the top-level ``diskimages``, which also says how to log in: ``username``, ``python-path``, "
        "``shell-type``.",
    )
    pause: bool = key(FLAG, False, "Do not upload it here.")
    meta: dict[str, Any] = key(
        ANY_MAPPING,
        {},
        "Properties of the image in the cloud, e.g. ``hw_disk_bus: scsi``; they win over the ``metadata`` of the "
        "top-level image.",
    )

    def __init__(self, data: dict[str, Any], image: DiskImage) -> None:
        super().__init__(data, username=image.username)
        self.python_path = image.python_path
        self.shell_type = image.shell_type


class UploadedImage(config.ImageSettings):
    """The same for drivers in which the entry says how to log in, and the top-level image only the user.

    :param image: the top-level image.
    """

    name: str = key(FILLED_TEXT, REQUIRED, "Of an image in the top-level ``diskimages``.")
    username: str | None = key(
        TEXT.or_null(), None, "Deprecated: it belongs to the top-level image.", default_text="the top-level image's"
    )
    pause: bool = with_default(DiskImageSettings.pause, False)

    def __init__(self, data: dict[str, Any], image: DiskImage) -> None:
        super().__init__(data, username=image.username)


@config.section_check
def one_image(label: config.Section) -> Iterator[config.Problem]:
    """Check for the schema of a label: it has exactly one of the two keys."""
    if ("diskimage" in label) == ("cloud-image" in label):
        yield [], "exactly one of diskimage and cloud-image is needed"


class ImageLabel(config.LabelSettings):
    """A label with an image of its provider, which has ``diskimages`` and ``cloud_images``: name -> image.

    :param data: the section in the file.
    :raises ConfigError: the provider does not have the image.
    """

    checks: ClassVar[tuple[Any, ...]] = (one_image,)

    diskimage: Any = key(
        FILLED_TEXT,
        None,
        "Image of the provider's ``diskimages``; either this or ``cloud-image``.",
        read=False,
        default_text="one is required",
    )
    cloud_image: Any = key(
        FILLED_TEXT, None, "Image of the provider's ``cloud-images``.", read=False, default_text="one is required"
    )
    console_log: bool = key(
        FLAG,
        False,
        "Write the console to the log when the machine does not answer within ``boot-timeout`` or fails its "
        "``ready-check``. ``nodepool explain NODE`` shows the last 4 KiB, and so does the page of the node to "
        "operators who have logged in.",
    )
    host_key_checking: bool = key(
        FLAG, True, "false: a node is not contacted before it is given out, and has no host keys."
    )
    ready_check: str | None = key(
        FILLED_TEXT.or_null(),
        None,
        "Command that is run on a node over SSH when its host keys are known. The node is ready if it exits with 0. "
        "``cloud-init``: wait until cloud-init has ended without an error (:doc:`/how-to/ready-check`).",
    )
    ready_check_timeout: float = key(
        SECONDS, 600.0, "Limit of the check, from its begin until the host keys were scanned again."
    )
    ready_check_key: str | None = key(
        FILLED_TEXT.or_null(),
        None,
        "File with a private key without a passphrase, for the log-in as the image's ``username``.",
        default_text="required with ``ready-check``",
    )

    def __init__(self, pool: config.ConfigPool, provider: Any, data: dict[str, Any]) -> None:
        super().__init__(data["name"], pool)
        self.read_keys(data)
        if "diskimage" in data:
            self.diskimage = self._image(provider.diskimages, data["diskimage"], "diskimage")
        if "cloud-image" in data:
            self.cloud_image = self._image(provider.cloud_images, data["cloud-image"], "cloud-image")
        if self.ready_check is not None:
            self._refuse_check_without_login(self.diskimage or self.cloud_image)

    def _refuse_check_without_login(self, image: Any) -> None:
        lacks = {
            "ready-check-key": self.ready_check_key,
            "host-key-checking: true": self.host_key_checking,
            "an image with a username": image.username,
            f"an image with connection-type ssh, not {image.connection_type},": (
                image.connection_type in SSH_CONNECTION_TYPES
            ),
        }
        for what, given in lacks.items():
            if not given:
                raise ConfigError(f"label {self.name}: ready-check needs {what} to log in over SSH")

    def _image(self, images: dict[str, Any], name: str, kind: str) -> Any:
        if name not in images:
            raise ConfigError(f"label {self.name}: the provider has no {kind} {name!r}; add it to its {kind}s")
        return images[name]


class CloudLabel(ImageLabel):
    """The same where there are cheaper instances that the cloud may take away, and a pool says what is contacted."""

    use_spot: bool = key(FLAG, False, "A spot instance: cheaper, and the cloud may take it away while a job runs.")
    spot_fallback: bool = key(
        FLAG, False, "With ``use-spot``: a regular instance if the cloud has no capacity for a spot instance."
    )
    host_key_checking: bool = key(FLAG, From("pool"), "Instead of that of the pool.")

    @property
    def spot_kinds(self) -> tuple[bool, ...]:
        """What is tried, one after the other: a spot instance (True), a regular one."""
        return (True, False) if self.use_spot and self.spot_fallback else (self.use_spot,)


def labels_not_offered(section: dict[str, Any], checks: Iterable[Any]) -> Iterator[tuple[list[Hashable], str]]:
    """Labels that no node can be launched for; see `DeclaredProviderConfig.without_effect`.

    :param section: of a provider.
    :param checks: of a label.
    """
    import voluptuous as v

    images = {image.get("name") for _, image in config.mappings(section, "diskimages")}
    for pool_index, pool in config.mappings(section, "pools"):
        for index, label in config.mappings(pool, "labels"):
            path: list[Hashable] = ["pools", pool_index, "labels", index]
            image = label.get("diskimage")
            try:
                for check in checks:
                    check(label)
            except v.Invalid as problem:
                yield [*path, *problem.path], f"{problem.error_message}; a daemon does not offer the label here"
                continue
            if isinstance(image, str) and image not in images:
                text = f"the provider has no diskimage {image!r}; add it to its diskimages"
                yield [*path, "diskimage"], f"{text}; a daemon does not offer the label here"


@config.section_check
def known_images(provider: config.Section) -> Iterator[config.Problem]:
    """Check for the schema of a provider: it has the images that its labels name."""
    for kind, section in (("diskimage", "diskimages"), ("cloud-image", "cloud-images")):
        names = {image["name"] for image in provider.get(section) or []}
        for pool_index, pool in enumerate(provider.get("pools") or []):
            for index, label in enumerate(pool.get("labels") or []):
                name = label.get(kind)
                if name is not None and name not in names:
                    text = f"the provider has no {kind} {name!r}; add it to its {section}"
                    yield ["pools", pool_index, "labels", index, kind], text


# The bases of sections.


class DeclaredPool(config.ConfigPool):
    """A pool of a provider whose keys are declared. Its class declares ``labels``, whose class makes the labels."""

    def __init__(self, provider: Any) -> None:
        super().__init__()
        self.provider = provider

    def load(self, pool_config: dict[str, Any]) -> None:
        super().load(pool_config)
        make_label = section_class(type(self), "labels")
        for data in pool_config.get("labels") or []:
            self.labels[data["name"]] = make_label(self, self.provider, data)


class CloudPool(DeclaredPool):
    """A pool of nodes with addresses. The provider has the same keys, for pools without them."""

    public_ipv4: bool = key(FLAG, From("provider"), "Nodes get a public IPv4 address.")
    use_internal_ip: bool = key(FLAG, From("provider"), "Nodes are reached at their private addresses.")
    host_key_checking: bool = key(
        FLAG, From("provider"), "false: a node is not contacted before it is given out, and has no host keys."
    )


class DeclaredProviderConfig(config.ProviderConfig, Generic[PoolT]):
    """A provider section whose keys are declared; ``pools`` is declared by the driver, as the attribute ``_pools``.

    The class of a pool is made with this object. The schema has the keys, and the functions of ``checks``.
    """

    checks: ClassVar[tuple[Any, ...]] = ()

    _pools: dict[str, PoolT]

    def __init__(self, provider: dict[str, Any]) -> None:
        super().__init__(provider)
        self._pools = {}

    @property
    def pools(self) -> dict[str, PoolT]:
        return self._pools

    @property
    def manage_images(self) -> bool:
        return False

    @classmethod
    def without_effect(cls, section: dict[str, Any]) -> Iterator[tuple[list[Hashable], str]]:
        """Entries of lists that daemons of Nodepool 11 go on without. They are taken away before the section is loaded.

        :param section: whose values are of their types, as far as they have a meaning.
        :return: path in the section, to the entry or into it; what is wrong.
        """
        return iter(())

    def load(self, newconfig: Config) -> None:
        """Take all declared keys, make the pools, and tell each label of them.

        :raises ConfigError: a label is not defined at the top level.
        """
        self.read_keys(self.provider)
        make_pool = section_class(type(self), "pools")
        for section in self.provider.get("pools") or []:
            pool = make_pool(self)
            pool.load(section)
            self._pools[pool.name] = pool
            for label in sorted(pool.labels):
                if label not in newconfig.labels:
                    where = f"provider {self.name}, pool {pool.name}"
                    raise ConfigError(f"{where}: label {label!r} is not defined; add it to the top-level labels")
                newconfig.labels[label].pools.append(pool)

    def getSchema(self) -> Any:
        """Schema of the whole section, of the declared keys."""
        import voluptuous as v

        return v.Schema(config.section_schema(type(self)))


class LaunchingProviderConfig(DeclaredProviderConfig[PoolT]):
    """Keys that the state-machine framework reads; a driver may declare them again with another default."""

    launch_retries: int = key(
        Whole(1), 3, "Attempts in all. Before a new one, what the last one made is deleted completely."
    )
    launch_timeout: float = key(
        SECONDS,
        3600.0,
        "Limit of one attempt, from its beginning until the machine runs. The wait for ``rate`` does not count.",
    )
    boot_timeout: float = key(SECONDS, 120.0, "Limit until a machine that runs shows its SSH host keys.")

    def localProblems(self) -> Iterator[tuple[str, str]]:
        """Private keys for ready-checks that this machine does not have."""
        for pool in self.pools.values():
            for label in pool.labels.values():
                file = getattr(label, "ready_check_key", None)
                if file and not os.access(os.path.expanduser(file), os.R_OK):
                    yield "pools", f"label {label.name}: ready-check-key {file} cannot be read; its launches fail"


class CloudProviderConfig(LaunchingProviderConfig[PoolT]):
    """A cloud that images are uploaded to, maybe with images of its own.

    The driver declares ``diskimages``, and ``cloud-images`` if there are some, and says ``image_type``.
    """

    checks: ClassVar[tuple[Any, ...]] = (known_images,)

    #: Format of the images that are uploaded.
    image_type: Any
    diskimages: dict[str, Any]
    cloud_images: dict[str, Any]

    image_name_format: str = key(
        FILLED_TEXT, "{image_name}-{timestamp}", "Name of an uploaded image; ``{upload_id}`` may be in it, too."
    )
    post_upload_hook: str | None = key(
        TEXT.or_null(),
        None,
        "Program that is run after an upload with the provider's name, the image's id and the file; if it does not "
        "exit with 0, the image is deleted again.",
    )
    clean_leaked_images: bool = key(
        FLAG,
        False,
        "true: images in the cloud that are marked as ours and have no record are deleted; false: they are only "
        "reported, because records may have been lost, and be imported again.",
    )

    def __init__(self, provider: dict[str, Any]) -> None:
        super().__init__(provider)
        self.diskimages, self.cloud_images = {}, {}

    @property
    def manage_images(self) -> bool:
        return True

    @classmethod
    def without_effect(cls, section: dict[str, Any]) -> Iterator[tuple[list[Hashable], str]]:
        """Labels that cannot be launched: of an image that the provider does not list, without an image, and so on."""
        checks = getattr(section_class(section_class(cls, "pools"), "labels"), "checks", ())
        return labels_not_offered(section, checks)

    def load(self, newconfig: Config) -> None:
        """Take the images, then all the rest; see `DeclaredProviderConfig.load`."""
        # The format of images may be a key.
        self.read_keys(self.provider)
        for section in self.provider.get("diskimages") or []:
            image = newconfig.diskimages[section["name"]]
            image.image_types.add(self.image_type)
            if self.image_conversion is not None:
                image.conversions[self.image_type] = self.image_conversion
            self.diskimages[image.name] = section_class(type(self), "diskimages")(section, image)
        for section in self.provider.get("cloud-images") or []:
            self.cloud_images[section["name"]] = section_class(type(self), "cloud-images")(section)
        super().load(newconfig)


class CloudPoolsConfig(CloudProviderConfig[PoolT]):
    """One whose pools are of the class `CloudPool`."""

    without_keys: ClassVar[tuple[str, ...]] = ("image-name-format",)

    public_ipv4: bool = key(FLAG, True, "For pools without it.")
    use_internal_ip: bool = key(FLAG, False, "For pools without it.")
    host_key_checking: bool = key(FLAG, True, "For pools without it.")


# A provider section that cannot be used, or whose driver is not installed: kept, so that the rest of the file counts.


class UnavailableProviderConfig(config.ProviderConfig):
    """Offers no pool and no label. The launcher logs ``reason`` and treats the provider as absent.

    :param reason: why it cannot work, one line.
    """

    def __init__(self, provider: dict[str, Any], reason: str) -> None:
        super().__init__(provider)
        self.reason = reason

    @property
    def pools(self) -> dict[str, Any]:
        return {}

    @property
    def manage_images(self) -> bool:
        return False

    def load(self, newconfig: Config) -> None:
        return

    def getSchema(self) -> Any:
        """The common keys; what else the section holds is not known here."""
        import voluptuous as v

        pool = v.Schema(config.ConfigPool.getCommonSchemaDict(), extra=v.ALLOW_EXTRA)
        return v.Schema({**self.getCommonSchemaDict(), "pools": [pool]}, extra=v.ALLOW_EXTRA)
