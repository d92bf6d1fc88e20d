"""The HTTP API: answers, refusals and the headers that clients read."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from localhub_client import Client, lfs, regular

from hubtools.localhub.objects import ObjectStore
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


def test_commit_with_a_stale_parent(admin: Client, repo: str) -> None:
    admin.create(repo)
    head = admin.head(repo)
    landed = admin.commit(repo, regular("a", b"1"), parent=head).json()["commitOid"]
    assert admin.head(repo) == landed
    stale = admin.commit(repo, regular("a", b"2"), parent=head)
    assert stale.status_code == 412
    assert "a commit happened since" in stale.headers["x-error-message"]
    assert admin.head(repo) == landed
    assert admin.commit(repo, regular("a", b"3"), parent=landed[:7]).status_code == 200


def test_lfs_round_trip_and_a_false_name(hub: LocalHub, admin: Client, repo: str) -> None:
    data = repo.encode() * 1000
    admin.create(repo)
    false = admin.upload(repo, data, oid="0" * 64)
    assert false.status_code == 400
    assert "expected sha256 0000" in false.json()["error"]
    missing = admin.commit(repo, lfs("w.bin", data))
    assert (missing.status_code, "never uploaded" in missing.json()["error"]) == (400, True)

    assert admin.upload(repo, data).status_code == 200
    assert admin.commit(repo, lfs("w.bin", data)).status_code == 200
    item = admin.http.get(f"/api/models/{repo}/tree/main").json()[-1]
    digest = hashlib.sha256(data).hexdigest()
    pointer = len(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(data)}\n"
    )
    assert item["lfs"] == {"oid": digest, "size": len(data), "pointerSize": pointer}

    path = ObjectStore(hub.root).path(digest)
    path.write_bytes(b"x" + data[1:])  # the disk lies
    tampered = admin.commit(repo, lfs("again.bin", data))
    assert (tampered.status_code, "holds bytes with sha256" in tampered.json()["error"]) == (
        400,
        True,
    )


def test_multipart_upload(admin: Client, repo: str) -> None:
    data = bytes(range(256)) * 4096 * 2 + repo.encode()
    digest = hashlib.sha256(data).hexdigest()
    admin.create(repo)
    asked = {"operation": "upload", "transfers": ["basic", "multipart"]}
    asked["objects"] = [{"oid": digest, "size": len(data)}]  # type: ignore[assignment]
    batch = admin.http.post(f"/{repo}.git/info/lfs/objects/batch", json=asked).json()
    action = batch["objects"][0]["actions"]["upload"]
    parts = {int(k): v for k, v in action["header"].items() if k.isdigit()}
    chunk = int(action["header"]["chunk_size"])
    assert (batch["transfer"], sorted(parts)) == ("multipart", [1, 2, 3])
    done = {"oid": digest, "parts": []}
    for number in (3, 1):
        piece = data[(number - 1) * chunk : number * chunk]
        assert admin.http.put(parts[number], content=piece).headers["etag"]
    early = admin.http.post(action["href"], json=done)
    assert early.status_code == 400  # part 2 never came
    for number in (2, 3, 1):
        admin.http.put(parts[number], content=data[(number - 1) * chunk : number * chunk])
    assert admin.http.post(action["href"], json=done).status_code == 200
    verify = batch["objects"][0]["actions"]["verify"]["href"]
    assert admin.http.post(verify, json={}).status_code == 200
    admin.commit(repo, lfs("w.bin", data))
    assert admin.http.get(f"/{repo}/resolve/main/w.bin").content == data
    again = admin.http.post(f"/{repo}.git/info/lfs/objects/batch", json=asked).json()
    assert "actions" not in again["objects"][0]


def test_upload_urls_cannot_be_changed(admin: Client, repo: str) -> None:
    admin.create(repo)
    asked = {"operation": "upload", "objects": [{"oid": "ab" * 32, "size": 5}]}
    batch = admin.http.post(f"/{repo}.git/info/lfs/objects/batch", json=asked).json()
    href = batch["objects"][0]["actions"]["upload"]["href"]
    for changed in (
        href.replace("size=5", "size=9"),
        href.replace("ab" * 32, "cd" * 32),
        href[:-1],
    ):
        assert admin.http.put(changed, content=b"12345").status_code == 403
    long = admin.http.put(href, content=b"123456")
    assert (long.status_code, long.json()["error"]) == (400, "more than the 5 bytes announced")


def test_a_refusal_is_heard_by_a_client_that_is_still_sending(admin: Client) -> None:
    block = bytes(1 << 20)
    for _ in range(3):
        answer = admin.http.put("/_lfs/" + "ab" * 32, content=(block for _ in range(48)))
        assert (answer.status_code, "not made here" in answer.text) == (403, True)


def test_headers_and_ranges(admin: Client, repo: str) -> None:
    data = bytes(range(200)) * 10
    admin.create(repo)
    admin.upload(repo, data)
    head = admin.commit(repo, lfs("w.bin", data), regular("t.txt", b"hello")).json()["commitOid"]
    digest = hashlib.sha256(data).hexdigest()
    url = f"/{repo}/resolve/main/w.bin"
    headers = admin.http.head(url).headers
    assert headers["x-repo-commit"] == head
    assert headers["etag"] == headers["x-linked-etag"] == f'"{digest}"'
    assert headers["content-length"] == headers["x-linked-size"] == "2000"
    small = admin.http.head(f"/{repo}/resolve/HEAD/t.txt").headers
    assert small["etag"] == '"b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0"'  # git hash-object
    assert "x-linked-etag" not in small
    for asked, status, piece in (
        ("bytes=0-0", 206, data[:1]),
        ("bytes=10-19", 206, data[10:20]),
        ("bytes=1990-", 206, data[1990:]),
        ("bytes=-7", 206, data[-7:]),
        ("bytes=0-99999", 206, data),
    ):
        answer = admin.http.get(url, headers={"Range": asked})
        assert (answer.status_code, answer.content) == (status, piece), asked
        assert answer.headers["content-range"].endswith("/2000")
    assert admin.http.get(url, headers={"Range": "bytes=2000-"}).status_code == 416
    assert admin.http.get(url, headers={"If-None-Match": f'"{digest}"'}).status_code == 304
    missing = admin.http.head(f"/{repo}/resolve/main/nope")
    assert missing.headers["x-error-code"] == "EntryNotFound"
    assert missing.headers["x-repo-commit"] == head


def test_raw_paths(admin: Client, repo: str) -> None:
    admin.create(repo)
    admin.commit(repo, regular("data/sft/a b+%.txt", b"x"), regular("data/ü.txt", b"y"))
    api = f"/api/models/{repo}"
    assert admin.http.post(f"{api}/branch/exp%2Fa%2Bb", json={}).status_code == 201
    admin.commit(repo, regular("only-here", b"z"), rev="exp%2Fa%2Bb")
    names = [i["path"] for i in admin.http.get(f"{api}/tree/exp%2Fa%2Bb/data%2Fsft").json()]
    assert names == ["data/sft/a b+%.txt"]
    assert admin.http.get(f"/{repo}/resolve/exp%2Fa%2Bb/only-here").text == "z"
    assert admin.http.get(f"/{repo}/resolve/main/only-here").status_code == 404
    assert admin.http.get(f"/{repo}/resolve/main/data/sft/a%20b+%25.txt").text == "x"
    assert admin.http.get(f"/{repo}/resolve/refs%2Fheads%2Fmain/data/%C3%BC.txt").text == "y"
    for path in ("/../../../secret", "%2e%2e/%2e%2e/secret", "..%2f..%2fsecret", "data//ü.txt"):
        assert admin.http.get(f"/{repo}/resolve/main/{path}").status_code == 404


def test_tree_pages_and_missing_folders(admin: Client, repo: str) -> None:
    admin.create(repo)
    admin.commit(repo, *(regular(f"d/{i}", b"x") for i in range(7)))
    api = f"/api/models/{repo}/tree/main"
    found: list[str] = []
    url: str | None = f"{api}?recursive=true&limit=3"
    pages = 0
    while url:
        answer = admin.http.get(url)
        found += [item["path"] for item in answer.json()]
        url = answer.links.get("next", {}).get("url")
        pages += 1
    assert (pages, found) == (3, [".gitattributes", "d", *(f"d/{i}" for i in range(7))])
    assert admin.http.get(api).json()[1]["type"] == "directory"
    for path, code in (("main/nope", "EntryNotFound"), ("nope", "RevisionNotFound")):
        answer = admin.http.get(f"/api/models/{repo}/tree/{path}")
        assert (answer.status_code, answer.headers["x-error-code"]) == (404, code)


def test_paths_info_is_a_form_and_knows_the_last_change(admin: Client, repo: str) -> None:
    admin.create(repo)
    first = admin.commit(repo, regular("a", b"1"), regular("b/c", b"1")).json()["commitOid"]
    second = admin.commit(repo, regular("a", b"2")).json()["commitOid"]
    form = {"paths": ["a", "b", "nope"], "expand": "true"}
    items = admin.http.post(f"/api/models/{repo}/paths-info/main", data=form).json()
    assert [(i["path"], i["lastCommit"]["id"]) for i in items] == [("a", second), ("b", first)]


def test_deletes(admin: Client, repo: str) -> None:
    admin.create(repo)
    admin.commit(repo, regular("a/b", b"1"), regular("a/c", b"1"), regular("ab", b"1"))
    gone = {"key": "deletedFile", "value": {"path": "nope"}}
    answer = admin.commit(repo, gone)
    assert (answer.status_code, answer.headers["x-error-code"]) == (404, "EntryNotFound")
    assert admin.commit(repo, {"key": "deletedFolder", "value": {"path": "a/"}}).status_code == 200
    names = [item["path"] for item in admin.http.get(f"/api/models/{repo}/tree/main").json()]
    assert names == [".gitattributes", "ab"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([regular("../x", b"")], "path not allowed"),
        ([regular("a", b""), regular("a/b", b"")], "a is a file, not a folder"),
        ([{"key": "file", "value": {"path": "a", "content": "%", "encoding": "base64"}}], "base64"),
        ([{"key": "symlink", "value": {}}], "not a commit line"),
        ([{"key": "file", "value": 3}], "must be an object"),
        ([regular("README.md", b"---\nlicense: MIT\n---\n")], "license"),
        ([regular("big", b"\0" * (10 << 20 | 1))], "must be sent as LFS"),
        (
            [regular("p", b"version https://git-lfs.github.com/spec/v1\noid sha256:"
                          + b"5" * 64 + b"\nsize 4\n")],
            "never uploaded",
        ),
    ],
)  # fmt: skip
def test_refused_commits_change_nothing(
    admin: Client, repo: str, lines: list[dict[str, Any]], message: str
) -> None:
    admin.create(repo)
    head = admin.head(repo)
    answer = admin.commit(repo, *lines)
    assert (answer.status_code, message in answer.json()["error"]) == (400, True), answer.text
    assert admin.head(repo) == head


def test_preupload(admin: Client, repo: str) -> None:
    admin.create(repo)
    admin.commit(repo, regular("same.txt", b"x"), regular(".gitignore", b"*.log\n"))
    files = [
        {"path": "same.txt", "size": 1, "sample": "eA=="},
        {"path": "w.safetensors", "size": 10, "sample": ""},
        {"path": "empty.safetensors", "size": 0, "sample": ""},
        {"path": "long.txt", "size": 11 << 20, "sample": "eA=="},
        {"path": "binary", "size": 3, "sample": "AAAA"},
        {"path": "x.log", "size": 3, "sample": "eA=="},
    ]
    answer = admin.http.post(f"/api/models/{repo}/preupload/main", json={"files": files}).json()
    assert [(f["uploadMode"], f["shouldIgnore"]) for f in answer["files"]] == [
        ("regular", False),
        ("lfs", False),
        ("regular", False),
        ("lfs", False),
        ("lfs", False),
        ("regular", True),
    ]
    assert answer["files"][0]["oid"] == "c1b0730e0133447badcfd47fd144e254807b06e1"


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
