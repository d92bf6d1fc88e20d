"""Tokens of users and of storage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubtools.localhub.accounts import ADMIN, Accounts, Caller
from hubtools.localhub.database import Database
from hubtools.localhub.failures import ApiFailure


@pytest.fixture
def accounts(tmp_path: Path) -> Iterator[Accounts]:
    database = Database(tmp_path)
    yield Accounts(database, tmp_path)
    database.close()


def test_the_first_start_makes_one_admin(accounts: Accounts, tmp_path: Path) -> None:
    token = (tmp_path / "token").read_text()
    caller = accounts.caller(f"Bearer {token}")
    assert caller == Caller(ADMIN, "write", admin=True)
    assert caller.may_write("any-namespace")


def test_roles(accounts: Accounts) -> None:
    write = accounts.caller(f"Bearer {accounts.issue('ann')}")
    read = accounts.caller(f"bearer {accounts.issue('ann', 'read')}")
    assert (write.name, read.name) == ("ann", "ann")
    assert write.may_write("Ann")
    assert not write.may_write("bob")
    assert read.owns("ann")
    assert not read.may_write("ann")
    assert accounts.caller(None) == Caller()
    assert not Caller().owns("")


@pytest.mark.parametrize("header", ["Bearer nope", "Basic abc", "Bearer", "Bearer  "])
def test_an_unknown_token_is_refused(accounts: Accounts, header: str) -> None:
    with pytest.raises(ApiFailure) as caught:
        accounts.caller(header)
    assert caught.value.status == 401


def test_storage_tokens(accounts: Accounts, tmp_path: Path) -> None:
    soon = int(time.time()) + 60
    read = accounts.storage_token("ann/m.odel", False, soon)
    write = accounts.storage_token("ann/m.odel", True, soon)
    assert accounts.storage_token_ok(read, False)
    assert not accounts.storage_token_ok(read, True)
    assert accounts.storage_token_ok(write, True)
    assert not accounts.storage_token_ok(accounts.storage_token("ann/m", True, 1), False)
    for forged in (read.replace("read", "write"), write[:-1], "", "xet...", "hf_x", write + "0"):
        assert not accounts.storage_token_ok(forged, True)
    other = Database(tmp_path / "other")
    assert not Accounts(other, tmp_path / "other").storage_token_ok(write, True)
    other.close()
