"""Where a base model is: a directory, or a Hub repo at a pinned commit."""

from __future__ import annotations

import os
import re
from pathlib import Path

from hubtools.checkpoint.shards import read_weights
from hubtools.errors import (
    AuthError,
    CheckError,
    EnvironmentFailure,
    HubtoolsError,
    UsageError,
)

_REPO = re.compile(r"[\w.-]+/[\w.-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PATIENCE = 10.0  # seconds
_PATTERNS = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken", "*.py"]
_LEGAL = ["LICENSE*", "LICENCE*", "NOTICE*", "USE_POLICY*", "COPYING*"]


def local_folder(name: str) -> Path | None:
    """The directory that `name` is on this machine; None for any other text, however odd."""
    path = os.path.expanduser(name)  # unlike pathlib's: an unknown ~user is no error
    return Path(path) if os.path.isdir(path) else None


def resolve_base(ref: str, revision: str | None = None, *, weights: bool = True) -> Path:
    """The directory of a base model.

    Args:
        ref: a directory, `owner/name`, or `owner/name@<40 hex digits>`.
        revision: commit of a Hub repo; needed there, because a branch moves.
        weights: of a Hub repo, the weights too; else configuration, tokenizer and papers.

    Returns:
        the directory itself, or a snapshot in the Hugging Face cache (downloaded when needed).

    Raises:
        UsageError: HT121 neither a directory nor a pinned repo.
        AuthError: HT125 the repo needs a token, or another one.
        EnvironmentFailure: HT122 the Hub has no such repo or commit, or cannot be reached.
    """
    folder = local_folder(ref)
    if folder is not None:
        return folder
    repo, _, pinned = ref.partition("@")
    commit = revision or pinned
    if not _REPO.fullmatch(repo):
        raise UsageError(
            "HT121",
            f"no such base: {ref} is neither a directory nor a Hub repo",
            next="name a directory, or owner/name@<commit>",
        )
    if not _COMMIT.fullmatch(commit):
        what = f"revision {commit!r} is not a commit" if commit else "no revision given"
        raise UsageError(
            "HT121",
            f"the base {repo} must be pinned to a commit: {what}",
            detail=("A branch moves, and the merge would silently be another one.",),
            next=f"hf models info {repo} --expand sha  # then use {repo}@<that sha>",
        )
    return _snapshot(repo, commit, _PATTERNS if weights else _PATTERNS[1:])


def cached_base(repo: str, commit: str) -> Path | None:
    """The snapshot of a pinned base in the Hugging Face cache; None when it is not there whole.

    Nothing is asked of the Hub.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    patterns = [*_PATTERNS, *_LEGAL]
    try:
        folder = snapshot_download(
            repo, revision=commit, allow_patterns=patterns, local_files_only=True
        )
        read_weights(Path(folder))
    except (LocalEntryNotFoundError, OSError, ValueError, CheckError):
        return None
    return Path(folder)


def _snapshot(repo: str, commit: str, patterns: list[str]) -> Path:
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    place = f"{repo}@{commit}"
    silence = _silence()
    try:
        folder = snapshot_download(
            repo,
            revision=commit,
            allow_patterns=[*patterns, *_LEGAL],
            local_files_only=bool(silence),
        )
        return Path(folder)
    except GatedRepoError as error:
        raise AuthError(
            "HT125",
            "the base needs a licence to be accepted, with the token of that account",
            where=place,
            next="accept it on the model's page, then: hf auth login",
        ) from error
    except RevisionNotFoundError as error:
        raise _unreachable(place, "the repo has no such commit", "check the 40 digits") from error
    except RepositoryNotFoundError as error:
        why = "no such repo, or a private one that this token cannot see"
        raise _unreachable(place, why, "check the name, or: hf auth login") from error
    except LocalEntryNotFoundError as error:
        why = f"not in the cache, and {silence or f'the Hub at {constants.ENDPOINT} failed'}"
        fix = (
            "check the network and HF_ENDPOINT, or give a local copy (merge: --base DIR; release:"
            " --base-path DIR, or path in the manifest's base)"
        )
        raise _unreachable(place, why, fix) from error
    except (HfHubHTTPError, OSError) as error:
        why = f"download failed: {type(error).__name__}"
        raise _unreachable(place, why, "run the same command again (it resumes)") from error


def _silence() -> str:
    """Why the Hub cannot be asked; empty when it answers.

    One quick attempt: the client itself tries for half a minute before it gives up.
    """
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        get_session().head(constants.ENDPOINT, timeout=_PATIENCE)
    except Exception as error:
        if "TransportError" not in {kind.__name__ for kind in type(error).__mro__}:
            raise
        return f"no Hub answers at {constants.ENDPOINT}"
    return ""


def _unreachable(place: str, why: str, fix: str) -> HubtoolsError:
    return EnvironmentFailure("HT122", f"cannot fetch the base: {why}", where=place, next=fix)
