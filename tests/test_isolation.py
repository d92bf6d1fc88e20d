"""The suite cannot reach the network or the user's files by accident."""

from __future__ import annotations

import os
import socket

import pytest
from huggingface_hub import constants


def test_connections_leave_this_machine_never() -> None:
    with socket.socket() as client, pytest.raises(ConnectionRefusedError, match="loopback only"):
        client.connect(("192.0.2.1", 80))


def test_loopback_works() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.connect(server.getsockname())


def test_the_hub_client_is_online_and_knows_no_token_of_the_user() -> None:
    assert constants.HF_HUB_OFFLINE is False
    assert "hubtools-tests-" in constants.HF_HOME
    assert not {"HF_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT"} & set(os.environ)
