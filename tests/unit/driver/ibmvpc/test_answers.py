# SPDX-License-Identifier: Apache-2.0
"""What IBM answers, and what the driver makes of it. Each row names where it is from.

``ibm-vpc`` 0.36, ``ibm-platform-services`` 0.77 and ``ibm-cloud-sdk-core`` 3.28 are the SDKs of IBM.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CodedError
from nodepool.driver.framework.http.rest_calls import RestCalls
from nodepool.driver.ibmvpc.client import BURST, CREATE, DELETE, READ, VERSION, IbmVpc, class_sizes
from nodepool.driver.ibmvpc.login import IbmLogin
from nodepool.driver.ibmvpc.machines import IbmMachines
from nodepool.driver.ibmvpc.types import PREEMPTED, IbmProfile, IbmRecord, busy, errors_in, exists, meaning
from nodepool.plan.retries import Backoff
from tests.support.provider_sections import has
from tests.support.tables import driver_table
from tests.unit.driver.ibmvpc.support import GROUP, METADATA, PROVIDER, load, section
from tests.unit.driver.recorded_http import RecordedHttp
from tests.unit.driver.simulated_adapter import HOST

BASE = "https://us-south.iaas.cloud.ibm.com/v1"
COMMON = {"version": VERSION, "generation": 2}
INSTANCE: dict[str, Any] = driver_table("ibmvpc", "instance")


@pytest.fixture
def http() -> RecordedHttp:
    return RecordedHttp()


@pytest.fixture
def client(tmp_path: Path, http: RecordedHttp, monkeypatch: pytest.MonkeyPatch) -> IbmVpc:
    # Constants of the modules: calls that only read are made again at once, and so are lists that lack a name.
    monkeypatch.setitem(RestCalls.call.__globals__, "READ_AGAIN", Backoff(0.0, 0.0))
    monkeypatch.setitem(IbmVpc.groups.__globals__, "MISSING_SECONDS", 0.0)
    file = tmp_path / "ibm.env"
    file.write_text("VPC_AUTH_TYPE=noAuth\nRESOURCE_MANAGER_URL=http://groups\n", encoding="utf-8")
    return IbmVpc(load(section()), http, IbmLogin(PROVIDER, str(file), http))


# -- calls --


def test_pages(client: IbmVpc, http: RecordedHttp) -> None:
    """CM-4, CM-8: pages of 100; the next one is asked for at the same place, wherever the answer leads. Names are
    unique in the region.
    """
    http.answer({"keys": [{"name": "a", "id": "1"}], "next": {"href": "https://evil.example.org/v1/keys?start=two"}})
    http.answer({"keys": [{"name": "b", "id": "2"}], "limit": 100})
    http.answer({"instances": []})
    assert client.ids("keys") == {"a": "1", "b": "2"}
    assert client.instance_named(HOST) is None
    limit = {**COMMON, "limit": 100}
    assert [(method, url, query) for method, url, _, _, query in http.sent] == [
        ("GET", f"{BASE}/keys", limit),
        ("GET", f"{BASE}/keys", {**limit, "start": "two"}),
        ("GET", f"{BASE}/instances", {**limit, "name": HOST}),
    ]


def test_groups(client: IbmVpc, http: RecordedHttp) -> None:
    """IV-2: those of the account; deleted ones do not count."""
    http.answer(
        {"resources": [{"name": name, "id": name, "state": state} for name, state in (("a", "ACTIVE"), ("b", "X"))]}
    )
    http.answer({"id": "3", "crn": "crn:3"}, 201)
    assert (client.groups(), client.create_group("np_south_main")) == ({"a": "a"}, "3")
    assert [url for _, url, *_ in http.sent] == ["http://groups/v2/resource_groups"] * 2
    assert json.loads(http.sent[1][3])["name"] == "np_south_main"


def test_group_without_a_name(client: IbmVpc, http: RecordedHttp) -> None:
    """IV-3: lists of images leave the name out (found with Nodepool 11.0.0 at IBM, against IBM's documentation).

    The id says which group it is, whatever was listed or answered. A name that is there costs no call.
    """

    def groups(kind: str, group: dict[str, str], *more: Any) -> list[str]:
        for answer in ({kind: [{"id": "1", "name": HOST, "resource_group": group}]}, *more):
            http.answer(answer)
        found = [one.group for one in getattr(client, kind)()]
        assert not http.answers
        return found

    listed = {"resources": [{"id": "g1", "name": GROUP, "state": "ACTIVE"}]}
    assert groups("volumes", {"id": "g1", "name": GROUP}) == [GROUP]
    assert groups("images", {"id": "g1"}, listed) == [GROUP]
    assert groups("volumes", {"id": "g1"}) == [GROUP]
    # The account does not list it: it is not ours.
    assert groups("volumes", {"id": "g2"}, listed) == [""]
    # Made here a moment ago.
    http.answer({"id": "g2", "name": "np_south_new"})
    client.create_group("np_south_new")
    assert groups("volumes", {"id": "g2"}) == ["np_south_new"]


def test_rates() -> None:
    """IV-12 (today): each class has its own; ``rate`` is that of creations."""
    found = class_sizes(2.0)
    assert (found[CREATE].rate, found[DELETE].rate, found[READ].rate, found[CREATE].burst) == (2.0, 2.0, 10.0, BURST)


# -- answers --


@pytest.mark.parametrize(("method", "given", "what", "answers", "expected"), driver_table("ibmvpc", "answers"))
def test_answers(
    client: IbmVpc,
    http: RecordedHttp,
    method: str,
    given: list[Any],
    what: str | None,
    answers: list[Any],
    expected: Any,
) -> None:
    """CM-4: each is understood, or an error of the cloud."""

    def ask() -> Any:
        found = getattr(client, method)(*given)
        if what is None:
            return found
        return [getattr(one, what) for one in found] if isinstance(found, list) else getattr(found, what)

    for answer in answers:
        http.answer(answer)
    if expected is CloudAway:
        # What only reads is asked again.
        http.answers *= 3
        with pytest.raises(CloudAway):
            ask()
    else:
        assert ask() == expected
        assert not http.answers


@pytest.mark.parametrize(("status", "body", "kind", "words"), driver_table("ibmvpc", "errors"))
def test_errors(client: IbmVpc, http: RecordedHttp, status: int, body: Any, kind: type[Exception], words: str) -> None:
    """CM-7: a page is no proof that something is absent, and no reason to correct anything."""
    for _ in range(2):
        http.answer(body, status)
    with pytest.raises(kind) as caught:
        client.delete("instance", "0717_1")
    assert (type(caught.value), words in str(caught.value)) == (kind, True)


@pytest.mark.parametrize(("code", "status", "kind", "passes", "words"), driver_table("ibmvpc", "kinds"))
def test_kinds(code: str, status: int, kind: type[Exception], passes: bool, words: str) -> None:
    """CM-5, CM-6, IV-3: what the launcher does next, in the words of IBM. 409 is not always for now only."""
    error: Any = meaning("here", [CodedError(code, "it says so")], status)
    assert f"{code}: it says so" in str(error)
    assert words in str(error)
    assert (type(error), busy(error), exists(error)) == (kind, passes, code == "validation_unique_failed")
    assert error.maybe_done is (status != 429) if kind is CloudAway else error.code == code


@pytest.mark.parametrize(("data", "found"), driver_table("ibmvpc", "errors_in"))
def test_errors_in(data: Any, found: list[tuple[str, str]]) -> None:
    """CM-6: of any shape."""
    assert errors_in(data) == [CodedError(*one) for one in found]


# -- records --


def record(**changes: Any) -> IbmRecord:
    return IbmRecord({**INSTANCE, "status": "running", **changes}, PROVIDER)


def test_records() -> None:
    """IV-3, IV-6, IV-7: an instance of ours is known by its name, which is stored before it is made (CM-8). One of
    others with a name like ours is never taken for ours. Memory counts in GiB.
    """
    found = record(primary_network_interface={"id": "nic-1", "primary_ip": {"address": "10.0.0.5"}})
    has(found, id=HOST, instance_id=INSTANCE["id"], metadata=METADATA, cores=2, ram_gib=8, zone="us-south-1")
    has(found, interface_id="nic-1", private_ipv4="10.0.0.5", spot=False, gone=False)
    for group in ("Default", "np_north_main", ""):
        assert record(resource_group={"id": "g", "name": group}).id == "0717_1"
    assert record(resource_group=None).metadata == {}
    older = {"id": "n", "primary_ipv4_address": "10.0.0.6"}
    assert record(primary_network_interface=older).private_ipv4 == "10.0.0.6"
    assert record(primary_network_interface=None).interface_id == ""
    assert record().private_ipv4 is None
    cloud: Any = SimpleNamespace(config=SimpleNamespace(region="us-south"))
    instance = IbmMachines.instance(cloud, found, "192.0.2.1")
    has(instance, cloud="IBM", region="us-south", az="us-south-1", external_id=HOST, metadata=METADATA, ready=True)
    has(instance, public_ipv4="192.0.2.1", private_ipv4="10.0.0.5", interface_ip="192.0.2.1")
    assert IbmMachines.instance(cloud, found).interface_ip == "10.0.0.5"


@pytest.mark.parametrize(("form", "number"), driver_table("ibmvpc", "numbers_of_profiles"))
def test_numbers_of_profiles(form: dict[str, Any], number: int) -> None:
    """IV-7: cores and memory."""
    has(IbmProfile({"name": "p", "vcpu_count": form, "memory": form}), name="p", cores=number, ram_gib=number)


def test_preempted(caplog: pytest.LogCaptureFixture) -> None:
    """An instance of ours that IBM took away is named, with the reason, once; what stopped before the start is not."""
    reasons = [{"code": PREEMPTED, "message": "IBM needs the capacity"}]
    stopping, stopped = (
        record(status=status, status_reasons=reasons, availability={"class": "spot"})
        for status in ("stopping", "stopped")
    )
    lists = iter([[record()], [stopping], [stopped, stopped._replace(id="2", instance_id="2", metadata={})]])
    client: Any = SimpleNamespace(instances=lambda: next(lists))
    others: Any = None
    machines = IbmMachines(load(section()), client, others, others)
    for _ in range(3):
        machines.list_instances(None)
    (line,) = caplog.messages
    assert f"{HOST} (spot) of node 0000000042 stopped: stopped_by_preemption: IBM needs the capacity" in line
