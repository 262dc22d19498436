# SPDX-License-Identifier: Apache-2.0
"""Provider sections, and each key of clouds.yaml that openstacksdk reads: it does what it does there, or is reported.

The truth is the source of openstacksdk 4.22 (``openstack.config``, ``openstack.cloud``), which
`test_no_key_is_forgotten` looks through for keys, and keystoneauth's ``Session`` and ``Adapter``. Whatever else stands
in the file: a cloud can be used, or the problem says why not, without a secret.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openstack
import pytest
import voluptuous as v
import yaml

from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.driver.openstack import OpenStackDriver
from nodepool.driver.openstack.cloud import CloudNetworks
from nodepool.driver.openstack.clouds import CloudProblem, Clouds, settings_of
from nodepool.driver.openstack.transport import Transport, make_http_client
from simulators.openstack import CLOUD_NAME, OpenStackSimulator
from tests.support.recording_server import Sent
from tests.support.tables import driver_table
from tests.unit.driver.openstack.support import MakeSite, load, section

Settings = dict[str, Any]
SECRET = "pass-W0RD"
AUTH = {"auth_url": "https://127.0.0.1:1/v3", "username": "u", "password": SECRET, "project_name": "p"}


def write(file: Path, settings: Settings) -> None:
    """A cloud with these settings; ``auth`` is merged, None = without it; ``_file``: for the top of the file."""
    auth = {key: value for key, value in {**AUTH, **settings.get("auth", {})}.items() if value is not None}
    own = {key: value for key, value in settings.items() if key not in ("_file", "auth")}
    file.write_text(yaml.safe_dump({"clouds": {"one": {"auth": auth, **own}}, **settings.get("_file", {})}), "utf-8")


@pytest.fixture
def region_of(clouds_yaml: Path) -> Callable[..., Any]:
    """openstacksdk's object for a cloud with these settings."""

    def make(settings: Settings) -> Any:
        write(clouds_yaml, settings)
        return Clouds().region("one", None)

    return make


# -- what openstacksdk does --

DOCUMENT = {"id": "v2.1", "status": "CURRENT", "version": "2.93", "min_version": "2.1"}


@pytest.mark.parametrize(("path", "settings", "version"), driver_table("openstack", "versions"))
def test_calls(make_site: MakeSite, path: str, settings: Settings, version: str | None) -> None:
    """Twice as keystoneauth makes it, which looks whether the service has the version, then quickly."""

    def answer(sent: Sent) -> bytes:
        links = [{"rel": "self", "href": f"http://{sent.headers['host']}/v2.1"}]
        document = json.dumps({"version": DOCUMENT | {"links": links}}).encode()
        body = document if sent.first.split()[1].endswith("/v2.1") else b"{}"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    with make_site(path, **settings) as site:
        site.service.answer = answer
        assert [site.is_quick() for _ in range(3)][-1]
        first = f"GET {path % {'project_id': site.client.get_project_id()}}/servers/1 HTTP/1.1"
        calls = [sent for sent in site.service.sent if "servers" in sent.first]
        assert {(sent.first, sent.headers.get("openstack-api-version")) for sent in calls} == {(first, version)}


@pytest.mark.parametrize(("settings", "found"), driver_table("openstack", "catalog"))
def test_catalog(clouds_yaml: Path, settings: Settings, found: str) -> None:
    """Which endpoint of the catalog is used; "" = there is none."""
    with OpenStackSimulator() as cloud:
        cloud.change(regions=["RegionOne", "Two"])
        entry = {key: value for key, value in (cloud.clouds_yaml_entry() | settings).items() if value is not None}
        clouds_yaml.write_text(yaml.safe_dump({"clouds": {CLOUD_NAME: entry}}), "utf-8")
        transport = Transport("cloud-a", Clouds().region(CLOUD_NAME, None), 0)
        if not found:
            # Each of them is no cloud without it.
            with pytest.raises(CloudAway, match="the cloud has no compute service for us"):
                transport.has("compute")
        else:
            client: Any = make_http_client(transport.region, "compute")
            assert f"//{found}:" in client.get_endpoint()
            client.close()
        transport.close()


@pytest.mark.parametrize(("settings", "name", "wanted"), driver_table("openstack", "networks_of_clouds_yaml"))
def test_networks(region_of: Callable[..., Any], settings: Settings, name: str, wanted: Any) -> None:
    """O-12, O-13"""
    assert getattr(CloudNetworks(settings_of(region_of(settings))), name) == wanted
    assert getattr(CloudNetworks({}), name) != wanted


# -- what is not done, or cannot work --


@pytest.mark.parametrize(("settings", "text"), driver_table("openstack", "bad_settings"))
def test_settings_that_cannot_work(clouds_yaml: Path, settings: Settings, text: str | None) -> None:
    """Bad input: what is missing is named when the provider is started, not an hour later by each call."""
    write(clouds_yaml, settings)
    problem = Clouds().settings("one", None).problem
    if text is None:
        assert problem == ""
        return
    with pytest.raises(CloudProblem, match=re.escape(f"cloud 'one' in {clouds_yaml} cannot be used: ")) as caught:
        Clouds().region("one", None)
    assert text in str(caught.value) == problem
    assert SECRET not in problem


#: A few lines of aliases to aliases can mean billions of values.
BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
LONG = {"too deep": "[" * 500, "too many values": f"{BOMB}clouds: {{one: {{auth: {{auth_url: 'https://x'}}, x: *i}}}}"}


@pytest.mark.parametrize(("content", "wanted"), driver_table("openstack", "bad_files"))
def test_a_file_that_cannot_be_used(
    clouds_yaml: Path, caplog: pytest.LogCaptureFixture, content: str | None, wanted: str
) -> None:
    """G-8, G-9: a provider that starts has the problem; one that runs keeps its settings, and logs that."""
    write(clouds_yaml, {})
    clouds = Clouds()
    before = load(section(cloud="one"), clouds)[0]
    clouds_yaml.write_text(LONG.get(content or "", content or ""), "utf-8")
    if content is None:
        clouds_yaml.unlink()
    clouds.forget()
    with pytest.raises(CloudProblem, match=wanted) as caught:
        Clouds().region("one", None)
    problem = Clouds().settings("one", None).problem
    assert problem == str(caught.value)
    assert SECRET not in problem
    assert "\n" not in problem
    again, config = load(section(cloud="one"), clouds)
    assert again == before
    assert str(clouds_yaml) in config.watched_files
    assert clouds.region("one", None).config["auth"]["password"] == SECRET
    assert caplog.text.count("Provider cloud-a keeps its earlier settings: ") == 1
    assert SECRET not in caplog.text


@pytest.mark.parametrize("change", driver_table("openstack", "reloads"))
def test_reload(clouds_yaml: Path, change: Settings) -> None:
    """reference/driver 1, 6: after `reset` a change makes another provider; what makes no difference does not."""
    write(clouds_yaml, {})
    driver = OpenStackDriver()
    clouds = driver.getProviderConfig(section(cloud="one")).clouds
    before, region = clouds.settings("one", None), clouds.region("one", None)
    write(clouds_yaml, change)
    assert clouds.settings("one", None) == before
    driver.reset()
    changed = "cache" not in str(change)
    assert (clouds.settings("one", None) != before) is (clouds.renewed("one", None, region) is not None) is changed
    assert clouds.settings("one", None).image_format == change.get("image_format", "qcow2")


def test_no_key_is_forgotten() -> None:
    root = Path(openstack.__file__).parent
    files = [*root.glob("config/*.py"), *root.glob("cloud/*.py"), root / "connection.py", root / "proxy.py"]
    read = re.compile(
        r"(?:_get_config|_get_service_config|config(?:_dict|_settings)?\.(?:get|pop))\(\s*'(\w+)'|config\['(\w+)'\]"
    )
    found = {name for file in files for names in read.findall(file.read_text("utf-8")) for name in names}
    known = {name for names in driver_table("openstack", "keys").values() for name in names}
    assert found - {""} - known == set()


@pytest.mark.parametrize(("change", "text"), driver_table("openstack", "bad_sections"))
def test_schema_refuses(change: dict[str, Any], text: str) -> None:
    """reference/configuration 7: what cannot work is refused when the file is read."""
    more = {"pools": [{"name": "p", "labels": [change]}]} if change.get("name") == "small" else change
    with pytest.raises(v.Invalid, match=text):
        load(section())[0].getSchema()({key: one for key, one in {**section(), **more}.items() if one is not None})


def test_sdk_is_not_imported() -> None:
    """Only a configured cloud costs the 40 MiB and the time that openstacksdk takes."""
    code = "import sys, nodepool.driver.openstack; print([m for m in sys.modules if m.startswith(('openst', 'keyst'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
