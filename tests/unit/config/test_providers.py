# SPDX-License-Identifier: Apache-2.0
"""Provider sections: which driver gets them, what one that fails takes away, and schemas of other drivers."""

from __future__ import annotations

import logging
import sys
from typing import Any, Final

import pytest
import voluptuous as v

from nodepool.config.problems import Problems, Severity, SourceText, parse
from nodepool.config.schema import Checker
from nodepool.driver.config import integer, nonempty, number, port
from nodepool.driver.framework.sections import UnavailableProviderConfig
from nodepool.driver.registry import KNOWN, Drivers
from nodepool.driver.static.config import StaticProviderConfig
from nodepool.version import how_to_install
from tests.support.tables import rows
from tests.unit.config.conftest import Files, OddDriver

LABELS: Final = "labels: [{name: small}, {name: big}]\n"
GOOD: Final = "- {name: good, driver: static, pools: [{name: p, nodes: [{name: h, labels: [small]}]}]}\n"


@pytest.mark.parametrize("driver", sorted(KNOWN))
def test_driver_that_is_not_installed(
    files: Files, caplog: pytest.LogCaptureFixture, monkeypatch: Any, driver: str
) -> None:
    """The file stays valid: a warning; what is common to all drivers is checked."""
    # The private table, because all of them are part of this installation.
    Drivers.names()
    monkeypatch.setattr(Drivers, "_found", dict(Drivers._found))  # noqa: SLF001
    monkeypatch.delitem(Drivers._found, driver)  # noqa: SLF001
    pools = "pools: [{name: p, labels: [{name: small}]}]"
    text = f"{LABELS}providers:\n- name: cloud\n  driver: {driver}\n  cloud: c\n  {pools}\n"
    config = files.load(text)
    provider = config.providers["cloud"]
    assert isinstance(provider, UnavailableProviderConfig)
    assert provider.reason == f"the driver {driver!r} is not part of this installation"
    assert (provider.pools, provider.getSupportedLabels(), provider.manage_images) == ({}, set(), False)
    assert config.labels["small"].pools == []
    assert f"f.yaml:6: providers[0].driver: {provider.reason}; details of the section are not checked" in caplog.text
    assert [problem.severity for problem in files.problems(text)] == [Severity.WARNING]
    bad = (
        f"{LABELS}providers:\n- name: a\n  driver: {driver}\n  max-concurrency: x\n  priority: low\n"
        "  diskimages: [{name: i}]\n  pools:\n"
        "  - {name: p, max-servers: x, node-attributes: 3, priority: y, labels: [{name: tiny, diskimage: j}]}\n"
        "  - {max-servers: 1}\n  - 7\n"
    )
    assert {line.split(": ")[1].removeprefix("providers[0].") for line in files.refused(bad)} == {
        *("max-concurrency", "priority", "diskimages[0].name", "pools[0].max-servers", "pools[0].node-attributes"),
        *("pools[0].priority", "pools[0].labels[0].name", "pools[0].labels[0].diskimage", "pools[1].name", "pools[2]"),
    }


def test_library_missing(files: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """config-validate and the daemon say which extra a provider needs; the file is as good as before."""
    monkeypatch.setitem(sys.modules, "openstack", None)
    # The private table of drivers that were imported before.
    monkeypatch.setattr(Drivers, "_drivers", {})
    text = "providers: [{name: a, cloud: b}, {name: lab, driver: static}]"
    config = files.load(text)
    assert isinstance(config.providers["a"], UnavailableProviderConfig)
    assert how_to_install("openstack") in config.providers["a"].reason
    assert isinstance(config.providers["lab"], StaticProviderConfig)
    assert "f.yaml:3: providers[0]: driver 'openstack' needs what is not installed" in caplog.text
    (problem,) = files.problems(text)
    assert problem.severity is Severity.WARNING
    assert how_to_install("openstack") in problem.message


@rows(__file__, "test_only_that_provider")
@pytest.mark.parametrize("first", [True, False])
def test_only_that_provider(
    files: Files, caplog: pytest.LogCaptureFixture, section: str, reason: str | None, first: bool
) -> None:
    """An error takes away the provider of its section; it is logged, and is the reason why that is not served."""
    config = files.load(f"{LABELS}providers:\n" + (f"- {section}\n{GOOD}" if first else f"{GOOD}- {section}\n"))
    assert isinstance(config.providers["good"], StaticProviderConfig)
    assert [pool.provider.name for pool in config.labels["small"].pools] == ["good"]
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors
    if reason is None:
        assert list(config.providers) == ["good"]
        return
    bad = config.providers["bad"]
    assert isinstance(bad, UnavailableProviderConfig)
    line, index = ("5", "0") if first else ("6", "1")
    assert reason.replace("LINE", line).replace("INDEX", index) in bad.reason
    assert bad.reason.startswith(errors[0])


SECTION: Final = "providers:\n- name: fine\n  driver: static\n- name: a\n  driver: odd\n"


@rows(__file__, "test_driver_that_fails")
def test_driver_that_fails(files: Files, odd_driver: OddDriver, methods: dict[str, str], expected: str) -> None:
    """File, line, driver and reason; never a traceback."""
    odd_driver(**methods)
    (line,) = files.refused(SECTION)
    assert line.startswith(("f.yaml:6: providers[1]: ", "f.yaml:7: providers[1].driver: "))
    assert expected in line


def test_schema_of_another_driver(files: Files, odd_driver: OddDriver) -> None:
    """What it says is for the validator: daemons of Nodepool 11 never ask it, and load() decides. Keys of all drivers
    count for every one. Others that have the section by an alias keep it as it is.
    """
    odd_driver(schema="return v.Schema({**self.getCommonSchemaDict(), 'pools': list, v.Required('region'): str})")
    assert files.refused(SECTION) == ["f.yaml:6: providers[1].region: required, but missing"]
    assert files.load(SECTION.replace("odd", "odd\n  region: x")).providers["a"].name == "a"
    text = (
        "providers:\n- {name: a, driver: odd, region: 7, max-concurrency: '3', pools: &p [{name: q, max-servers: }]}\n"
        "- {name: b, driver: odd, region: x, priority: low, pools: *p}\n"
    )
    assert {(problem.severity, problem.key) for problem in files.problems(text)} == {
        (Severity.TOLERATED, "providers[0].region"),
        (Severity.TOLERATED, "providers[0].max-concurrency"),
        (Severity.TOLERATED, "providers[0].pools[0].max-servers"),
        (Severity.TOLERATED, "providers[1].pools[0].max-servers"),
        (Severity.PROVIDER_ERROR, "providers[1].priority"),
        (Severity.TOLERATED, "providers[1].priority"),
    }
    found = files.load(text).providers["a"]
    assert found.provider["pools"] == [{"name": "q"}]
    assert found.provider["max-concurrency"] == 3


LABEL: Final = {v.Required("name"): str, "cores": int, "tags": {str: str}, "zones": [str]}
POOLS: Final = v.Schema(
    {v.Required("name"): nonempty(), "port": port(), "pools": [{"labels": [LABEL]}], "mode": v.In(["a"])}
)
TIMES: Final = {"boot-timeout": number(0), "size": integer(0)}


def _no_twins(value: dict[str, Any]) -> dict[str, Any]:
    if value["a"] == value["b"]:
        raise v.Invalid("a and b must differ", path=["b"])
    return value


TWINS: Final = v.Schema(v.All({"a": v.Any(str, [str]), "b": v.Any(str, [str])}, _no_twins))
OPTIONS: Final = v.Schema({"a": [{"b": int}]}, required=True, extra=v.ALLOW_EXTRA)
EXTRA: Final = {v.Required("name"): str, v.Extra: integer()}
SECRET: Final = {"env-vars": {str: str}, "password": str}


#: Of the rows. That with NUMBER has no words of its own: voluptuous speaks.
SCHEMAS: Final = {
    "POOLS": POOLS,
    "TIMES": TIMES,
    "TWINS": TWINS,
    "OPTIONS": OPTIONS,
    "EXTRA": EXTRA,
    "SECRET": SECRET,
    "NUMBER": {"a": v.Coerce(int)},
}


@rows(__file__, "test_words")
def test_words(schema: str, text: str, told: list[str]) -> None:
    """An unknown key alone is no error."""
    problems = Problems()
    document = parse(SourceText("f", text), problems)
    fine = Checker(SCHEMAS[schema]).check(document.data, document, [])
    assert [str(problem) for problem in problems.all()] == told
    assert fine == (not problems.errors())


@pytest.mark.parametrize("pool", ["p = Pool(); p.provider = self", "p = Pool()", "p = object()"])
def test_load_fails_on_the_way(files: Files, odd_driver: OddDriver, pool: str) -> None:
    """Labels have no pool of a provider that is left out, also none that does not know its provider."""
    odd_driver(load=f"{pool}; newconfig.labels['small'].pools.append(p); newconfig.labels['zzz']")
    config = files.load(f"{LABELS}providers:\n- {{name: bad, driver: odd}}\n{GOOD}")
    assert isinstance(config.providers["bad"], UnavailableProviderConfig)
    assert [pool.provider.name for pool in config.labels["small"].pools] == ["good"]


def test_localProblems_may_fail(files: Files, odd_driver: OddDriver) -> None:
    odd_driver(schema="return {str: object}\n    def localProblems(self): raise OSError('broken')")
    assert [one for one in files.here(SECTION) if "localProblems" in one] == [
        "warning: f.yaml:7:3: providers[1].driver: localProblems(): OSError: broken"
    ]
