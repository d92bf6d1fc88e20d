"""datasets, as a user's script has it."""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, get_dataset_config_names, load_dataset
from huggingface_hub import hf_hub_download


def make(name: str, rows: int) -> Dataset:
    numbers = range(rows)
    return Dataset.from_dict(
        {
            "id": list(numbers),
            "text": [f"{name} {n} {'word ' * (n % 50)}" for n in numbers],
            "score": [n / 7 for n in numbers],
        }
    )


def fingerprint(rows: Any) -> str:
    digest = sha256()
    for row in rows:
        digest.update(json.dumps(row, sort_keys=True).encode())
    return digest.hexdigest()


def push(repo: str) -> dict[str, str]:
    """Two configs, one of them with two splits and several shards."""
    default = DatasetDict({"train": make(f"{repo} train", 5000), "test": make(f"{repo} test", 100)})
    default.push_to_hub(repo, num_shards={"train": 2, "test": 1})
    sft = make(f"{repo} sft", 300)
    sft.push_to_hub(repo, "sft")
    return {
        "train": fingerprint(default["train"]),
        "test": fingerprint(default["test"]),
        "sft": fingerprint(sft),
    }


def load(repo: str, files: list[str]) -> dict[str, Any]:
    """Load everything back, whole and streaming; digest the given files as downloaded."""
    default = load_dataset(repo, "default")
    streamed = load_dataset(repo, "default", split="train", streaming=True)
    paths = [hf_hub_download(repo, name, repo_type="dataset") for name in files]
    return {
        "configs": sorted(get_dataset_config_names(repo)),
        "train": fingerprint(default["train"]),
        "test": fingerprint(default["test"]),
        "sft": fingerprint(load_dataset(repo, "sft", split="train")),
        "streamed": fingerprint(streamed),
        "files": [sha256(Path(path).read_bytes()).hexdigest() for path in paths],
    }


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](**json.loads(sys.argv[2]))))
