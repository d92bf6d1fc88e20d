"""The HTTP API: answers, refusals and the headers that clients read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from localhub_client import Client, regular

from hubtools.localhub.server import LocalHub


def test_create_then_again(hub: LocalHub, admin: Client, repo: str) -> None:
    first, second = admin.create(repo), admin.create(repo)
    url = f"{hub.url}/{repo}"
    assert (first.status_code, first.json()["url"]) == (200, url)
    assert (second.status_code, second.json()["url"]) == (409, url)
    assert admin.create(repo, type="dataset").json()["url"] == f"{hub.url}/datasets/{repo}"


@pytest.mark.parametrize(
    ("name", "fine"),
    [
        ("x" * 96, True),
        ("x" * 97, False),
        ("a_", True),
        ("-a", False),
        ("a.", False),
        ("a--b", False),
        ("a..b", False),
        ("a.git", False),
        ("a b", False),
        ("", False),
        ("ü", False),
    ],
)
def test_repo_names(admin: Client, name: str, fine: bool) -> None:
    body = {"name": name, "organization": "names"}
    assert admin.http.post("/api/repos/create", json=body).status_code == (200 if fine else 400)


def test_a_visibility_typo_makes_no_public_repo(admin: Client, repo: str) -> None:
    assert admin.create(repo, visibility="privte").status_code == 400
    assert admin.http.get(f"/api/models/{repo}").status_code == 404


def test_private_repos_look_absent(admin: Client, alice: Client, nobody: Client, repo: str) -> None:
    admin.create(repo, visibility="private")
    assert admin.http.get(f"/api/models/{repo}").json()["private"] is True
    for path in (
        f"/api/models/{repo}",
        f"/api/models/{repo}/tree/main",
        f"/{repo}/resolve/main/.gitattributes",
        f"/api/models/{repo}/xet-read-token/main",
        f"/{repo}",
    ):
        theirs = alice.http.get(path)
        assert theirs.status_code == 404, path
        assert nobody.http.get(path).status_code in (401, 404)
        if "xet" not in path:
            assert theirs.headers["x-error-code"] == "RepoNotFound"
            assert nobody.http.get(path).status_code == 401
    listed = [item["id"] for item in admin.http.get("/api/models?author=lab").json()]
    assert repo in listed
    assert repo not in [item["id"] for item in nobody.http.get("/api/models").json()]
    assert repo not in nobody.http.get("/").text
    shown = admin.http.put(f"/api/models/{repo}/settings", json={"visibility": "public"})
    assert shown.json() == {"private": False, "gated": False}
    assert repo in nobody.http.get("/").text


def test_gated_repos_show_but_do_not_give(
    admin: Client, alice: Client, nobody: Client, repo: str
) -> None:
    admin.create(repo)
    admin.http.put(f"/api/models/{repo}/settings", json={"gated": "manual"})
    assert alice.http.get(f"/api/models/{repo}").json()["gated"] == "manual"
    refused = alice.http.get(f"/{repo}/resolve/main/.gitattributes")
    assert (refused.status_code, refused.headers["x-error-code"]) == (403, "GatedRepo")
    assert nobody.http.get(f"/{repo}/resolve/main/.gitattributes").status_code == 401
    assert alice.http.get(f"/api/models/{repo}/auth-check").status_code == 403
    assert admin.http.get(f"/{repo}/resolve/main/.gitattributes").status_code == 200


@pytest.mark.parametrize("settings", [{"gated": "yes"}, {"visibility": 1}, {"discussions": False}])
def test_unknown_settings_are_refused(admin: Client, repo: str, settings: dict[str, Any]) -> None:
    admin.create(repo)
    assert admin.http.put(f"/api/models/{repo}/settings", json=settings).status_code == 400


def test_who_may_write(
    admin: Client, alice: Client, reader: Client, nobody: Client, repo: str
) -> None:
    own = "alice/" + repo.split("/")[1]
    assert alice.create(own).status_code == 200
    assert alice.create(repo).status_code == 403
    assert reader.create(own + "-2").status_code == 403
    assert nobody.create(own).status_code == 401
    admin.create(repo)
    for client, status in ((alice, 403), (nobody, 401)):
        assert client.commit(repo, regular("a", b"x")).status_code == status
        assert client.http.get(f"/api/models/{repo}/auth-check/write").status_code == status
    assert reader.http.get(f"/api/models/{own}/auth-check").status_code == 200
    assert reader.http.get(f"/api/models/{own}/auth-check/write").status_code == 403
    assert reader.http.get("/api/whoami-v2").json()["auth"]["accessToken"]["role"] == "read"
    assert nobody.http.get("/api/whoami-v2").status_code == 401


def test_an_unknown_token_is_not_anonymous(hub: LocalHub, admin: Client, repo: str) -> None:
    admin.create(repo)
    stranger = Client(hub.url, "hf_wrong")
    answer = stranger.http.get(f"/api/models/{repo}")
    stranger.http.close()
    assert answer.status_code == 401
    assert answer.headers["x-error-message"] == "Invalid credentials in Authorization header"


def test_a_hub_without_xet_says_so(admin: Client, repo: str) -> None:
    admin.create(repo)
    answer = admin.http.get(f"/api/models/{repo}/xet-write-token/main")
    assert answer.status_code == 404
    assert "HF_HUB_DISABLE_XET=1" in answer.json()["error"]


def test_branches_and_tags(admin: Client, repo: str) -> None:
    admin.create(repo)
    api, head = f"/api/models/{repo}", admin.head(repo)
    assert admin.http.post(f"{api}/tag/main", json={"tag": "v1"}).status_code == 201
    assert admin.http.post(f"{api}/tag/main", json={"tag": "v1"}).status_code == 409
    assert admin.http.post(f"{api}/branch/v1%2Fx", json={}).status_code == 201
    assert admin.http.post(f"{api}/branch/v1", json={}).status_code == 400  # git forbids both
    assert admin.http.post(f"{api}/branch/a..b", json={}).status_code == 400
    admin.commit(repo, regular("a", b"1"))
    refs = admin.http.get(f"{api}/refs").json()
    assert refs["tags"] == [{"name": "v1", "ref": "refs/tags/v1", "targetCommit": head}]
    assert [(b["name"], b["targetCommit"] == head) for b in refs["branches"]] == [
        ("main", False),
        ("v1/x", True),
    ]
    assert admin.commit(repo, regular("a", b"2"), rev="v1").status_code == 404  # a tag stays put
    assert admin.http.delete(f"{api}/branch/main").status_code == 403
    assert admin.http.delete(f"{api}/branch/v1%2Fx").status_code == 200
    assert admin.http.delete(f"{api}/tag/v2").headers["x-error-code"] == "RevisionNotFound"


def test_move_and_delete(admin: Client, alice: Client, repo: str) -> None:
    admin.create(repo)
    admin.create(repo + "-taken")
    head = admin.head(repo)
    moved = {"fromRepo": repo, "toRepo": repo + "-new", "type": "model"}
    assert alice.http.post("/api/repos/move", json=moved).status_code == 403
    taken = {**moved, "toRepo": repo + "-taken"}
    assert admin.http.post("/api/repos/move", json=taken).status_code == 409
    assert admin.http.post("/api/repos/move", json=moved).status_code == 200
    assert admin.head(repo + "-new") == head
    owner, name = (repo + "-new").split("/")
    gone = {"name": name, "organization": owner}
    assert alice.http.request("DELETE", "/api/repos/delete", json=gone).status_code == 403
    assert admin.http.request("DELETE", "/api/repos/delete", json=gone).status_code == 200
    again = admin.http.request("DELETE", "/api/repos/delete", json=gone)
    assert (again.status_code, again.headers["x-error-code"]) == (404, "RepoNotFound")


def test_pages_escape_what_they_show(nobody: Client, admin: Client, repo: str) -> None:
    admin.create(repo)
    admin.commit(repo, regular("README.md", b"<script>alert(1)</script>"), regular("<b>.txt", b"x"))
    page = nobody.http.get(f"/{repo}").text
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "<b>.txt" not in page
    served = nobody.http.get(f"/{repo}/resolve/main/README.md").headers
    assert served["content-type"].startswith("text/plain")
    assert served["x-content-type-options"] == "nosniff"


def test_unknown_places_and_methods(admin: Client) -> None:
    assert admin.http.get("/api/nothing").status_code == 404
    assert admin.http.put("/api/whoami-v2").status_code == 405


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = ["name", "organization", "type", "visibility", "sdk", "files", "objects", "operation"]
FIELDS += ["transfers", "fromRepo", "toRepo", "gated", "content", "item", "title", "namespace"]
FIELDS += ["tag", "startingPoint", "message", "gitIgnore"]


@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.sampled_from(
        [
            "POST /api/repos/create",
            "DELETE /api/repos/delete",
            "POST /api/repos/move",
            "POST /api/validate-yaml",
            "POST /api/collections",
            "POST /lab/fuzz.git/info/lfs/objects/batch",
            "POST /api/models/lab/fuzz/preupload/main",
            "PUT /api/models/lab/fuzz/settings",
            "POST /api/models/lab/fuzz/branch/x",
            "POST /api/models/lab/fuzz/tag/main",
        ]
    ),
    st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6) | JSON,
)
def test_no_body_makes_the_server_fail(admin: Client, place: str, body: Any) -> None:
    admin.create("lab/fuzz")
    method, path = place.split(" ")
    answer = admin.http.request(method, path, json=body)
    assert answer.status_code < 500, answer.text
    answer.json()
