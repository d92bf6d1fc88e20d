from __future__ import annotations

from pathlib import Path

import pytest

from hubtools.localhub.objects import ObjectStore
from hubtools.localhub.xet.store import XetStore


@pytest.fixture
def store(tmp_path: Path) -> XetStore:
    return XetStore(tmp_path)


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path)
