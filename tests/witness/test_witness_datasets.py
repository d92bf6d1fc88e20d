"""`datasets`: push two configs, load and stream them on another machine."""

from __future__ import annotations

from witness_machine import Machine


def test_datasets_load_and_stream(machine: Machine, other: Machine) -> None:
    repo = f"lab/data-{machine.kind}"
    sent = machine.run("datasets_client.py", "push", repo=repo)
    listing = machine.run("files_client.py", "listing", repo=repo, repo_type="dataset")
    parquet = [item for item in listing if item["path"].endswith(".parquet")]
    assert len(parquet) == 4
    got = other.run("datasets_client.py", "load", repo=repo, files=[i["path"] for i in parquet])
    assert got == {
        **sent,
        "streamed": sent["train"],
        "configs": ["default", "sft"],
        "files": [item["sha256"] for item in parquet],
    }
