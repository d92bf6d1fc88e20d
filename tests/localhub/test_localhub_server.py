"""Starting and ending the server, its refusals, and what its files give away."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from localhub_client import Client, issue

from hubtools.children import run_child
from hubtools.errors import EnvironmentFailure, HubtoolsError, UsageError
from hubtools.localhub.server import LocalHub, running, serve


def test_a_busy_port(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(EnvironmentFailure) as caught:
            serve(tmp_path, port=port)
        with (
            pytest.raises(EnvironmentFailure) as in_child,
            running(tmp_path, port=port, log=tmp_path / "log"),
        ):
            pass
    for error in (caught.value, in_child.value):
        assert (error.id, error.message) == ("HT601", f"port {port} on 127.0.0.1 is in use")
        assert error.next.startswith("hubtools hub serve --port 0")
    assert not (tmp_path / "token").exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org", ""])
def test_loopback_only(tmp_path: Path, host: str) -> None:
    with pytest.raises(UsageError) as caught:
        serve(tmp_path / "root", host=host)
    assert (caught.value.id, int(caught.value.exit_code)) == ("HT602", 2)
    assert not (tmp_path / "root").exists()


def test_a_port_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        serve(tmp_path, port=70000)
    assert caught.value.id == "HT605"


def test_one_server_per_directory(hub: LocalHub, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure) as caught, running(hub.root, log=tmp_path / "log"):
        pass
    assert caught.value.id == "HT903"
    assert f"pid {hub.pid}" in caught.value.message


def test_a_child_that_dies_before_it_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with (
        pytest.raises(EnvironmentFailure) as caught,
        running(tmp_path / "root", log=tmp_path / "log"),
    ):
        pass
    assert (caught.value.id, caught.value.where) == ("HT606", str(tmp_path / "log"))


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be one" * 30, None])
def test_a_database_of_another_kind(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "hub.sqlite"
    if content is None:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA user_version = 9")
            connection.commit()
        content = file.read_bytes()
    else:
        file.write_bytes(content)
    with pytest.raises(EnvironmentFailure) as caught:
        serve(tmp_path)
    assert (caught.value.id, caught.value.where) == ("HT607", str(file))
    assert file.read_bytes() == content


def test_a_root_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EnvironmentFailure) as caught:
        serve(tmp_path / "file" / "root")
    assert caught.value.id == "HT901"


def test_secrets_stay_in_private_files(hub: LocalHub, admin: Client, repo: str) -> None:
    admin.create(repo)
    assert admin.upload(repo, repo.encode()).status_code == 200
    for name in ("token", "secret"):
        assert stat.S_IMODE((hub.root / name).stat().st_mode) == 0o600
    log = (hub.root.parent / "log").read_text()
    assert "PUT /_lfs/" in log
    for secret in (hub.token, "sig=", (hub.root / "secret").read_text()):
        assert secret not in log
    stored = b"".join(path.read_bytes() for path in hub.root.glob("hub.sqlite*"))
    assert hub.token.encode() not in stored


def test_the_token_and_repos_stay(tmp_path: Path) -> None:
    tokens = set()
    for _ in range(2):
        with running(tmp_path / "root", xet=False, log=tmp_path / "log") as server:
            client = Client(server.url, server.token)
            client.create("lab/kept")
            assert client.http.get("/api/models/lab/kept").status_code == 200
            client.http.close()
            tokens.add(server.token)
    assert len(tokens) == 1


def test_the_server_dies_with_its_parent(tmp_path: Path) -> None:
    script = f"""
import time
from contextlib import closing
from pathlib import Path
from hubtools.localhub.server import running
base = Path({str(tmp_path)!r})
with running(base / "root", xet=False, log=base / "log") as server:
    print(server.pid, server.url, flush=True)
    time.sleep(60)
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, url = parent.stdout.readline().split()
        assert httpx.get(url, trust_env=False).status_code == 200
        parent.kill()
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text():
            return
        time.sleep(0.1)
    os.kill(int(pid), signal.SIGKILL)
    pytest.fail("the server outlived its parent")


def test_a_child_gets_its_error_back(tmp_path: Path) -> None:
    job = {"root": str(tmp_path), "host": "0.0.0.0", "faults": None}
    with pytest.raises(HubtoolsError) as caught:
        run_child("hubtools.localhub", job, log=tmp_path / "log", what="the Hub")
    assert caught.value.id == "HT602"


def test_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hubtools", "hub", "serve", "--port", "0", "--no-xet"]
    command += ["--root", str(tmp_path / "my repos"), "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        data = json.loads(server.stdout.readline())
        token = Path(data["token_file"]).read_text()
        client = Client(data["url"], token)
        assert client.http.get("/api/whoami-v2").json()["name"] == "local"
        client.http.close()
        story = "".join(server.stderr.readline() for _ in range(7))
        server.send_signal(signal.SIGINT)
        server.wait(20)
    assert (data["schema"], data["xet"]) == ("hubtools.hub-serve/1", False)
    assert "rehearsal, CI and demos; loopback only" in story
    assert f"export HF_ENDPOINT={data['url']}" in story
    assert token not in story
    assert server.returncode == 0  # Ctrl-C is how it is meant to end


def test_storage_tokens_are_told_in_json_and_in_headers(tmp_path: Path) -> None:
    with running(tmp_path / "root", log=tmp_path / "log") as server:
        admin = Client(server.url, server.token)
        reader = Client(server.url, issue(server.root, "ann", "read"))
        admin.create("lab/x", visibility="private")
        admin.create("ann/x")
        answer = admin.http.get("/api/models/lab/x/xet-write-token/None")
        said = answer.json()
        assert said["casUrl"] == answer.headers["x-xet-cas-url"] == f"{server.url}/_xet"
        assert said["accessToken"] == answer.headers["x-xet-access-token"]
        assert str(said["exp"]) == answer.headers["x-xet-token-expiration"]
        asked = [
            reader.http.get(f"/api/models/{repo}/xet-{mode}-token/main").status_code
            for repo in ("ann/x", "lab/x")
            for mode in ("read", "write")
        ]
        assert asked == [200, 403, 404, 404]
        for client in (admin, reader):
            client.http.close()
