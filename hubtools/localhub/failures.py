"""Failures that the embedded Hub answers over HTTP, with the headers the client reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ApiFailure(Exception):
    """An answer other than success.

    Args:
        status: HTTP status code.
        message: one line for the user; also the `X-Error-Message` header.
        code: `X-Error-Code`: RepoNotFound, RevisionNotFound, EntryNotFound, GatedRepo or empty.
        body: further JSON fields, for example the `url` of the repo that is there already.
        headers: further headers.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "",
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.body = dict(body or {})
        self.headers = dict(headers or {})


def bad_request(message: str) -> ApiFailure:
    """400: the request itself is wrong."""
    return ApiFailure(400, message)


def entry_not_found(path: str, revision: str) -> ApiFailure:
    """404 with the code that clients take for "no such file"."""
    return ApiFailure(404, f"{path} does not exist on {revision}", code="EntryNotFound")


def revision_not_found(revision: str) -> ApiFailure:
    """404 with the code that clients take for "no such branch, tag or commit"."""
    return ApiFailure(404, f"no such revision: {revision}", code="RevisionNotFound")
