"""`transformers` and `peft`: push, and load by name on another machine."""

from __future__ import annotations

from pathlib import Path

from witness_machine import Machine, digests


def test_models_and_adapters_load_by_name(tmp_path: Path, machine: Machine, other: Machine) -> None:
    names = {"repo": f"lab/tiny-{machine.kind}", "adapter": f"lab/tiny-lora-{machine.kind}"}
    sent = machine.run("models_client.py", "push", **names, folder=str(tmp_path / "sent"))
    got = other.run("models_client.py", "load", **names)
    assert got == {**sent, "by_adapter": sent["tuned"], "layers": 3}
    assert sent["plain"] != sent["tuned"]
    model = digests(tmp_path / "sent" / "model")
    assert len([name for name in model if name.endswith(".safetensors")]) >= 3
    for repo, folder in ((names["repo"], "model"), (names["adapter"], "adapter")):
        remote = digests(Path(other.run("files_client.py", "snapshot", repo=repo)))
        kept = digests(tmp_path / "sent" / folder)
        assert {name: remote[name] for name in kept if name != "README.md"} == {
            name: digest for name, digest in kept.items() if name != "README.md"
        }
