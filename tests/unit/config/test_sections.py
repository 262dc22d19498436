# SPDX-License-Identifier: Apache-2.0
"""Top-level keys, labels, tenants and images (reference/configuration 2, 3, 4, 6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodepool.config.loader import load_config
from nodepool.config.objects import Config
from nodepool.exceptions import ConfigError

HEAD = "zookeeper-servers: [{host: zk}]\nzookeeper-tls: {cert: c, key: k, ca: a}\n"


@pytest.fixture
def load(tmp_path: Path) -> Any:
    """Loads a text, put after two lines with ZooKeeper; a second text is the secure file."""

    def function(text: str, secure: str | None = None) -> Config:
        file, second = tmp_path / "f.yaml", tmp_path / "s.yaml"
        file.write_text(HEAD + text, encoding="utf-8")
        if secure is not None:
            second.write_text(secure, encoding="utf-8")
        return load_config(str(file), None if secure is None else str(second))

    return function


@pytest.fixture
def refused(tmp_path: Path) -> Any:
    """The lines of the error that a text gives, without the directory."""

    def function(text: str, secure: str | None = None) -> list[str]:
        file, second = tmp_path / "f.yaml", tmp_path / "s.yaml"
        file.write_text(HEAD + text, encoding="utf-8")
        if secure is not None:
            second.write_text(secure, encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            load_config(str(file), None if secure is None else str(second), strict=True)
        return str(caught.value).replace(f"{tmp_path}/", "").splitlines()

    return function


class TestTop:
    def test_defaults(self, load: Any) -> None:
        config = load("")
        assert (config.webapp_port, config.webapp_listen_address) == (8005, "0.0.0.0")
        assert (config.elements_dir, config.images_dir) == (None, None)
        assert (config.build_log_dir, config.build_log_retention) == ("/var/log/nodepool/builds", 7)
        assert config.max_hold_age == 0
        assert (config.labels, config.providers, config.diskimages, config.tenant_resource_limits) == ({}, {}, {}, {})

    def test_given(self, load: Any) -> None:
        config = load(
            "webapp: {port: 1, listen_address: '::'}\nelements-dir: /e\nimages-dir: /i\nbuild-log-dir: /b\n"
            "build-log-retention: -1\nmax-hold-age: 5\nzookeeper-timeout: 3\n"
        )
        assert (config.webapp_port, config.webapp_listen_address) == (1, "::")
        assert (config.elements_dir, config.images_dir, config.build_log_dir) == ("/e", "/i", "/b")
        assert (config.build_log_retention, config.max_hold_age, config.zookeeper_timeout) == (-1, 5, 3.0)

    def test_types_follow_from_yaml(self, load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """After substitution; ``port: %(NODEPOOL_PORT)`` gives an int."""
        monkeypatch.setenv("NODEPOOL_PORT", "17")
        assert load("webapp: {port: %(NODEPOOL_PORT)}").webapp_port == 17

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("webapp: 8005", "f.yaml:3: webapp: expected a mapping, got 8005"),
            (
                "webapp: {port: x}",
                "f.yaml:3: webapp.port: expected a whole number, 0 to 65535, got 'x'; correct it, a daemon takes it as "
                "not given",
            ),
            ("images-dir: [a]", "f.yaml:3: images-dir: expected a text, not empty, got a list"),
            (
                "max-hold-age: 1.5",
                "f.yaml:3: max-hold-age: expected a whole number, got 1.5; correct it, a daemon takes it as 1",
            ),
            ("labels: {a: b}", "f.yaml:3: labels: expected a list of mappings, got a mapping"),
            (
                "labels:",
                "f.yaml:3: labels: there is nothing below it (null); remove it, a daemon takes it as not given",
            ),
            ("providers: {a: b}", "f.yaml:3: providers: expected a list of mappings, got a mapping"),
            ("diskimages: a", "f.yaml:3: diskimages: expected a list of mappings, got 'a'"),
            ("tenant-resource-limits: 1", "f.yaml:3: tenant-resource-limits: expected a list of mappings, got 1"),
        ],
    )
    def test_bad(self, refused: Any, text: str, expected: str) -> None:
        assert refused(text) == [expected]

    def test_unknown_key_is_a_warning(self, load: Any, caplog: pytest.LogCaptureFixture) -> None:
        """A file that works today still starts."""
        assert load("webapp: {listen-address: x}").webapp_listen_address == "0.0.0.0"
        assert "f.yaml:3: webapp.listen-address: unknown key, did you mean 'listen_address'?" in caplog.text
        assert caplog.records[0].levelname == "WARNING"


class TestLabels:
    def test_labels(self, load: Any) -> None:
        config = load("labels: [{name: a}, {name: b, min-ready: -1, max-ready-age: 60}]")
        assert list(config.labels) == ["a", "b"]
        assert (config.labels["a"].min_ready, config.labels["a"].max_ready_age) == (0, 0)
        assert (config.labels["b"].min_ready, config.labels["b"].max_ready_age) == (-1, 60)
        assert config.labels["a"].pools == []

    def test_every_problem(self, refused: Any) -> None:
        text = "labels:\n- {name: a}\n- {name: a}\n- {min-ready: 1}\n- {name: ''}\n- {name: 7, min-ready: x}\n- b\n"
        assert refused(text) == [
            "f.yaml:6: labels[2].name: required, but missing",
            "f.yaml:7: labels[3].name: expected a text, not empty, got ''",
            "f.yaml:8: labels[4].name: expected a text, not empty, got 7; put it in quotes, a daemon takes it as '7'",
            "f.yaml:8: labels[4].min-ready: expected a whole number, got 'x'",
            "f.yaml:9: labels[5]: expected a mapping, got 'b'",
        ]


class TestTenants:
    def test_quota_names(self, load: Any, caplog: pytest.LogCaptureFixture) -> None:
        """Section 6; a limit that is not given is no limit."""
        config = load(
            "tenant-resource-limits:\n- {tenant-name: a, max-servers: 1, max-cores: 2, max-ram: 3, max-volumes: 4,"
            " max-volume-gb: 5, L-1216C47A: 6}\n- {tenant-name: b}\n"
        )
        assert config.tenant_resource_limits == {
            "a": {"instances": 1, "cores": 2, "ram": 3, "volumes": 4, "volume-gb": 5, "L-1216C47A": 6},
            "b": {},
        }
        assert caplog.text == ""

    def test_probable_typo(self, load: Any, caplog: pytest.LogCaptureFixture) -> None:
        """Any key is legal, so this is only a warning."""
        assert load("tenant-resource-limits: [{tenant-name: a, max-core: 1}]").tenant_resource_limits["a"] == {
            "max-core": 1
        }
        assert "tenant-resource-limits[0].max-core: taken for the name of a resource" in caplog.text
        assert "did you mean 'max-cores'?" in caplog.text

    def test_bad(self, refused: Any) -> None:
        text = "tenant-resource-limits:\n- {tenant-name: a, max-ram: x}\n- {max-ram: 1}\n- {tenant-name: a}\n- 7\n"
        assert refused(text) == [
            "f.yaml:4: tenant-resource-limits[0].max-ram: expected a whole number, got 'x'; correct it, a daemon takes "
            "it as 0",
            "f.yaml:5: tenant-resource-limits[1].tenant-name: required, but missing",
            "f.yaml:7: tenant-resource-limits[3]: expected a mapping, got 7",
        ]


class TestDiskImages:
    def test_defaults(self, load: Any) -> None:
        image = load("diskimages: [{name: i}]").diskimages["i"]
        assert (image.abstract, image.parent, image.pause, image.delete_after_upload) == (False, None, False, False)
        assert (image.image_types, image.keep_formats, image.elements, image.env_vars) == (set(), [], [], {})
        assert (image.rebuild_age, image.build_timeout, image.release) == (86400, 28800, "")
        assert (image.username, image.python_path, image.shell_type) == ("zuul", "auto", None)
        assert (image.dib_cmd, image.metadata) == ("disk-image-create", {})

    def test_given(self, load: Any) -> None:
        """All keys, also ``shell-type``, which the released validator rejects."""
        image = load(
            "diskimages: [{name: i, abstract: true, formats: [raw, qcow2], keep-formats: [raw], rebuild-age: 1,"
            " delete-after-upload: true, build-timeout: 2, release: 12, elements: [a, b], env-vars: {A: '1'},"
            " pause: true, username: u, python-path: /p, shell-type: csh, dib-cmd: /bin/dib %p, metadata: {a: [1]}}]"
        ).diskimages["i"]
        assert (image.abstract, image.pause, image.delete_after_upload) == (True, True, True)
        assert (image.image_types, image.keep_formats) == ({"raw", "qcow2"}, ["raw"])
        assert (image.elements, image.env_vars) == (["a", "b"], {"A": "1"})
        assert (image.rebuild_age, image.build_timeout, image.release) == (1, 2, "12")
        assert (image.username, image.python_path, image.shell_type) == ("u", "/p", "csh")
        assert (image.dib_cmd, image.metadata) == ("/bin/dib %p", {"a": [1]})

    def test_inheritance(self, load: Any) -> None:
        """Parents first: elements append, env-vars and metadata update, others override when they count."""
        images = load(
            "diskimages:\n"
            "- {name: root, abstract: true, elements: [a], env-vars: {A: '1', B: '1'}, metadata: {x: 1, y: 1},"
            " pause: true, rebuild-age: 5, formats: [raw], delete-after-upload: true, release: one}\n"
            "- {name: mid, parent: root, elements: [b], env-vars: {B: '2'}, metadata: {y: 2}, rebuild-age: 0}\n"
            "- {name: leaf, parent: mid, elements: [c], pause: false, delete-after-upload: false, formats: [qcow2],"
            " username: me}\n"
        ).diskimages
        leaf, mid = images["leaf"], images["mid"]
        assert leaf.elements == ["a", "b", "c"]
        assert leaf.env_vars == {"A": "1", "B": "2"}
        assert leaf.metadata == {"x": 1, "y": 2}
        assert leaf.pause is True
        assert leaf.delete_after_upload is False
        assert (leaf.rebuild_age, leaf.release) == (5, "one")
        assert (leaf.image_types, mid.image_types) == ({"qcow2"}, {"raw"})
        assert (leaf.username, mid.username) == ("me", "zuul")
        assert (leaf.parent, mid.parent, images["root"].parent) == ("mid", "root", None)
        assert (leaf.abstract, images["root"].abstract) == (False, True)

    def test_siblings_share_nothing(self, load: Any) -> None:
        images = load(
            "diskimages: [{name: p, env-vars: {A: '1'}, elements: [a], formats: [raw], keep-formats: [raw],"
            " metadata: {x: 1}}, {name: a, parent: p}, {name: b, parent: p}]"
        ).diskimages
        images["a"].env_vars["B"] = "2"
        images["a"].elements.append("b")
        images["a"].image_types.add("vhd")
        images["a"].keep_formats.append("vhd")
        images["a"].metadata["y"] = 2
        for name in "bp":
            image = images[name]
            assert (image.env_vars, image.elements, image.metadata) == ({"A": "1"}, ["a"], {"x": 1})
            assert (image.image_types, image.keep_formats) == ({"raw"}, ["raw"])

    def test_broken_families(self, refused: Any) -> None:
        """An unknown parent and a circle are errors, each told once where it stands."""
        text = (
            "diskimages:\n- {name: debian}\n- {name: a, parent: debain}\n- {name: b, parent: a}\n"
            "- {name: c, parent: d}\n- {name: d, parent: c}\n- {name: e, parent: e}\n- {name: f, parent: d}\n"
            "- {name: debian}\n"
        )
        assert refused(text) == [
            "f.yaml:4: diskimages[0].name: there is another diskimage named 'debian' in line 11, which counts instead "
            "of this one; remove one",
            "f.yaml:5: diskimages[1].parent: there is no diskimage 'debain', did you mean 'debian'?",
            "f.yaml:7: diskimages[3].parent: an image cannot be its own ancestor: c -> d -> c",
            "f.yaml:8: diskimages[4].parent: an image cannot be its own ancestor: d -> c -> d",
            "f.yaml:9: diskimages[5].parent: an image cannot be its own ancestor: e -> e",
        ]

    def test_release_like_a_number(self, load: Any, caplog: pytest.LogCaptureFixture) -> None:
        assert load("diskimages: [{name: i, release: 22.10}]").diskimages["i"].release == "22.1"
        assert "diskimages[0].release: is read as the number 22.1; put it in quotes" in caplog.text

    def test_bad_types(self, refused: Any) -> None:
        text = "diskimages: [{name: i, env-vars: {A: 1}, pause: 1, elements: a, metadata: [], parent: 3}]"
        assert {line.split(": ")[1] for line in refused(text)} == {
            "diskimages[0].env-vars.A",
            "diskimages[0].pause",
            "diskimages[0].elements",
            "diskimages[0].metadata",
            "diskimages[0].parent",
        }


class TestSecureFile:
    IMAGES = "diskimages: [{name: p, env-vars: {A: '1', B: '1'}}, {name: c, parent: p}]"

    def test_env_vars(self, load: Any) -> None:
        """G-15: merged into the image's, the secure value wins; only into the image that is named."""
        images = load(self.IMAGES, "diskimages: [{name: p, env-vars: {B: '2', C: '3'}, pause: true}]").diskimages
        assert images["p"].env_vars == {"A": "1", "B": "2", "C": "3"}
        assert images["c"].env_vars == {"A": "1", "B": "1"}
        assert images["p"].pause is False

    def test_numbers(self, load: Any, caplog: pytest.LogCaptureFixture) -> None:
        """Daemons of Nodepool 11 take them; a warning does not show what is secret."""
        images = load(self.IMAGES, "diskimages: [{name: p, env-vars: {A: 4711}}]").diskimages
        assert images["p"].env_vars["A"] == "4711"
        assert "s.yaml:1: diskimages[0].env-vars.A: expected a text, got something else" in caplog.text
        assert "4711" not in caplog.text

    @pytest.mark.parametrize("text", ["", "# nothing\n", "~\n", "{}", "labels: 7\nproviders: 8\nanything: 9\n"])
    def test_ignored(self, load: Any, caplog: pytest.LogCaptureFixture, text: str) -> None:
        """An empty file is fine; other keys do not count."""
        assert set(load(self.IMAGES, text).diskimages) == {"p", "c"}
        assert caplog.text == ""

    def test_unknown_image(self, refused: Any) -> None:
        assert refused(self.IMAGES, "\ndiskimages:\n- name: cc\n") == [
            "s.yaml:3: diskimages[0].name: there is no diskimage 'cc', did you mean 'c'?"
        ]

    def test_bad_values_are_not_shown(self, refused: Any) -> None:
        assert refused(self.IMAGES, "diskimages: [{name: p, env-vars: {TOKEN: 4711}}]") == [
            "s.yaml:1: diskimages[0].env-vars.TOKEN: expected a text, got something else; put it in quotes, a daemon "
            "takes it as it is written"
        ]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("- a", "s.yaml: the file must be a mapping with keys such as providers, but it is a list"),
            ("a: [}", "s.yaml:1:5: not YAML"),
            ("diskimages: 3", "s.yaml:1: diskimages: expected a list of mappings, got 3"),
        ],
    )
    def test_bad_file(self, refused: Any, text: str, expected: str) -> None:
        (line,) = refused(self.IMAGES, text)
        assert line.startswith(expected)

    def test_both_files_are_wrong(self, refused: Any) -> None:
        """Every problem of both."""
        assert [line.split(":")[0] for line in refused("labels: 3", "zookeeper-tls: 3")] == ["f.yaml", "s.yaml"]
        assert [line.split(":")[0] for line in refused("a: [", "b: [")] == ["f.yaml", "s.yaml"]
