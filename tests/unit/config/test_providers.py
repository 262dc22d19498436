# SPDX-License-Identifier: Apache-2.0
"""Provider sections: common checks, names, drivers (reference/configuration 5)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.config.loader import load_config
from nodepool.config.objects import Config
from nodepool.config.problems import Severity
from nodepool.config.validator import validate
from nodepool.driver.fake.config import FakeProviderConfig
from nodepool.driver.framework.sections import UnavailableProviderConfig
from nodepool.driver.registry import KNOWN, Drivers
from nodepool.driver.static.config import StaticProviderConfig
from nodepool.exceptions import ConfigError
from nodepool.version import how_to_install
from tests.support.odd_driver import write_odd_driver

HEAD = (
    "zookeeper-servers: [{host: zk}]\nzookeeper-tls: {cert: c, key: k, ca: a}\nlabels: [{name: small}, {name: big}]\n"
)
FIRST = len(HEAD.splitlines()) + 1


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "f.yaml"


@pytest.fixture
def load(file: Path) -> Any:
    def function(text: str) -> Config:
        file.write_text(HEAD + text, encoding="utf-8")
        return load_config(str(file))

    return function


@pytest.fixture
def refused(load: Any, file: Path) -> Any:
    def function(text: str) -> list[str]:
        file.write_text(HEAD + text, encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            load_config(str(file), strict=True)
        return str(caught.value).replace(f"{file.parent}/", "").splitlines()

    return function


@pytest.fixture
def odd_driver(tmp_path: Path) -> Iterator[Any]:
    """Makes a driver ``odd`` whose methods do what the test says."""

    def make(
        load: str = "pass", schema: str = "return {str: object}", config: str = "return Config_(provider)"
    ) -> None:
        write_odd_driver(tmp_path / "drivers", load, schema, config)

    yield make
    Drivers.load([])
    sys.modules.pop("nodepool.driver.odd", None)


class TestGood:
    def test_each_goes_to_its_driver(self, load: Any) -> None:
        config = load(
            "providers:\n"
            "- {name: lab, driver: static, pools: [{name: a, nodes: [{name: h, labels: [small, big]}]}]}\n"
            "- {name: mem, driver: fake, max-concurrency: 3, priority: 7,"
            " pools: [{name: b, labels: [{name: small}]}]}\n"
        )
        assert isinstance(config.providers["lab"], StaticProviderConfig)
        assert isinstance(config.providers["mem"], FakeProviderConfig)
        assert (config.providers["mem"].max_concurrency, config.providers["mem"].priority) == (3, 7)
        assert [pool.name for pool in config.labels["small"].pools] == ["a", "b"]
        assert [pool.name for pool in config.labels["big"].pools] == ["a"]

    def test_two_loads_are_equal(self, load: Any) -> None:
        """G-4: a provider that did not change keeps its object."""
        text = (
            "diskimages: [{name: i}]\nproviders:\n"
            "- {name: lab, driver: static, pools: [{name: a, nodes: [{name: h, labels: small}]}]}\n"
            "- {name: mem, driver: fake, pools: [{name: b, labels: [{name: small}]}]}\n"
            "- {name: cloud, driver: openstack, cloud: c, diskimages: [{name: i}],"
            " pools: [{name: b, labels: [{name: small, diskimage: i, min-ram: 1}]}]}\n"
        )
        first, second = load(text), load(text)
        assert first == second
        assert first.providers == second.providers
        third = load(text.replace("{name: h", "{name: h2"))
        assert third.providers["lab"] != first.providers["lab"]
        assert third.providers["mem"] == first.providers["mem"]
        assert third.providers["cloud"] == first.providers["cloud"]

    @pytest.mark.parametrize("name", ["fake", "fake-cloud", "fakes"])
    def test_name_does_not_choose_the_driver(self, load: Any, name: str) -> None:
        """Section 1: the trap of the released Nodepool is gone."""
        assert isinstance(load(f"providers: [{{name: {name}, driver: static}}]").providers[name], StaticProviderConfig)

    @pytest.mark.parametrize("text", ["", "providers: []"])
    def test_none(self, load: Any, text: str) -> None:
        assert load(text).providers == {}

    def test_other_drivers_are_not_imported(self, load: Any, odd_driver: Any) -> None:
        odd_driver(load="raise AssertionError")
        load("providers: [{name: a, driver: static}]")
        assert "nodepool.driver.odd" not in sys.modules


class TestUnavailable:
    """Sections of drivers that are not part of this release keep the file valid."""

    SECTION = (
        "providers:\n- name: cloud\n  driver: NAME\n  cloud: c\n  rate: 1\n"
        "  pools:\n  - name: p\n    labels: [{name: small}]\n"
    )

    @pytest.fixture(params=sorted(KNOWN), autouse=True)
    def _not_installed(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver = request.param
        found = {name: path for name, path in Drivers._found.items() if name != self.driver}
        Drivers.names()
        monkeypatch.setattr(Drivers, "_found", found)

    def test_kept(self, load: Any, caplog: pytest.LogCaptureFixture) -> None:
        config = load(self.SECTION.replace("NAME", self.driver))
        provider = config.providers["cloud"]
        assert isinstance(provider, UnavailableProviderConfig)
        assert provider.reason == f"the driver {self.driver!r} is not part of this installation"
        assert (provider.pools, provider.getSupportedLabels(), provider.manage_images) == ({}, set(), False)
        assert config.labels["small"].pools == []
        assert f"f.yaml:{FIRST + 2}: providers[0].driver: {provider.reason}; details of the section" in caplog.text

    def test_validator_says_so(self, file: Path) -> None:
        file.write_text(HEAD + self.SECTION.replace("NAME", self.driver), encoding="utf-8")
        (problem,) = validate(str(file))
        assert problem.severity is Severity.WARNING
        assert "details of the section are not checked" in problem.message

    def test_common_keys_are_checked(self, refused: Any) -> None:
        text = (
            f"providers:\n- name: a\n  driver: {self.driver}\n  max-concurrency: x\n  priority: low\n"
            "  diskimages: [{name: i}]\n  pools:\n"
            "  - {name: p, max-servers: x, node-attributes: 3, priority: y, labels: [{name: tiny, diskimage: j}]}\n"
            "  - {max-servers: 1}\n  - 7\n"
        )
        assert {line.split(": ")[1] for line in refused(text)} == {
            "providers[0].max-concurrency",
            "providers[0].priority",
            "providers[0].diskimages[0].name",
            "providers[0].pools[0].max-servers",
            "providers[0].pools[0].node-attributes",
            "providers[0].pools[0].priority",
            "providers[0].pools[0].labels[0].name",
            "providers[0].pools[0].labels[0].diskimage",
            "providers[0].pools[1].name",
            "providers[0].pools[2]",
        }


def test_library_missing(
    load: Any, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """config-validate and the daemon say which extra a provider needs; the file is as good as before."""
    monkeypatch.setitem(sys.modules, "openstack", None)
    monkeypatch.setattr(Drivers, "_drivers", {})
    text = "providers: [{name: a, cloud: b}, {name: lab, driver: static}]"
    config = load(text)
    assert isinstance(config.providers["a"], UnavailableProviderConfig)
    assert how_to_install("openstack") in config.providers["a"].reason
    assert isinstance(config.providers["lab"], StaticProviderConfig)
    assert f"f.yaml:{FIRST}: providers[0]: driver 'openstack' needs what is not installed" in caplog.text
    file.write_text(HEAD + text, encoding="utf-8")
    (problem,) = validate(str(file))
    assert problem.severity is Severity.WARNING
    assert how_to_install("openstack") in problem.message


def test_default_driver(load: Any) -> None:
    """No ``driver`` means openstack."""
    assert load("providers: [{name: a, cloud: b}]").providers["a"].driver.name == "openstack"


class TestBad:
    @pytest.mark.parametrize(
        ("section", "expected"),
        [
            ("{name: a, driver: statc}", "there is no driver 'statc', did you mean 'static'? (known: aws, azure,"),
            ("{name: a, driver: zzzz}", "there is no driver 'zzzz' (known: aws, azure,"),
            ("{name: a, driver: 7}", "providers[0].driver: expected a text, got 7; put it in quotes"),
            ("{driver: static}", "providers[0].name: required, but missing"),
            ("{name: 7, driver: static}", "providers[0].name: expected a text, not empty, got 7; put it in quotes"),
            ("7", "providers[0]: expected a mapping, got 7"),
            ("{name: a, driver: static, pools: {}}", "providers[0].pools: expected a list of mappings, got a mapping"),
            (
                "{name: a, driver: static, pools: [{name: p, nodes: [{name: h, labels: [smal]}]}]}",
                "pools[0].nodes[0].labels[0]: the label 'smal' is not defined, did you mean 'small'?",
            ),
            (
                "{name: a, driver: static, pools: [{name: p, nodes: [{name: h, labels: xyz}]}]}",
                "pools[0].nodes[0].labels: the label 'xyz' is not defined; add it to the top-level labels",
            ),
            (
                "{name: a, driver: static, pools: [{name: p, nodes: [{name: h, labels: small big}]}]}",
                "the label 'small big' is not defined; several labels must be written as a list",
            ),
            (
                "{name: a, driver: fake, pools: [{name: p, labels: [{name: tiny}]}]}",
                "pools[0].labels[0].name: the label 'tiny' is not defined; add it to the top-level labels",
            ),
            (
                "{name: a, driver: fake, pools: [{name: p, labels: [tiny]}]}",
                "pools[0].labels[0]: the label 'tiny' is not defined; add it to the top-level labels",
            ),
        ],
    )
    def test_line(self, refused: Any, section: str, expected: str) -> None:
        lines = refused(f"providers:\n- {section}\n")
        (line,) = [line for line in lines if expected in line]
        assert line.startswith(f"f.yaml:{FIRST + 1}: providers[0]")

    def test_provider_twice(self, load: Any, caplog: pytest.LogCaptureFixture) -> None:
        """The last one counts, whatever its driver is, and whether or not the first has errors of its own."""
        config = load(
            "providers:\n- {name: a, cloud: c}\n- {name: a, driver: static}\n"
            "- {name: b, driver: static, priority: x}\n- {name: b, driver: fake}\n"
        )
        assert [(name, provider.driver.name) for name, provider in config.providers.items()] == [
            ("a", "static"),
            ("b", "fake"),
        ]
        assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
        expected = (
            f"f.yaml:{FIRST + 1}: providers[0].name: there is another provider named 'a' in line {FIRST + 2}, which"
        )
        assert expected in caplog.text

    def test_every_section(self, refused: Any) -> None:
        """One broken section does not hide the next."""
        text = "providers:\n- {name: a, driver: x}\n- {name: b, driver: static, priority: x}\n- {name: c, driver: y}\n"
        assert [line.split(": ")[1] for line in refused(text)] == [
            "providers[0].driver",
            "providers[1].priority",
            "providers[2].driver",
        ]

    def test_broken_lists_at_the_top_do_not_multiply(self, tmp_path: Path) -> None:
        """When ``labels`` is no list, not every label of every pool is one more problem."""
        file = tmp_path / "f.yaml"
        section = {"name": "a", "driver": "fake", "diskimages": [{"name": "i"}]}
        pools = [{"name": "p", "labels": [{"name": "x", "diskimage": "i"}]}]
        data = {"labels": 3, "diskimages": 3, "providers": [{**section, "pools": pools}]}
        file.write_text(yaml.safe_dump(data), encoding="utf-8")
        keys = [problem.key for problem in validate(str(file)) if problem.severity is Severity.ERROR]
        assert keys == ["diskimages", "labels"]


class TestOnlyThatProvider:
    """An error inside the section of a provider takes away that provider only."""

    GOOD = "- {name: good, driver: static, pools: [{name: p, nodes: [{name: h, labels: [small]}]}]}\n"

    @pytest.mark.parametrize(
        "section",
        [
            "{name: bad, driver: fake, priority: low}",
            "{name: bad, driver: fake, pools: [{name: p, labels: [{name: nope}]}]}",
            "{name: bad, cloud: c, diskimages: [{name: nope}]}",
            "{name: bad, driver: statc}",
            "{name: bad, driver: static, pools: [{name: p, nodes: [{labels: [small]}]}]}",
        ],
    )
    @pytest.mark.parametrize("first", [True, False])
    def test_others_are_loaded(self, load: Any, caplog: pytest.LogCaptureFixture, section: str, first: bool) -> None:
        """The error is logged with file and line, and is the reason why the provider is not served."""
        config = load("providers:\n" + (f"- {section}\n{self.GOOD}" if first else f"{self.GOOD}- {section}\n"))
        assert isinstance(config.providers["good"], StaticProviderConfig)
        bad = config.providers["bad"]
        assert isinstance(bad, UnavailableProviderConfig)
        line = FIRST + 1 if first else FIRST + 2
        assert f"f.yaml:{line}: providers[{0 if first else 1}]" in bad.reason
        assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [bad.reason]
        assert [pool.provider.name for pool in config.labels["small"].pools] == ["good"]

    @pytest.mark.parametrize("section", ["7", "{driver: static}", "{name: [7], driver: static}", "null"])
    def test_without_a_name(self, load: Any, caplog: pytest.LogCaptureFixture, section: str) -> None:
        assert list(load(f"providers:\n- {section}\n{self.GOOD}").providers) == ["good"]
        assert [record.levelname for record in caplog.records] == ["ERROR"]

    @pytest.mark.parametrize("pools", ["7", "[7]", "[{name: p, nodes: 7}]", "[{name: p, nodes: [7]}]", "{a: b}"])
    @pytest.mark.parametrize("rest", ["driver: static", "cloud: c, diskimages: 7", "cloud: c, cloud-images: [7]"])
    def test_no_lists(self, load: Any, pools: str, rest: str) -> None:
        """What is wrong is said of its place, whatever stands there."""
        config = load(f"providers:\n- {{name: bad, {rest}, pools: {pools}}}\n{self.GOOD}")
        bad = config.providers["bad"]
        assert isinstance(bad, UnavailableProviderConfig)
        assert ": expected a" in bad.reason
        assert isinstance(config.providers["good"], StaticProviderConfig)

    def test_value_without_a_meaning(self, refused: Any) -> None:
        """It does not hide what else is wrong."""
        nodes = "[{name: h, labels: [small], timeout: x, connection-port: y}]"
        lines = refused(
            f"providers: [{{name: bad, driver: static, pools: [{{name: p, max-servers: z, nodes: {nodes}}}]}}]"
        )
        assert [line.rpartition("got ")[2] for line in lines] == ["'z'", "'x'", "'y'"]

    def test_several_errors(self, load: Any) -> None:
        config = load("providers: [{name: bad, driver: fake, priority: low, max-concurrency: x}]")
        assert "(and 1 more errors)" in config.providers["bad"].reason

    @pytest.mark.parametrize("pool", ["p = Pool(); p.provider = self", "p = Pool()", "p = object()"])
    def test_load_fails_on_the_way(self, load: Any, odd_driver: Any, pool: str) -> None:
        """Labels have no pool of a provider that is left out, also none that does not know its provider."""
        odd_driver(load=f"{pool}; newconfig.labels['small'].pools.append(p); newconfig.labels['zzz']")
        config = load(f"providers:\n- {{name: bad, driver: odd}}\n{self.GOOD}")
        assert isinstance(config.providers["bad"], UnavailableProviderConfig)
        assert [pool.provider.name for pool in config.labels["small"].pools] == ["good"]

    def test_validator_refuses(self, file: Path) -> None:
        file.write_text(HEAD + "providers: [{name: bad, driver: fake, priority: low}]", encoding="utf-8")
        assert [problem.severity for problem in validate(str(file))] == [Severity.PROVIDER_ERROR]

    @pytest.mark.parametrize("text", ["providers: 3", "labels: 3"])
    def test_the_file_as_a_whole(self, load: Any, text: str) -> None:
        with pytest.raises(ConfigError):
            load(f"{text}\n")


class TestBrokenDriver:
    SECTION = "providers:\n- name: fine\n  driver: static\n- name: a\n  driver: odd\n"

    def test_good_one(self, load: Any, odd_driver: Any) -> None:
        odd_driver()
        assert load(self.SECTION).providers["a"].name == "a"

    @pytest.mark.parametrize(
        ("methods", "expected"),
        [
            (
                {"load": "raise ValueError('no such\\nregion')"},
                "cannot use this section: load(): ValueError: no such region",
            ),
            ({"load": "newconfig.labels['x']"}, "cannot use this section: load(): 'x' is not defined"),
            ({"load": "return newconfig.load()"}, "cannot use this section: load(): AttributeError"),
            ({"load": "self.load(newconfig)"}, "cannot use this section: load(): RecursionError"),
            ({"schema": "raise OSError('disk')"}, "driver 'odd': getSchema(): OSError: disk"),
            ({"schema": "import decimal; return {'a': decimal.Decimal(1)}"}, "driver 'odd': getSchema(): SchemaError"),
            ({"schema": "return {str: lambda value: 1 // 0}"}, "driver 'odd': getSchema(): ZeroDivisionError"),
            ({"schema": "import sys; sys.exit(3)"}, "driver 'odd': getSchema(): SystemExit: 3"),
            ({"load": "import sys; sys.exit(3)"}, "driver 'odd' cannot use this section: load(): SystemExit: 3"),
            ({"config": "return None"}, "getProviderConfig() must return a ProviderConfig, not NoneType"),
            ({"config": "return ProviderConfig(provider)"}, "abstract"),
            ({"config": "import no_such_module"}, "driver 'odd': getProviderConfig(): ModuleNotFoundError"),
            ({"config": "x = "}, "driver 'odd' in"),
        ],
    )
    def test_one_clear_error(self, refused: Any, odd_driver: Any, methods: dict[str, str], expected: str) -> None:
        """File, line, driver and reason; never a traceback."""
        odd_driver(**methods)
        (line,) = refused(self.SECTION)
        assert line.startswith((f"f.yaml:{FIRST + 3}: providers[1]: ", f"f.yaml:{FIRST + 4}: providers[1].driver: "))
        assert expected in line

    def test_schema_of_the_driver(self, refused: Any, odd_driver: Any) -> None:
        odd_driver(schema="return v.Schema({**self.getCommonSchemaDict(), v.Required('region'): str})")
        assert refused(self.SECTION) == [f"f.yaml:{FIRST + 3}: providers[1].region: required, but missing"]
