"""The servers of tests/server, for those who ask them from elsewhere."""

from __future__ import annotations

from tests.server.conftest import served, waits, world  # noqa: F401  # fixtures
