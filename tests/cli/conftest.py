"""Runs to use, as in the tests of policies."""

from tests.policies.conftest import runs

__all__ = ["runs"]
