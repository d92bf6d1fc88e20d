"""Preflight: everything that the Hub would refuse, found before anything is sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hub_servers import CARD, QUICK, TOKEN, Canned, release

from hubtools.errors import AuthError
from hubtools.hub.model import RepoPlan
from hubtools.hub.preflight import check_readme, preflight
from hubtools.hub.push import ensure_repo, preupload
from hubtools.hub.receipt import set_visibility
from hubtools.hub.session import Account, Session, connect
from hubtools.localhub.server import LocalHub
from hubtools.localhub.state import open_hub


def plan(repo: str, folder: Path, card: str = CARD) -> RepoPlan:
    return RepoPlan(repo, "model", tuple(release(folder, {"README.md": card.encode()})), "public")


def test_what_the_hub_will_accept_gives_no_finding_and_changes_nothing(
    session: Session, repo: str, tmp_path: Path
) -> None:
    ensure_repo(session, repo)
    plans = [plan(repo, tmp_path / "1"), plan(repo + "-new", tmp_path / "2")]
    assert preflight(session, plans) == []
    assert [m.id for m in session.api.list_models(author="ann") if repo in m.id] == [repo]


def test_all_repos_are_told_at_once(session: Session, repo: str, tmp_path: Path) -> None:
    long = "ann/" + "n" * 97
    bad = "---\nlicense: no-such-licence\n---\n"
    findings = preflight(session, [plan(long, tmp_path / "1"), plan(repo, tmp_path / "2", bad)])
    assert [(f.id, f.level) for f in findings] == [("HT311", "error"), ("HT316", "error")]
    assert "97 characters" in findings[0].message
    assert "no-such-licence" in findings[1].message
    assert findings[1].where == str(tmp_path / "2" / "README.md")


def test_a_card_without_metadata_is_a_warning(session: Session) -> None:
    assert [(f.id, f.level) for f in check_readme(session, "# Only text\n")] == [
        ("HT317", "warning")
    ]


def test_a_wrong_token_is_told_before_anything_else(hub: LocalHub, tmp_path: Path) -> None:
    session = connect(hub.url, token=TOKEN, patience=QUICK)
    with pytest.raises(AuthError) as caught:
        preflight(session, [plan("ann/" + "n" * 97, tmp_path)])
    assert caught.value.id == "HT303"
    assert TOKEN not in str(caught.value.to_json())


def test_a_hub_without_xet_is_found_out_for_a_repo_that_is_there(
    plain_hub: LocalHub, repo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = connect(plain_hub.url, token=plain_hub.token, patience=QUICK)
    ensure_repo(session, repo)
    plans = [plan(repo, tmp_path / "1")]
    assert [f.id for f in preflight(session, plans)] == ["HT306"]
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    assert preflight(session, plans) == []


def test_the_embedded_hub_tells_whose_token_may_not_write(
    session: Session, hub: LocalHub, repo: str, tmp_path: Path
) -> None:
    ensure_repo(session, repo)
    set_visibility(session, repo, "public")
    opened = open_hub(hub.root, hub.url)
    for role in ("read", "write"):
        stranger = connect(hub.url, token=opened.accounts.issue("bob", role), patience=QUICK)
        (finding,) = preflight(stranger, [plan(repo, tmp_path / role)])
        assert (finding.id, finding.where) == ("HT304", repo)
        with pytest.raises(AuthError) as caught:
            preupload(stranger, repo, release(tmp_path / role, {"a.bin": b"1"}))
        assert (caught.value.id, caught.value.where) == ("HT304", repo)
    opened.database.close()
    assert stranger.whoami() == Account("bob", {}, "write")


def who(role: str) -> tuple[int, dict[str, str], bytes]:
    token = {"accessToken": {"role": role}}
    return 200, {}, json.dumps({"name": "ann", "orgs": [], "auth": token}).encode()


NO_REPO = (404, {"X-Error-Code": "RepoNotFound"}, b"{}")
REPO = (200, {}, b'{"id": "ann/m", "sha": "%s", "private": false}' % (b"1" * 40))


def test_a_read_only_token_is_found_for_every_repo(canned: Canned) -> None:
    canned.answers = [who("read"), NO_REPO, NO_REPO]
    plans = [RepoPlan(f"ann/{name}", "model", (), "public") for name in ("a", "b")]
    findings = preflight(connect(canned.url, token=TOKEN, patience=QUICK), plans)
    assert [(f.id, f.where) for f in findings] == [("HT304", "ann/a"), ("HT304", "ann/b")]


def test_a_repo_that_this_token_may_not_write(
    canned: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    canned.answers = [who("fineGrained"), REPO, (403, {}, b"{}")]
    session = connect(canned.url, token=TOKEN, patience=QUICK)
    (finding,) = preflight(session, [RepoPlan("ann/m", "model", (), "public")])
    assert (finding.id, finding.where) == ("HT304", "ann/m")
    assert canned.seen[-1] == "GET /api/models/ann/m/auth-check/write"


def test_a_new_repo_needs_an_owner_this_token_may_create_in() -> None:
    account = Account("ann", {"lab": "write", "club": "read", "guild": ""}, "write")
    asked = ("ann", "lab", "guild", "club", "stranger")
    assert [account.may_create_in(owner) for owner in asked] == [True, True, True, False, False]


def test_a_foreign_owner_is_told_before_any_work(
    canned: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "loopback", False)  # as for a Hub elsewhere
    canned.answers = [who("write"), NO_REPO]
    session = connect(canned.url, token=TOKEN, patience=QUICK)
    (finding,) = preflight(session, [RepoPlan("bob/m", "model", (), "public")])
    assert (finding.id, finding.level) == ("HT305", "error")
    assert finding.message.startswith("ann cannot create bob/m: bob is neither this user nor")


def test_a_hub_that_has_no_card_check_is_not_held_against_the_card(canned: Canned) -> None:
    canned.answers = [(404, {}, b"{}")]
    assert check_readme(connect(canned.url, token=TOKEN, patience=QUICK), CARD) == []
