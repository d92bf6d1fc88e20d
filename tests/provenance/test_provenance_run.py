"""Verifying files on disk: digests, packings, self-hosted servers, logs that change."""

import gzip
import json
from pathlib import Path

import pytest
import zstandard

from hubtools.digests import sha256_bytes
from hubtools.errors import EnvironmentFailure, UsageError
from hubtools.provenance import run
from hubtools.provenance.run import log_digests, rules_digest, verify_logs


def line(n: int, model: str = "model-x-20260101", role: str = "agent") -> bytes:
    answer = {
        "id": f"{role}-{n}",
        "object": "chat.completion",
        "created": 1780000000 + n,
        "model": model,
        "choices": [{"message": {"role": "assistant", "content": f"answer {n}"}}],
    }
    pair = {"role": role, "request": {"model": "model-x"}, "response": answer}
    return json.dumps(pair).encode() + b"\n"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs" / "deep"
    folder.mkdir(parents=True)
    half = [b"".join(map(line, part)) for part in (range(5), range(5, 9))]
    (folder / "a.jsonl").write_bytes(half[0] + b"\n")
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(half[1]))
    users = b"".join(line(n, role="user") for n in range(3))
    (folder.parent / "c.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(users))
    return tmp_path


def test_packed_files_are_verified_together(logs: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    verdict = verify_logs(
        ["logs/**/*.jsonl*"],
        logs,
        "Model X",
        progress=lambda label, done, total, unit: seen.append((done, total)),
    ).to_json()
    assert verdict["verdict"] == "RESOLVED"
    assert {name: (role["k"], role["n"]) for name, role in verdict["roles"].items()} == {
        "agent": (9, 9),
        "user": (3, 3),
    }
    assert [(f["path"], f["lines"], f["records"]) for f in verdict["files"]] == [
        ("logs/c.jsonl.zst", 3, 3),
        ("logs/deep/a.jsonl", 5, 5),
        ("logs/deep/b.jsonl.gz", 4, 4),
    ]
    for file in verdict["files"]:
        assert file["sha256"] == sha256_bytes((logs / file["path"]).read_bytes())
    assert log_digests(["logs"], logs) == {f["path"]: f["sha256"] for f in verdict["files"]}
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert json.loads(json.dumps(verdict)) == verdict


def test_the_same_logs_give_the_same_bytes(logs: Path) -> None:
    one, other = (json.dumps(verify_logs(["logs"], logs, "Model X").to_json()) for _ in range(2))
    assert one == other


def test_an_empty_file_is_listed(logs: Path) -> None:
    (logs / "logs" / "z.jsonl").touch()
    verdict = verify_logs(["logs"], logs, "Model X")
    assert verdict.verdict == "RESOLVED"
    assert (verdict.files[-1]["path"], verdict.files[-1]["lines"]) == ("logs/z.jsonl", 0)


def test_a_log_that_is_still_written_is_refused(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = run.read_log

    def appended(path: Path, name: str):
        yield from real(path, name)
        with path.open("ab") as stream:
            stream.write(line(77))

    monkeypatch.setattr(run, "read_log", appended)
    with pytest.raises(EnvironmentFailure) as error:
        verify_logs(["logs/deep/a.jsonl"], logs, "")
    assert error.value.id == "HT206"


def test_a_saved_model_list_is_read(logs: Path) -> None:
    served = logs / "models.json"
    served.write_text('{"object": "list", "data": [{"id": "model-x-20260101"}]}')
    verdict = verify_logs(
        ["logs"], logs, "Model X", hosting="self", served=served, weights="1" * 64
    ).to_json()
    assert verdict["verdict"] == "NAME-ONLY"
    assert verdict["hosting"]["served"] == ["model-x-20260101"]
    assert verdict["hosting"]["served_sha256"] == sha256_bytes(served.read_bytes())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"data": [{}]}', '{"data": 3}', "[" * 9999])
def test_another_file_is_no_model_list(logs: Path, text: str) -> None:
    served = logs / "models.json"
    served.write_text(text)
    with pytest.raises(UsageError) as error:
        verify_logs(["logs"], logs, "", hosting="self", served=served)
    assert error.value.id == "HT204"
    assert error.value.message.endswith("; nothing was verified")
    assert error.value.detail == ('expected {"data": [{"id": …}, …]}',)
    assert str(served) in error.value.where


def test_a_projects_alias_table_is_used(logs: Path) -> None:
    table = logs / "aliases.toml"
    table.write_text(
        'schema = 1\n[[alias]]\nname = "house-model"\ntarget = "model-x-20260101"\n'
        'source = "https://example.com"\nretrieved = 2026-01-01\n'
    )
    assert verify_logs(["logs"], logs, "House Model").verdict == "CONTRADICTS-CLAIM"
    assert verify_logs(["logs"], logs, "House Model", aliases=table).verdict == "RESOLVED"


def test_an_unreadable_log_is_named(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, path = Path.open, logs / "logs" / "deep" / "a.jsonl"

    def refused(self: Path, *args, **options):
        if self == path:
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, *args, **options)

    monkeypatch.setattr(Path, "open", refused)
    for verifying in (lambda: log_digests(["logs"], logs), lambda: verify_logs(["logs"], logs, "")):
        with pytest.raises(EnvironmentFailure) as error:
            verifying()
        assert (error.value.id, error.value.where) == ("HT203", str(path))
        assert error.value.message == (
            "cannot read the log: Permission denied; nothing was verified"
        )
        assert error.value.detail == ()


def test_the_rules_have_a_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = rules_digest()
    assert before == rules_digest()
    monkeypatch.setattr(run, "RULES_VERSION", 99)
    assert rules_digest() != before
