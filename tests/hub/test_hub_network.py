"""Every way a Hub can fail becomes one error with an id and what to do; never a token."""

from __future__ import annotations

import errno
import socket
import traceback
from pathlib import Path

import pytest
from hub_servers import QUICK, TOKEN, Canned

from hubtools.digests import sha256_bytes
from hubtools.errors import AuthError, CheckError, EnvironmentFailure, HubtoolsError, UsageError
from hubtools.hub.explain import explain
from hubtools.hub.localfiles import describe
from hubtools.hub.network import call
from hubtools.hub.remote import read_remote
from hubtools.hub.session import Patience, Session, connect
from hubtools.localhub.faults import Fault
from hubtools.localhub.server import LocalHub

WHO = (200, {}, b'{"name": "ann", "auth": {"accessToken": {"role": "write"}}}')


def session(url: str, token: str = TOKEN) -> Session:
    return connect(url, token=token, patience=QUICK)


@pytest.mark.parametrize(
    ("status", "headers", "id", "kind", "tries"),
    [
        (401, {}, "HT303", AuthError, 1),
        (403, {"X-Error-Message": "no write"}, "HT304", AuthError, 1),
        (400, {"X-Error-Message": "bad"}, "HT310", CheckError, 1),
        (418, {}, "HT310", CheckError, 1),
        (429, {"RateLimit": '"api";r=0;t=0'}, "HT309", EnvironmentFailure, 3),
        (500, {}, "HT309", EnvironmentFailure, 3),
        (503, {"Retry-After": "0"}, "HT309", EnvironmentFailure, 3),
    ],
)
def test_an_answer_that_is_no_success(
    canned: Canned,
    status: int,
    headers: dict[str, str],
    id: str,
    kind: type[HubtoolsError],
    tries: int,
) -> None:
    canned.answers = [(status, headers, b"{}")]
    with pytest.raises(kind) as caught:
        session(canned.url).whoami()
    assert caught.value.id == id
    assert caught.value.where == canned.url
    assert caught.value.next
    assert len(canned.seen) == tries


def test_a_busy_hub_is_asked_again_and_its_wish_is_honoured(canned: Canned) -> None:
    canned.answers = [(503, {}, b""), None, WHO]
    assert session(canned.url).whoami().name == "ann"
    assert len(canned.seen) == 3


def test_a_line_that_always_breaks_ends_with_what_to_do(canned: Canned) -> None:
    canned.answers = [None]
    with pytest.raises(EnvironmentFailure) as caught:
        session(canned.url).whoami()
    assert caught.value.id == "HT319"
    assert len(canned.seen) == 3


def test_a_hub_that_is_not_there_is_told_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(EnvironmentFailure) as caught:
        connect(url, token=TOKEN).whoami()  # the default patience would be half a minute
    error = caught.value
    assert (error.id, error.message) == ("HT307", f"no Hub answers at {url}")
    assert "Connection refused" in error.detail[0]


def test_no_token_is_told_before_anything_is_sent(
    canned: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(AuthError) as caught:
        connect(canned.url).whoami()
    assert caught.value.id == "HT302"
    assert canned.seen == []


def test_anonymous_and_refused_are_told_apart(
    canned: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    canned.answers = [(401, {"X-Error-Code": "RepoNotFound"}, b"{}")]
    with pytest.raises(AuthError) as caught:
        read_remote(connect(canned.url), "ann/m")
    assert caught.value.id == "HT302"


def test_a_repo_that_is_not_there_is_no_error(canned: Canned) -> None:
    canned.answers = [(404, {"X-Error-Code": "RepoNotFound"}, b"{}")]
    remote = read_remote(session(canned.url), "ann/m")
    assert (remote.exists, remote.head, remote.files) == (False, None, {})


def test_the_token_is_in_no_message_and_no_traceback(canned: Canned) -> None:
    told = f"the token {TOKEN} (Bearer {TOKEN}) is stale"
    canned.answers = [(403, {"X-Error-Message": told}, b"{}")]
    with pytest.raises(AuthError) as caught:
        session(canned.url).whoami()
    assert "the token [token] (Bearer [token]) is stale" in caught.value.detail[0]
    assert TOKEN not in str(caught.value.to_json())
    assert TOKEN not in "".join(traceback.format_exception(caught.value))
    assert TOKEN not in repr(session(canned.url))


def test_a_token_of_another_shape_is_redacted_too() -> None:
    here = session("http://127.0.0.1:1", token="plain-token")
    assert here.redact("plain-token http://me:sesame@x Bearer abc hf_0123456789") == (
        "[token] http://[token]@x Bearer [token] [token]"
    )


@pytest.mark.parametrize(
    "url",
    ["hub.example", "ftp://hub.example", "http://", "/srv/hub", "http://me:sesame@hub.example"],
)
def test_an_endpoint_that_is_no_url(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        connect(url, token=TOKEN)
    assert caught.value.id == "HT321"
    assert "sesame" not in caught.value.message


def test_what_the_storage_client_raises() -> None:
    here = session("http://127.0.0.1:1")
    no_xet = ConnectionError(
        "Network error: Request error: HTTP status client error (404 Not Found), "
        "domain: http://127.0.0.1:1/api/models/a/b/xet-write-token/main"
    )
    status = (
        "Network error: Request error: HTTP status {} error ({}), domain: http://x/_xet/v1/shards"
    )
    answers = [
        ConnectionError(status.format(*told))
        for told in [
            ("client", "403 Forbidden"),
            ("server", "503 X"),
            ("client", "400 Bad Request"),
            ("client", "413 Payload Too Large"),
        ]
    ]
    gone = ConnectionError("Network error: connection closed before message completed")
    wrapped = RuntimeError("Error while uploading 'x' to the Hub.")
    wrapped.__cause__ = no_xet
    missing = FileNotFoundError(errno.ENOENT, "No such file", "m.safetensors")
    ids = [getattr(explain(here, e, "sending", "a/b"), "id", "") for e in (no_xet, gone, wrapped)]
    assert ids == ["HT306", "HT319", "HT306"]
    ids = [getattr(explain(here, e, "sending", "a/b"), "id", "") for e in answers]
    assert ids == ["HT304", "HT319", "HT323", "HT310"]
    lost = explain(here, missing, "sending", "a/b")
    assert isinstance(lost, EnvironmentFailure)
    assert (lost.id, lost.where) == ("HT322", "m.safetensors")


def test_offline_mode_is_told(canned: Canned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(EnvironmentFailure) as caught:
        connect(canned.url, token=TOKEN).whoami()  # not tried again: this would take a minute
    assert caught.value.id == "HT320"
    assert canned.seen == []


def test_a_hub_that_never_answers_is_not_waited_for_for_ever(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubtools.hub.session._TIMEOUTS", (1.0, 0.1, 1.0, 1.0))
    hub.set_faults([Fault("GET", "/api/whoami", "delay", seconds=1.0, times=3)])
    with pytest.raises(EnvironmentFailure) as caught:
        session(hub.url, hub.token).whoami()
    assert caught.value.id == "HT319"


def test_a_known_digest_is_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    small = describe("d/x", tmp_path / "x")
    assert small.sha256 == sha256_bytes(b"abc")
    assert small.git_sha1 == "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f"  # git hash-object
    monkeypatch.setattr("hubtools.hub.localfiles.SMALL", 2)
    large = describe("d/x", tmp_path / "x", sha256="0" * 64)
    assert (large.sha256, large.git_sha1, large.size) == ("0" * 64, "", 3)


def test_a_bug_stays_a_bug() -> None:
    def broken() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError) as caught:
        call(session("http://127.0.0.1:1"), "working", broken)
    assert "broken" in "".join(traceback.format_tb(caught.tb))


def test_waits_double_up_to_the_cap_and_end() -> None:
    assert list(Patience(attempts=6, base=1, cap=5).waits()) == [1, 2, 4, 5, 5, None]


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"ok": true}', b'"hello"', b"null"])
def test_a_success_that_is_no_hubs_answer(canned: Canned, body: bytes) -> None:
    canned.answers = [(200, {"Content-Type": "application/json"}, body)]
    for ask in (lambda s: s.whoami(), lambda s: read_remote(s, "ann/m")):
        with pytest.raises(HubtoolsError) as caught:
            ask(session(canned.url))
        assert caught.value.id == "HT309"
        assert caught.value.next


@pytest.mark.parametrize("token", ["hf_\u00fcberlang", "hf_two words", "hf_line\nbreak"])
def test_a_token_that_cannot_be_one_is_refused_before_it_is_sent(token: str) -> None:
    with pytest.raises(AuthError) as caught:
        session("http://127.0.0.1:9", token)
    assert caught.value.id == "HT303"
    assert token not in str(caught.value.to_json())
