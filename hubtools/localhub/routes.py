"""The table of endpoints, matched on the raw path.

Clients quote a revision or a folder whole (`refs%2Fpr%2F1`, `data%2Fsft`), so a path is split at
its slashes first and decoded afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import unquote

from hubtools.localhub import (
    collections,
    describe,
    lfs,
    pages,
    publishing,
    refs,
    resolve,
    trees,
)
from hubtools.localhub.state import Answer, Call

Endpoint: TypeAlias = "Callable[[Call], Answer] | Callable[[Call], Awaitable[Answer]]"

_PARTS = {
    "{types}": "(?P<types>models|datasets|spaces)",
    "{prefix}": "(?:(?P<types>datasets|spaces)/)?",
    "{mode}": "(?P<mode>read|write)",
    "{offset}": "(?P<offset>[0-9]{1,15})",
    "/{path*}": "(?:/(?P<path>.*))?",
}


@dataclass(frozen=True, slots=True)
class Route:
    """One endpoint: its method, its path template, and what it may need.

    A template's `{name}` is one raw segment, `/{path*}` the rest, `{prefix}` is empty for models.
    """

    method: str
    template: str
    endpoint: Endpoint

    def expression(self) -> re.Pattern[str]:
        """The template as a pattern for raw paths."""
        parts = re.split(r"(/\{path\*\}|\{\w+\})", self.template)
        text = "".join(
            _PARTS.get(part, f"(?P<{part[1:-1]}>[^/]+)") if "{" in part else re.escape(part)
            for part in parts
        )
        return re.compile(text)


_REPO = "/api/{types}/{owner}/{name}"
_COLLECTION = "/api/collections/{owner}/{slug}"

ROUTES = (
    Route("GET", "/api/whoami-v2", publishing.whoami),
    Route("POST", "/api/validate-yaml", publishing.validate_yaml),
    Route("POST", "/api/repos/create", publishing.create_repo),
    Route("DELETE", "/api/repos/delete", publishing.delete_repo),
    Route("POST", "/api/repos/move", publishing.move_repo),
    Route("GET", "/api/collections", collections.list_all),
    Route("POST", "/api/collections", collections.create),
    Route("GET", _COLLECTION, collections.show),
    Route("PATCH", _COLLECTION, collections.update),
    Route("DELETE", _COLLECTION, collections.delete),
    Route("POST", _COLLECTION + "/items", collections.add_item),
    Route("PATCH", _COLLECTION + "/items/{item}", collections.update_item),
    Route("DELETE", _COLLECTION + "/items/{item}", collections.delete_item),
    Route("GET", "/api/{types}", describe.list_repos),
    Route("GET", _REPO, describe.repo_info),
    Route("GET", _REPO + "/revision/{rev}", describe.repo_info),
    Route("GET", _REPO + "/tree/{rev}/{path*}", trees.list_tree),
    Route("POST", _REPO + "/paths-info/{rev}", trees.paths_info),
    Route("GET", _REPO + "/commits/{rev}", trees.list_commits),
    Route("GET", _REPO + "/refs", refs.list_refs),
    Route("POST", _REPO + "/branch/{branch}", refs.create_branch),
    Route("DELETE", _REPO + "/branch/{branch}", refs.delete_branch),
    Route("POST", _REPO + "/tag/{rev}", refs.create_tag),
    Route("DELETE", _REPO + "/tag/{rev}", refs.delete_tag),
    Route("POST", _REPO + "/super-squash/{branch}", refs.super_squash),
    Route("PUT", _REPO + "/settings", publishing.settings),
    Route("GET", _REPO + "/auth-check", publishing.auth_check),
    Route("GET", _REPO + "/auth-check/write", publishing.auth_check_write),
    Route("POST", _REPO + "/preupload/{rev}", publishing.preupload),
    Route("GET", _REPO + "/xet-{mode}-token/{rev}", publishing.xet_token),
    Route("POST", _REPO + "/commit/{rev}", publishing.commit),
    Route("POST", "/{prefix}{owner}/{name}.git/info/lfs/objects/batch", lfs.batch),
    Route("PUT", "/_lfs/{oid}", lfs.put_whole),
    Route("PUT", "/_lfs/{oid}/part/{offset}", lfs.put_part),
    Route("POST", "/_lfs/{oid}", lfs.complete),
    Route("POST", "/_lfs/{oid}/verify", lfs.verify),
    Route("GET", "/{prefix}{owner}/{name}/resolve/{rev}/{path*}", resolve.resolve),
    Route("GET", "/", pages.index),
    Route("GET", "/{prefix}{owner}/{name}", pages.repo_page),
)
_TABLE = [(route, route.expression()) for route in ROUTES]


def find_route(method: str, raw_path: str) -> tuple[Route | None, dict[str, str]]:
    """The route for a request and its decoded path parts; HEAD is asked as GET.

    Returns:
        `(None, {})` when no path matches, `(None, {"allow": …})` when only the method does not.
    """
    wanted = "GET" if method == "HEAD" else method
    path = raw_path if raw_path == "/" else raw_path.rstrip("/")
    allowed = []
    for route, expression in _TABLE:
        found = expression.fullmatch(path)
        if found and route.method == wanted:
            args = {name: unquote(text or "") for name, text in found.groupdict().items()}
            return route, args
        if found:
            allowed.append(route.method)
    return None, {"allow": ", ".join(allowed)} if allowed else {}
