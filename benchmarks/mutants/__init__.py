# SPDX-License-Identifier: Apache-2.0
"""How strong the tests are: a seeded sample of mutants, and the tests that kill them. See ``__main__``."""
