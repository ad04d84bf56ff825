"""The contract of all pipelines, on those in apps/ beside this folder."""

from pathlib import Path

import pytest

pytest.register_assert_rewrite("scadl_core.cli.contract")
from scadl_core.cli.contract import Contract, apps_in  # noqa: E402

APPS = apps_in(Path(__file__).resolve().parents[1])


@pytest.mark.parametrize("app", APPS, scope="class")
class TestContract(Contract):
    """Every law is a test."""
