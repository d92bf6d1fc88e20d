"""Commits, LFS, ranges, trees: what is stored is what comes back."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from localhub_client import Client, lfs, regular

from hubtools.localhub.objects import ObjectStore
from hubtools.localhub.server import LocalHub


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
