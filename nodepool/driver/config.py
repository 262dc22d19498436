# SPDX-License-Identifier: Apache-2.0
"""Bases of a driver's configuration objects (reference/driver 4 to 6), and what their schemas are made of.

Each key is declared once, see `nodepool.model.config_keys`. A driver may declare its keys, too, or write a schema for
voluptuous.
"""

from __future__ import annotations

import abc
import functools
import logging
import math
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from nodepool.model import config_keys as keys
from nodepool.model.config_keys import (
    ANY_MAPPING,
    FILLED_TEXT,
    MAX_INT,
    PORT,
    REQUIRED,
    TENANTS,
    TEXT,
    WHOLE,
    From,
    ListOf,
    OneOf,
    key,
    keys_of,
)
from nodepool.model.config_keys import ConfigValue as ConfigValue
from nodepool.model.status import AccessRule

if TYPE_CHECKING:
    from nodepool.config.objects import Config, Label
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest


#: ``driver`` of a provider section that names none (reference/configuration 5).
DEFAULT_DRIVER: Final = "openstack"
#: ``connection-port`` when none is given, by ``connection-type``.
DEFAULT_PORT: Final = 22
WINRM_PORT: Final = 5986

Log = logging.Logger | logging.LoggerAdapter[Any]


class DriverReference(ConfigValue):
    """``provider_config.driver``: which driver a provider section names."""

    def __init__(self, name: str = "") -> None:
        self.name = name


class ImageConversion(NamedTuple):
    """How ``qemu-img`` makes an image of the form that a cloud takes.

    :param source: format of which it is made; diskimage-builder makes that one.
    :param driver: of qemu-img, for what is made.
    :param options: of that driver.
    :param multiple: the disk has a whole number of these, in bytes.
    """

    source: str
    driver: str
    options: str = ""
    multiple: int = 512


class ProviderConfig(ConfigValue, abc.ABC):
    """One provider section.

    :param provider: the section as it stands in the file; kept as ``provider``.
    """

    #: Does ``uploadImage()`` go on with what an interrupted upload of the build has done? See `UploadInterrupted`.
    resumes_uploads: ClassVar[bool] = False
    #: How the builder makes images of the format ``image_type``; None = diskimage-builder makes them.
    image_conversion: ClassVar[ImageConversion | None] = None

    name: str = key(FILLED_TEXT, REQUIRED, "Unique.")
    driver: DriverReference = key(TEXT, DEFAULT_DRIVER, "The kind of provider.", read=False)
    max_concurrency: int = key(
        WHOLE, -1, "Launches in progress over all its pools; negative = no limit; 0 = the provider handles no request."
    )
    priority: int | None = key(WHOLE, None, "Of its pools; the lower number is served first.", default_text="100")

    def __init__(self, provider: dict[str, Any]) -> None:
        self.provider = provider
        self.driver = DriverReference(provider.get("driver", DEFAULT_DRIVER))
        # The others when the section was checked, see `load`.
        self.read_keys(provider, ProviderConfig)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @classmethod
    def getCommonSchemaDict(cls) -> dict[Any, Any]:
        """Keys that every provider may have, for a voluptuous schema. Others must be added by the driver."""
        return fields_of(keys_of(ProviderConfig))

    @property
    @abc.abstractmethod
    def pools(self) -> dict[str, Any]:
        """Pool name -> `ConfigPool`."""

    @property
    @abc.abstractmethod
    def manage_images(self) -> bool:
        """Does the builder upload images to it?"""

    @abc.abstractmethod
    def load(self, newconfig: Config) -> None:
        """Parse ``self.provider``, which conforms to the schema, and announce each pool to its labels.

        For each label of each pool: ``newconfig.labels[name].pools.append(pool)``. A driver with images adds its format
        to ``newconfig.diskimages[name].image_types``. A name that is missing there is reported with file and line.

        :param newconfig: the whole configuration; labels and diskimages are there, other providers may not be.
        :raises Exception: the section cannot be used; the text is shown to the user with file and line.
        """

    @abc.abstractmethod
    def getSchema(self) -> Any:
        """Voluptuous schema of the whole provider section, with `getCommonSchemaDict` in it."""

    def localProblems(self) -> Iterable[tuple[str, str]]:
        """What keeps this machine from serving the section, for ``config-validate``; default: nothing. After `load`.

        May read files, e.g. one with credentials; contacts no one.

        :return: key of the section, and a text with the remedy.
        """
        return ()

    def getSupportedLabels(self, pool_name: str | None = None) -> set[str]:
        """Label names of one pool, or of all."""
        return {label for name, pool in self.pools.items() if pool_name in (None, name) for label in pool.labels}


class ConfigPool(ConfigValue, abc.ABC):
    """One pool of a provider."""

    ignore_equality: ClassVar[list[str]] = ["provider"]

    name: str = key(FILLED_TEXT, REQUIRED, "Unique in the provider.")
    max_servers: float = key(
        WHOLE, math.inf, "Nodes at once; 0 or less = the pool declines every request.", default_text="unlimited"
    )
    node_attributes: dict[str, Any] | None = key(
        ANY_MAPPING.or_null(),
        None,
        "Stored as ``attributes`` on every node. Zuul picks executors by ``executor-zone``.",
    )
    priority: int | None = key(
        WHOLE,
        From("provider"),
        "The lower number is served first: a pool leaves a request to pools with a lower number as long as one of them "
        "can serve it and is not paused.",
    )
    allowed_tenants: list[str] | None = key(
        TENANTS, None, "Tenants whose requests the pool serves, as in ``labels``.", default_text="all"
    )

    def __init__(self) -> None:
        self.name = ""
        #: label name -> label object; a set of names where labels have no settings (static).
        self.labels: Any = {}
        self.ignore_provider_quota = False
        self.azs: Sequence[str | None] | None = None
        #: The `ProviderConfig`, set by the driver.
        self.provider: Any = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @classmethod
    def getCommonSchemaDict(cls) -> dict[Any, Any]:
        """Keys that every pool may have, for a voluptuous schema. ``labels`` is not among them."""
        return fields_of(keys_of(ConfigPool))

    @abc.abstractmethod
    def load(self, pool_config: dict[str, Any]) -> None:
        """Take what one pool section says: the keys that are declared. Subclasses call this first.

        ``priority`` becomes that of the provider if the pool has none and ``self.provider`` is set before.
        """
        self.read_keys(pool_config)

    def tenantsOfLabel(self, label: str) -> Collection[str] | None:
        """Tenants for which the pool could ever have a node of a label, beside ``allowed-tenants``; None = all."""
        return None

    def tenantsOfNode(self, node: Node) -> Sequence[str] | None:
        """Tenants that may have a ready node of the pool, beside ``allowed-tenants``; None = all. Does not block."""
        return None

    def access(self, labels: Mapping[str, Label]) -> tuple[AccessRule, ...]:
        """Which tenants the pool serves.

        :param labels: the top-level ``labels``.
        """
        found: dict[tuple[str, ...], set[str]] = {}
        for label in self.labels:
            top = labels.get(label)
            for tenants in (None if top is None else top.allowed_tenants, self.tenantsOfLabel(label)):
                if tenants is not None:
                    found.setdefault(tuple(tenants), set()).add(label)
        whole = [] if self.allowed_tenants is None else [AccessRule(tuple(self.allowed_tenants))]
        return (*whole, *(AccessRule(tenants, frozenset(names)) for tenants, names in sorted(found.items())))


class Connection(ConfigValue):
    """How Zuul logs in to a node: the *connection defaults* of reference/configuration 5."""

    connection_type: str = key(TEXT, "ssh", "How Zuul connects: ``ssh``, ``winrm``, ``network_cli`` ...")
    connection_port: int = key(PORT, DEFAULT_PORT, "Port that Zuul connects to.", default_text="22; 5986 for ``winrm``")
    python_path: str = key(TEXT, "auto", "Python interpreter on the node, for Ansible.")
    shell_type: str | None = key(TEXT.or_null(), None, "Shell on the node, for Ansible.")

    def read_connection(self, data: Mapping[str, Any]) -> None:
        """Set the attributes of all declared keys; the default of the port depends on the type."""
        self.read_keys(data)
        if self.connection_type == "winrm" and not data.get("connection-port"):
            self.connection_port = WINRM_PORT


class ImageSettings(Connection):
    """An image as a provider uses it, from the cloud or uploaded (reference/driver 6).

    :param data: the section in the file.
    :param username: login user if the section names none.
    """

    name: str = key(FILLED_TEXT, REQUIRED, "What labels call it.")
    username: str | None = key(TEXT.or_null(), None, "Zuul logs in as this user.")

    def __init__(self, data: Mapping[str, Any], username: str | None = None) -> None:
        self.read_connection(data)
        self.username = self.username or username

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class LabelSettings(ConfigValue):
    """A label of a pool (reference/driver 6). Exactly one of ``diskimage`` and ``cloud_image`` is set by the driver."""

    ignore_equality: ClassVar[list[str]] = ["pool"]

    name: str = key(FILLED_TEXT, REQUIRED, "As at the top level, where ``min-ready`` and ``max-ready-age`` stand.")

    def __init__(self, name: str, pool: ConfigPool) -> None:
        self.name = name
        self.pool = pool
        self.diskimage: Any = None
        self.cloud_image: Any = None
        self.host_key_checking = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


# What keys of a section say together.

Section = dict[str, Any]
#: Path inside the section, and what is wrong.
Problem = tuple[list[Hashable], str]


def section_check(problems: Callable[[Section], Iterable[Problem]]) -> Callable[[Section], Section]:
    """A check for the class attribute ``checks`` of a section: it returns the section, or raises
    ``voluptuous.MultipleInvalid`` for its problems.
    """

    def check(section: Section) -> Section:
        import voluptuous as v

        found = [v.Invalid(text, path=path) for path, text in problems(section)]
        if found:
            raise v.MultipleInvalid(found)
        return section

    return check


# Voluptuous schemas of declared keys, and pieces for schemas that drivers write.


def section_schema(section: type) -> Any:
    """What voluptuous needs for a section: its keys, then the checks that the class attribute ``checks`` lists.

    A check takes the whole section and returns it, or raises ``voluptuous.Invalid``. The class attribute ``other_keys``
    is the type of keys of any other name, if they are allowed. The class attribute ``first_counts`` lists keys of which
    only one may be given; daemons of Nodepool 11 take the first one of the list that is there.
    """
    import voluptuous as v

    fields = fields_of(keys.keys_of(section))
    if hasattr(section, "other_keys"):
        fields[v.Extra] = value_schema(section.other_keys)
    checks = [*getattr(section, "checks", ())]
    if hasattr(section, "first_counts"):
        checks.append(functools.partial(_only_one, section.first_counts))
    return v.All(fields, *checks) if checks else fields


def _only_one(names: Sequence[str], data: dict[str, Any]) -> dict[str, Any]:
    """A check: only one of some keys is given."""
    import voluptuous as v

    given = [name for name in names if name in data]
    if len(given) > 1:
        raise v.Invalid(f"only one of {' and '.join(names)} can be given", path=[given[-1]])
    return data


def fields_of(declared: Iterable[keys.Key]) -> dict[Any, Any]:
    """Keys as a mapping for voluptuous; keys with a dot are mappings within it."""
    import voluptuous as v

    fields: dict[Any, Any] = {}
    for item in declared:
        *outer, last = item.path
        place = fields
        for part in outer:
            place = place.setdefault(part, {})
        place[v.Required(last) if item.required else last] = value_schema(item.kind)
    return fields


def value_schema(type: keys.ValueType) -> Any:
    """What voluptuous needs for a value."""
    import voluptuous as v

    made = _without_null(type)
    return v.Any(made, None) if type.null else made


def _without_null(type: keys.ValueType) -> Any:
    import voluptuous as v

    match type:
        case keys.Text(choices=(_, *_)):
            return v.In(list(type.choices))
        case keys.Text(pattern=True):
            return v.All(nonempty(), _compiles)
        case keys.Text(form=(form, words)):
            return v.Match(f"{form}$", msg=words)
        case keys.Text():
            return str if type.empty else nonempty()
        case keys.Whole():
            return integer(type.minimum, type.maximum)
        case keys.Number():
            return number(type.minimum, more=type.more)
        case keys.Flag():
            return bool
        case keys.MappingOf():
            return dict if type.values is None else {str: value_schema(type.values)}
        case keys.ListOf():
            return [value_schema(type.item)]
        case keys.TextOrNumber():
            return v.Any(str, int, float)
        case keys.OneOf():
            return v.Any(*map(value_schema, type.types))
        case keys.Sections():
            return [section_schema(type.section)]
    raise TypeError(f"no schema for {type!r}")


# Pieces of schemas.


def integer(minimum: int = -MAX_INT, maximum: int = MAX_INT) -> Any:
    """A whole number in a range. Unlike ``int`` in a schema it refuses ``true`` and ``false``."""
    import voluptuous as v

    return v.All(v.Any(_plain_int, msg="expected int"), v.Range(min=minimum, max=maximum))


def number(minimum: float = -MAX_INT, maximum: float = MAX_INT, *, more: bool = False) -> Any:
    """A number with or without a fraction; not infinite, not ``true``.

    :param more: the number must be more than the minimum.
    """
    import voluptuous as v

    allowed = v.Range(min=minimum, max=maximum, min_included=not more)
    return v.All(v.Any(_plain_int, float, msg="expected a number"), allowed)


def port() -> Any:
    """A TCP port."""
    return integer(1, 65535)


def nonempty() -> Any:
    """A text that is not empty."""
    import voluptuous as v

    return v.All(str, v.Length(min=1))


def _compiles(value: str) -> str:
    """A check: what stands between slashes is a regular expression."""
    import voluptuous as v

    try:
        re.compile(keys.regular_expression(value) or "")
    except re.error as error:
        raise v.Invalid(f"it is no regular expression: {error}") from None
    return value


def _plain_int(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("expected int")


# Sections of a file as they stand there, before they are checked against a schema.


def mappings(data: Any, key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Position and content of the entries of a list that are mappings.

    :param data: has the list under ``key``, if it is a mapping and that is a list.
    """
    entries = data.get(key) if isinstance(data, dict) else None
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict):
            yield index, entry


# Keys that take a value, or several values in order.

#: A text, or texts in order.
ONE_OR_MORE: Final = OneOf((TEXT, ListOf(FILLED_TEXT)))


def in_order(given: str | list[str]) -> list[str]:
    """What `ONE_OR_MORE` gives, as a list."""
    return [given] if isinstance(given, str) else list(given)


def as_texts(tags: dict[Any, Any]) -> dict[str, str]:
    """Tags as a cloud takes them: YAML takes ``release: 12`` for a number."""
    return {str(name): str(value) for name, value in tags.items()}


# Values of the configuration that are made of the request that causes a launch (L-15).

#: Fields of a request that such values may use (reference/configuration 5); and ``labels``.
_REQUEST_FIELDS: Final = [
    "id",
    "requestor",
    "requestor_data",
    "relative_priority",
    "event_id",
    "created_time",
    "tenant_name",
]


def dynamic_values(label: LabelSettings, name: str, request: NodeRequest | None, log: Log) -> dict[str, str]:
    """Values of a label that are made of the request. What cannot be formatted is logged and left out.

    :param name: of the key that has them, such as ``dynamic-tags``.
    :param log: of the node.
    """
    fields = {field: getattr(request, field, None) for field in _REQUEST_FIELDS}
    values = SimpleNamespace(**fields, labels=getattr(request, "node_types", None))
    found: dict[str, str] = {}
    for key_of_value, template in getattr(label, name.replace("-", "_")).items():
        try:
            found[str(key_of_value)] = str(template).format(request=values)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            log.error("Label %s: %s: %s cannot be formatted; it is left out", label.name, name, key_of_value)
    return found
