# SPDX-License-Identifier: Apache-2.0
"""``clouds.yaml``, read with openstacksdk's own loader, so that all it knows works: regions, profiles, secure files.

A file that is missing or broken, or a cloud that is not in it, concerns the providers that name it, and no one else:
`Clouds.settings` does not raise. The error comes when such a provider is started, and the start is tried again. One
that runs already goes on with what the file stated before.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import yaml

from nodepool.driver.framework.cloud_errors import one_line
from nodepool.exceptions import ConfigError
from nodepool.version import how_to_install, release_string

if TYPE_CHECKING:
    from openstack.config.cloud_region import CloudRegion
    from openstack.config.loader import OpenStackConfig

log = logging.getLogger("nodepool.driver.openstack.clouds")

DEFAULT_IMAGE_FORMAT: Final = "qcow2"
#: Kinds of login with a name and a password.
_PASSWORD_TYPES: Final = frozenset({"password", "v3password", "v2password"})
_PROJECT_KEYS: Final = ("project_name", "project_id", "tenant_name", "tenant_id", "trust_id", "system_scope")
#: What makes no difference to what a provider does; loaders put it in.
_IGNORED_SETTINGS: Final = frozenset({"statsd", "cache"})
#: Values of one cloud, aliases followed: a few lines of aliases to aliases can mean billions.
_MAX_VALUES: Final = 10_000
#: What an endpoint has when the versions of its service are known, e.g. ``/v2.1``.
VERSION_IN_PATH: Final = re.compile(r"/v\d+(\.\d+)?(/|$)")
#: In errors of YAML; a password that begins with ``!`` or ``*`` is a tag or an alias to it.
_QUOTATION: Final = re.compile(r"'[^'\n]{2,}'")


class CloudProblem(ConfigError):
    """A cloud cannot be used as clouds.yaml has it. The text says what to do about it."""


@dataclass
class CloudSettings:
    """What clouds.yaml says of a cloud, to be compared on a reload.

    :param values: all settings, credentials too: not for the log.
    :param problem: why the cloud cannot be used; "" = it can.
    :param outdated: why these are the settings of an earlier file; "" = they are not.
    """

    values: Mapping[str, Any] = field(repr=False)
    problem: str = ""
    # Settings that are outdated are still the same settings.
    outdated: str = field(default="", compare=False)

    @property
    def image_format(self) -> str:
        return str(self.values.get("image_format") or DEFAULT_IMAGE_FORMAT)


class Clouds:
    """The clouds that clouds.yaml knows; read once, until `forget`.

    ``_lock`` guards what was read; it is held while the file is read, so that this happens once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loader: OpenStackConfig | None = None
        #: What could be used last.
        self._usable: dict[tuple[str | None, ...], CloudRegion] = {}

    def forget(self) -> None:
        """Read the file again next time."""
        with self._lock:
            self._loader = None

    def settings(self, cloud: str, region: str | None) -> CloudSettings:
        """What the file says of a cloud, or what it stated before if that cannot be used. Does not raise.

        Reads files only.
        """
        known, problem = self._latest(cloud, region)
        if known is None:
            return CloudSettings({}, problem)
        return CloudSettings(_comparable(settings_of(known)), outdated=problem)

    def region(self, cloud: str, region: str | None) -> CloudRegion:
        """openstacksdk's object for a cloud, maybe of an earlier file, see `settings`. Does not contact the cloud.

        :raises CloudProblem: it cannot be used; the next call reads the file again.
        """
        known, problem = self._latest(cloud, region)
        if known is None:
            raise CloudProblem(problem)
        return known

    def renewed(self, cloud: str, region: str | None, known: CloudRegion) -> CloudRegion | None:
        """What there is now in place of what `region` returned; None = it says the same. Does not raise."""
        found, _ = self._latest(cloud, region)
        same = found is None or _comparable(settings_of(found)) == _comparable(settings_of(known))
        return None if same else found

    def files(self) -> list[str]:
        """The files that a cloud may stand in, those that do not exist included. Does not raise."""
        try:
            loader = self._load()
        except CloudProblem:
            return [name for name in [os.environ.get("OS_CLIENT_CONFIG_FILE")] if name]
        return [*_search_path(loader), *(str(name) for name in getattr(loader, "_secure_files", ()))]

    def _latest(self, cloud: str, region: str | None) -> tuple[CloudRegion | None, str]:
        """What could be used last; and why that is not what the file says now, "" = it is."""
        # What another file says is about another cloud.
        key = os.environ.get("OS_CLIENT_CONFIG_FILE"), cloud, region
        problem = ""
        try:
            self._usable[key] = self._find(cloud, region)
        except CloudProblem as error:
            self.forget()
            problem = str(error)
        return self._usable.get(key), problem

    def _find(self, cloud: str, region: str | None) -> CloudRegion:
        loader = self._load()
        path = getattr(loader, "config_filename", None)
        known = sorted(str(name) for name in loader.get_cloud_names())
        if cloud not in known:
            if path is None:
                raise CloudProblem(_why_no_file(cloud, _search_path(loader)))
            raise CloudProblem(f"{path} has no cloud {cloud!r} (it has: {', '.join(known) or 'none'}); add it there")
        arguments: dict[str, Any] = {"region_name": region} if region else {}
        entry = loader.cloud_config["clouds"].get(cloud, {})
        if not isinstance(entry, Mapping) or not isinstance(entry.get("auth", {}), Mapping):
            raise CloudProblem(
                f"cloud {cloud!r} in {path}: it must be a mapping, and so must its auth; correct it there"
            )
        try:
            found = loader.get_one(cloud=cloud, **arguments)
            _comparable(settings_of(found))
            problem = problem_of(found)
        except Exception as error:  # noqa: BLE001 - whatever its plug-ins make of odd values, without its quotations
            raise CloudProblem(
                f"cloud {cloud!r} in {path} cannot be used: {_reason(error)}; correct it there"
            ) from None
        if problem:
            raise CloudProblem(f"cloud {cloud!r} in {path} cannot be used: {problem}")
        return found

    def _load(self) -> OpenStackConfig:
        with self._lock:
            if self._loader is None:
                try:
                    from openstack.config.loader import CONFIG_FILES, SECURE_FILES, OpenStackConfig
                except ImportError as error:
                    raise CloudProblem(f"{error}; {how_to_install('openstack')}") from None
                # It says of a broken file what YAML says. Adding a filter again does nothing.
                logging.getLogger("openstack.config").addFilter(_without_quotations)
                try:
                    # Copies: older releases put files of the environment into these lists, to stay there for ever.
                    self._loader = OpenStackConfig(
                        config_files=list(CONFIG_FILES),
                        secure_files=list(SECURE_FILES),
                        app_name="nodepool",
                        app_version=release_string(),
                    )
                except Exception as error:  # noqa: BLE001 - any error of a broken file, without its quotations
                    raise CloudProblem(f"clouds.yaml cannot be read: {_reason(error)}; correct the file") from None
            return self._loader


def settings_of(region: CloudRegion) -> dict[str, Any]:
    """All settings of a cloud; openstacksdk takes some out of its ``config``, or makes them of others."""
    version = region.get_default_microversion("compute") or region.get_api_version("compute")
    return {
        **region.config,
        "force_ipv4": region.force_ipv4,
        "metrics": [region.config.get("metrics"), region.get_client_config("metrics")],
        "compute_default_microversion": version,
    }


def section(values: Any, name: str) -> Mapping[str, Any]:
    """A mapping within settings; {} = there is none. Pure."""
    found = values.get(name) if isinstance(values, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def host_has_ipv6() -> bool:
    """Has this host IPv6 to the outside? As openstacksdk sees it: an address that is neither local nor of a link."""
    try:
        from openstack.cloud._utils import localhost_supports_ipv6
    except ImportError:
        # Not installed, or no longer there.
        return False
    try:
        return bool(localhost_supports_ipv6())
    except OSError as error:
        # A sandbox may forbid the question, such as RestrictAddressFamilies= of systemd without AF_NETLINK.
        log.info("Addresses of this host are not known, so nodes are reached by IPv4: %s", error)
        return False


def problem_of(region: CloudRegion) -> str:
    """What is missing or impossible in the settings of a cloud, and the remedy; "" = nothing. Pure, but for files."""
    config = region.config
    auth = config.get("auth") or {}
    url = auth.get("auth_url")
    if url and not re.match(r"https?://[^/\s]", str(url)):
        # What is before an @ is no address.
        return f"auth_url must begin with http:// or https://, not {str(url).rpartition('@')[2][:100]!r}"
    if str(config.get("auth_type") or "password") in _PASSWORD_TYPES:
        for keys in (("auth_url",), ("username", "user_id"), ("password",), _PROJECT_KEYS):
            if not any(auth.get(key) for key in keys):
                return f"auth has no {keys[0]}; add it (or in secure.yaml)"
    timeout = config.get("api_timeout")
    # Raises what is wrong with a text.
    if timeout is not None and not float(timeout) > 0:
        return f"api_timeout must be a number of seconds above 0, not {timeout!r}"
    verify, cert = region.get_requests_verify_args()
    certs = cert if isinstance(cert, tuple) else (cert,)
    for key, name in (("cacert", verify), *(("cert or key", part) for part in certs)):
        if isinstance(name, str) and not os.path.exists(name):
            return f"{key}: there is no file {name}"
    return ""


def _search_path(loader: OpenStackConfig) -> list[str]:
    files = (str(name) for name in getattr(loader, "_config_files", ()) if str(name).endswith(".yaml"))
    # The user's and the site's directory may be the same one.
    return list(dict.fromkeys(files)) or ["clouds.yaml"]


def _why_no_file(cloud: str, files: list[str]) -> str:
    """The loader passes over files that it cannot read."""
    for name in files:
        try:
            with open(name, encoding="utf-8") as file:
                yaml.safe_load(file)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, yaml.YAMLError) as error:
            return f"clouds.yaml cannot be read: {_reason(error)}; correct the file"
    return (
        f"there is no clouds.yaml with the cloud {cloud!r}: none of these files can be used: {', '.join(files)}; "
        "write one, or set OS_CLIENT_CONFIG_FILE"
    )


def _reason(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        # The whole text of a YAML error quotes lines of the file, maybe the one with the password.
        problem = _QUOTATION.sub("'...'", getattr(error, "problem", None) or "no YAML")
        return f"{mark.name}, line {mark.line + 1}: {problem} (put values with special characters in quotes)"
    return one_line(str(error)) or type(error).__name__


def _without_quotations(record: logging.LogRecord) -> bool:
    """A filter that takes quotations of a broken file out of what openstacksdk says about it."""
    if any(isinstance(argument, yaml.YAMLError) for argument in record.args or ()):
        record.msg, record.args = _QUOTATION.sub("'...'", record.getMessage()), ()
    return True


def _comparable(values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy without what is not plain data, which would never be equal. Raises ValueError: there is too much."""
    budget = [_MAX_VALUES]
    return {key: _plain(value, budget) for key, value in values.items() if key not in _IGNORED_SETTINGS}


def _plain(value: Any, budget: list[int]) -> Any:
    budget[0] -= 1
    if budget[0] < 0:
        raise ValueError(f"more than {_MAX_VALUES} values, or one that contains itself")
    if isinstance(value, Mapping):
        return {str(key): _plain(item, budget) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_plain(item, budget) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(type(value))
