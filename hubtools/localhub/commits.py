"""Landing a commit: read the NDJSON payload, check every object, then move the branch at once.

Objects are on disk, flushed, before the one SQLite transaction that names them; so a commit whose
answer was sent survives a crash, and one that did not land leaves the branch as it was.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass, field
from typing import Any

from hubtools.digests import git_blob_sha1
from hubtools.localhub.accounts import Caller
from hubtools.localhub.failures import (
    ApiFailure,
    bad_request,
    entry_not_found,
    revision_not_found,
)
from hubtools.localhub.gitobjects import TreeConflict
from hubtools.localhub.history import (
    HEADS,
    Blob,
    add_commit,
    files_of,
    find_ref,
    lfs_blob,
    remember_blob,
)
from hubtools.localhub.objects import ObjectError, ObjectStore
from hubtools.localhub.repos import writable
from hubtools.localhub.state import Hub, text_of
from hubtools.localhub.validation import check_folders, check_path, validate_card

_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\noid sha256:([0-9a-f]{64})\nsize (\d{1,15})\n"
)
REGULAR_LIMIT = 10 << 20
LINE_LIMIT = REGULAR_LIMIT * 4 // 3 + (64 << 10)


@dataclass
class Draft:
    """A commit payload as it comes in, line by line.

    Args:
        changes: in the order given: (path, blob to put there), or (path, None) to delete a file,
            or (path with a final slash, None) to delete a folder.
    """

    objects: ObjectStore
    message: str = ""
    parent: str | None = None
    changes: list[tuple[str, Blob | None]] = field(default_factory=list)

    def feed(self, line: bytes) -> None:
        """Take in one line: regular content is stored, LFS content is hashed again.

        Raises:
            ApiFailure: 400 for a line the protocol does not have, a missing or false object, a
                README whose metadata the Hub would refuse.
        """
        try:
            item = json.loads(line)
            key, value = item["key"], item["value"]
            handler = _LINES[key]
        except (ValueError, KeyError, TypeError) as error:
            raise bad_request(f"not a commit line: {line[:80]!r}") from error
        if not isinstance(value, dict):
            raise bad_request(f"the value of a {key} line must be an object")
        handler(self, value)

    def _header(self, value: dict[str, Any]) -> None:
        summary, description = text_of(value, "summary"), text_of(value, "description")
        if not summary.strip():
            raise bad_request("a commit needs a summary")
        text = f"{summary}\n\n{description}" if description else summary
        self.message = text.replace("\0", "").replace("\r\n", "\n")
        self.parent = text_of(value, "parentCommit") or None

    def _file(self, value: dict[str, Any]) -> None:
        path = check_path(value.get("path"))
        content = text_of(value, "content")
        if value.get("encoding", "utf-8") == "base64":
            try:
                data = base64.b64decode(content, validate=True)
            except binascii.Error as error:
                raise bad_request(f"{path}: content is not base64") from error
        else:
            data = content.encode("utf-8", "surrogatepass")
        if len(data) > REGULAR_LIMIT:
            raise bad_request(f"{path}: files over {REGULAR_LIMIT >> 20} MiB must be sent as LFS")
        pointer = _POINTER.fullmatch(data)
        if pointer:  # git would take it for the file it points to, and so does the Hub
            oid, size = pointer.group(1).decode(), int(pointer.group(2))
            self._lfs_file({"path": path, "oid": oid, "size": size})
            return
        if path == "README.md":
            verdict = validate_card(data.decode("utf-8", "replace"))
            if verdict.errors:
                raise ApiFailure(
                    400, f"README.md: {'; '.join(verdict.errors)}", body=verdict.to_json()
                )
        blob = Blob(git_blob_sha1(data), self.objects.put(data), len(data), False)
        self.changes.append((path, blob))

    def _lfs_file(self, value: dict[str, Any]) -> None:
        path = check_path(value.get("path"))
        oid = str(value.get("oid"))
        if value.get("algo", "sha256") != "sha256":
            raise bad_request(f"{path}: LFS objects are named by sha256")
        try:
            self.objects.check(oid)
        except ObjectError as error:
            raise bad_request(f"{path}: {error}") from error
        size = self.objects.size(oid)
        if value.get("size", size) != size:
            raise bad_request(f"{path}: declared {value['size']} bytes, object has {size}")
        self.changes.append((path, lfs_blob(oid, size)))

    def _deleted_file(self, value: dict[str, Any]) -> None:
        self.changes.append((check_path(value.get("path")), None))

    def _deleted_folder(self, value: dict[str, Any]) -> None:
        path = check_path(str(value.get("path")).rstrip("/"))
        self.changes.append((path + "/", None))


_LINES = {
    "header": Draft._header,
    "file": Draft._file,
    "lfsFile": Draft._lfs_file,
    "deletedFile": Draft._deleted_file,
    "deletedFolder": Draft._deleted_folder,
}


def apply(files: dict[str, str], draft: Draft, revision: str) -> dict[str, str]:
    """Path → blob id after the draft's changes; `files` is what there was.

    Raises:
        ApiFailure: 404 EntryNotFound when something to delete is not there.
    """
    after = dict(files)
    for path, blob in draft.changes:
        if blob is not None:
            after[path] = blob.oid
            continue
        gone = [p for p in after if p == path or (path.endswith("/") and p.startswith(path))]
        if not gone:
            raise entry_not_found(path, revision)
        for name in gone:
            del after[name]
    return after


def land(
    hub: Hub, caller: Caller, repo_key: tuple[str, str, str], revision: str, draft: Draft
) -> str:
    """Put the draft on top of a branch; returns the commit id.

    Args:
        hub: whose database and objects.
        caller: the author; must be allowed to write.
        repo_key: type, owner, name.
        revision: a branch, `main` or `refs/heads/main`.
        draft: the payload, fed to its end.

    Raises:
        ApiFailure: 412 when the draft names a parent that is not the branch's head (any more);
            401, 403, 404 as for any write; 400 for a tree that cannot be.
    """
    if not draft.message:
        raise bad_request("the commit has no header line")
    branch = revision.removeprefix(HEADS)
    with hub.database.writing() as connection:
        repo = writable(connection, caller, *repo_key)
        head = find_ref(connection, repo.id, HEADS + branch)
        if head is None:
            raise revision_not_found(revision)
        if draft.parent and not (len(draft.parent) >= 7 and head.startswith(draft.parent)):
            raise ApiFailure(
                412, f"{branch} is at {head}, not at {draft.parent}: a commit happened since"
            )
        for _, blob in draft.changes:
            if blob is not None:
                remember_blob(connection, blob)
        files = apply(files_of(connection, head), draft, branch)
        check_folders(files)
        try:
            return add_commit(
                connection, repo.id, branch, head, files, caller.name, hub.clock(), draft.message
            )
        except TreeConflict as error:
            raise bad_request(str(error)) from error
