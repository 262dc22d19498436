# SPDX-License-Identifier: Apache-2.0
"""Documents to a `Config`, section by section, in the order of reference/configuration 1."""

from __future__ import annotations

from nodepool.config.diskimages import merge_secure, read_diskimages
from nodepool.config.marks import Document
from nodepool.config.objects import Config
from nodepool.config.problems import Problems
from nodepool.config.providers import CheckedSections, ProviderReader
from nodepool.config.sections import read_sections
from nodepool.config.zookeeper import ZooKeeperReader
from nodepool.driver.registry import Drivers


def assemble(
    main: Document,
    secure: Document | None,
    problems: Problems,
    *,
    secure_given: bool = False,
    checked: CheckedSections | None = None,
) -> Config:
    """Make the configuration. Imports the drivers that it names.

    :param secure_given: was a secure file named? An empty one is no document.
    :param checked: what earlier loads have checked.

    What is wrong goes to ``problems``; if there is an error, the result is incomplete and must not be used.
    """
    Drivers.reset()
    config = assemble_images(main, secure, problems, secure_given=secure_given)
    ProviderReader(main, config, problems, checked).read()
    return config


def assemble_images(
    main: Document, secure: Document | None, problems: Problems, *, secure_given: bool = False
) -> Config:
    """Make the configuration without its providers; see `assemble`."""
    config = Config()
    config.path, config.digest = main.path, main.digest
    read_sections(main, config, problems)
    zookeeper = ZooKeeperReader(config, problems)
    zookeeper.read(main, secure)
    read_diskimages(main, config, problems)
    if secure is not None:
        merge_secure(secure, config, problems)
    zookeeper.require(main, secure_given=secure_given or secure is not None)
    return config
