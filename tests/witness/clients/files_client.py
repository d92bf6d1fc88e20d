"""huggingface_hub, as a user's script has it."""

from __future__ import annotations

import json
import sys
from typing import Any

from huggingface_hub import CommitOperationAdd, HfApi, snapshot_download


def upload(repo: str, folder: str) -> str:
    api = HfApi()
    api.create_repo(repo, exist_ok=True)
    return api.upload_folder(repo_id=repo, folder_path=folder).oid


def add(repo: str, path: str, at: str) -> str:
    operations = [CommitOperationAdd(at, path)]
    commit = HfApi().create_commit(repo, operations, commit_message=f"Add {at}")
    return commit.oid


def snapshot(repo: str, revision: str | None = None) -> str:
    return snapshot_download(repo, revision=revision)


def listing(repo: str, repo_type: str = "model") -> list[dict[str, Any]]:
    tree = HfApi().list_repo_tree(repo, recursive=True, repo_type=repo_type)
    return [
        {"path": item.path, "size": item.size, "sha256": item.lfs.sha256, "xet": item.xet_hash}
        for item in tree
        if getattr(item, "lfs", None)
    ]


def upload_and_say_why_not(repo: str, folder: str) -> dict[str, str]:
    api = HfApi()
    api.create_repo(repo, exist_ok=True)
    try:
        api.upload_folder(repo_id=repo, folder_path=folder)
    except Exception as error:
        return {"type": f"{type(error).__module__}.{type(error).__name__}", "text": str(error)}
    return {}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](**json.loads(sys.argv[2]))))
