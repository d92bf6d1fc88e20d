"""Serving files: `…/resolve/{rev}/{path}`, HEAD and GET, with ranges and the Hub's headers."""

from __future__ import annotations

from urllib.parse import quote

from hubtools.localhub.failures import ApiFailure
from hubtools.localhub.history import file_at, resolve_revision
from hubtools.localhub.repos import check_gate, readable
from hubtools.localhub.state import Answer, Call

_TEXT = (".json", ".jsonl", ".md", ".txt", ".yaml", ".yml", ".toml", ".csv", ".py", ".jinja")


def resolve(call: Call) -> Answer:
    """One file of one revision.

    The ETag is the sha256 of an LFS file and git's id of a regular one. A file that came in through
    xet storage also says so, so that the client may fetch it from there.
    """
    hub, path, revision = call.hub, call.args["path"], call.args["rev"]
    with hub.database.reading() as connection:
        repo = readable(connection, call.caller, *call.repo_key)
        check_gate(call.caller, repo)
        commit = resolve_revision(connection, repo.id, revision)
        try:
            blob = file_at(connection, commit, path, revision)
        except ApiFailure as failure:
            failure.headers["X-Repo-Commit"] = commit  # clients remember absence by commit
            raise
    etag = f'"{blob.sha256 if blob.lfs else blob.oid}"'
    headers = {
        "X-Repo-Commit": commit,
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": f"inline; filename*=UTF-8''{quote(path.rsplit('/', 1)[-1])}",
    }
    if blob.lfs:
        headers |= {"X-Linked-Etag": etag, "X-Linked-Size": str(blob.size)}
        xet_hash = hub.xet_hash(blob.sha256)
        if xet_hash is not None:
            route = f"{hub.url}{repo.api}/xet-read-token/{commit}"
            headers |= {"X-Xet-Hash": xet_hash, "Link": f'<{route}>; rel="xet-auth"'}
    if etag in [tag.strip() for tag in call.headers.get("if-none-match", "").split(",")]:
        return Answer(status=304, text="", headers=headers)
    plain = path.lower().endswith(_TEXT) or "." not in path.rsplit("/", 1)[-1]
    return Answer(
        file=hub.objects.path(blob.sha256),
        headers=headers,
        media_type="text/plain; charset=utf-8" if plain else "application/octet-stream",
    )
