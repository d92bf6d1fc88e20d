"""Every test runs away from the user's caches, tokens and settings, and reaches loopback only.

This file is imported before any other test module, so that libraries which read the environment
at import see what is set here.
"""

from __future__ import annotations

import atexit
import ipaddress
import os
import shutil
import socket
import tempfile
from typing import Any

import pytest
from hypothesis import settings

HOME = tempfile.mkdtemp(prefix="hubtools-tests-")
atexit.register(shutil.rmtree, HOME, ignore_errors=True)

for name in list(os.environ):
    if name.startswith(("HF_", "HUGGING", "HUBTOOLS_")) or name in ("NO_COLOR", "FORCE_COLOR"):
        del os.environ[name]
os.environ |= {"HF_HOME": HOME, "HF_HUB_DISABLE_TELEMETRY": "1"}
os.environ |= {"XDG_CONFIG_HOME": HOME, "XDG_CACHE_HOME": HOME}
os.environ["XDG_CACHE_HOME"] = HOME

# A busy machine is no reason to fail; what must be quick has a benchmark.
settings.register_profile("hubtools", parent=settings(), deadline=None)
settings.load_profile("hubtools")


def _is_here(address: Any) -> bool:
    if not isinstance(address, tuple):  # a Unix socket
        return True
    host = address[0]
    return host in ("", "localhost") or ipaddress.ip_address(host).is_loopback


@pytest.fixture(autouse=True, scope="session")
def _loopback_only() -> Any:
    """In-process connections to anywhere else fail, whatever a library tries."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if not _is_here(address):
            raise ConnectionRefusedError(f"tests reach loopback only, not {address}")
        connect(self, address)

    patch = pytest.MonkeyPatch()
    patch.setattr(socket.socket, "connect", guarded)
    yield
    patch.undo()
