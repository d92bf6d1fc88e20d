"""A manifest for one checkpoint, from what its directory says: the release that needs no file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubtools.checkpoint.adapter_kinds import classify
from hubtools.checkpoint.base import resolve_base
from hubtools.checkpoint.kinds import named_step
from hubtools.digests import sha256_bytes
from hubtools.errors import CheckError, UsageError
from hubtools.family.manifest import FILE
from hubtools.files import write_atomic
from hubtools.release.context import lacks_config
from hubtools.release.look import Run, look_at
from hubtools.release.refuse import as_release

_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, slots=True)
class Inferred:
    """A manifest's text and, for each value that nobody typed, where it came from."""

    text: str
    origins: tuple[str, ...]


def infer_manifest(
    repo: str,
    source: Path,
    *,
    base: str = "",
    base_path: Path | None = None,
    kind: str = "",
    license: str = "",
    suites: Sequence[str] = (),
    visibility: str = "public",
    dtype: str = "",
    lora_alpha: float | None = None,
) -> Inferred:
    """Describe `source` as a family of one.

    Args:
        repo: `owner/name` it will be released as.
        source: the checkpoint's directory; headers and small JSON files of it are read.
        base: `owner/name[@revision]`; empty to take what the directory names.
        base_path: local copy of the base.
        kind: `full`, `adapter` or `merged`; empty for what the directory is.
        license: licence id; empty leaves it unstated (the card says so).
        suites: evaluation suites to run.
        visibility: of the new repo.
        dtype: of weights that are merged or taken in from a trainer's shards.
        lora_alpha: of a sharded LoRA run whose trainer did not save it.

    Raises:
        UsageError: HT009 when the repo id, the base or its revision cannot be known, or an option
            has nothing to act on.
        CheckError: HT1xx when the directory is no checkpoint.
    """
    if not _REPO.fullmatch(repo):
        raise UsageError("HT009", f"not a repo id: {repo!r}", next="owner/name, for example me/m1")
    origins: list[str] = []
    config = base_path
    if config is None and re.fullmatch(r".+@[0-9a-f]{40}", base) and lacks_config(source):
        config = resolve_base(base, weights=False)
        origins.append(f"config.json (of {base})")
    try:
        run = look_at(source, base=config, dtype=dtype, lora_alpha=lora_alpha)
    except CheckError as error:
        error.next = as_release(error.next, repo, base)
        raise
    if not kind:
        kind = run.kind
        origins.append(f'kind = "{kind}" ({run.kind_from})')
    base_repo, revision = _base(run, source, base, origins)
    step = run.step
    name = f"s{step}" if step is not None else "final"
    if step is not None:
        origins.append(f"step {name} ({run.step_from})")
    owner, repo_name = repo.split("/")
    family: dict[str, Any] = {
        "id": repo_name,
        "owner": owner,
        "name": repo_name,
        "kind": kind,
        "base": {"repo": base_repo},
        "visibility": visibility,
    }
    if revision:
        family["base"]["revision"] = revision
    if base_path is not None:
        family["base"]["path"] = str(base_path.resolve())
    family |= {"license": license} if license else {}
    family |= {"suites": list(suites)} if suites else {}
    document = {
        "schema": 1,
        "family": family,
        "arms": {"main": {"steps": [name]}},
        "inputs": {"checkpoint": str(source.resolve())},
        "provenance": {"status": "none", "reason": "none were given to this release"},
    }
    document |= _options(run, kind, dtype, lora_alpha, origins)
    called = named_step(source.resolve().name)
    if step is not None and called in (None, step):  # else nobody has said which is right: HT528
        document["steps"] = {name: {"optimizer_step": step}}
    import tomlkit

    return Inferred(tomlkit.dumps(document), tuple(origins))


def keep_manifest(inferred: Inferred, repo: str, source: Path) -> Path:
    """Write the manifest beside the run, as `<run>.<repo name>.hubtools/family.toml`.

    One that an earlier call wrote is replaced; one that was edited since is kept.

    Raises:
        UsageError: HT009 when it was edited by hand and says something else, key by key.
        EnvironmentFailure: HT901 when the folder cannot be written.
    """
    run = source.resolve()
    file = run.with_name(f"{run.name}.{repo.split('/')[1]}.hubtools") / FILE
    note = file.parent / ".hubtools" / "inferred.sha256"
    old = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else inferred.text
    written = note.read_text() if note.is_file() else ""
    if old != inferred.text and sha256_bytes(old.encode()) not in written.split():
        raise UsageError(
            "HT009",
            "the manifest kept from an earlier release of this run was edited and says otherwise",
            where=str(file),
            detail=[*_differences(old, inferred.text), "It is kept as it is."],
            next=f"hubtools release {file.parent} (uses it), or delete it and run this again",
        )
    # The note first, with both: killed in between, neither text looks edited.
    known = {sha256_bytes(text.encode()) for text in (old, inferred.text)}
    write_atomic(note, "\n".join(sorted(known)).encode())
    write_atomic(file, inferred.text.encode())
    return file


def _differences(old: str, new: str) -> list[str]:
    """`key: there X, now Y` for every key of two manifests that differs."""

    def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in table.items():
            inner = flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {}
            found |= inner or {f"{prefix}{key}": value}
        return found

    try:
        before, now = flat(tomllib.loads(old)), flat(tomllib.loads(new))
    except ValueError:
        return ["it is not TOML any more"]
    keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    return [f"{key}: there {before.get(key)!r}, now {now.get(key)!r}" for key in keys]


def _options(
    run: Run, kind: str, dtype: str, lora_alpha: float | None, origins: list[str]
) -> dict[str, Any]:
    """The tables that say how the weights are made."""
    ingest = {"dtype": dtype} if dtype and run.ingested else {}
    merge = {"dtype": dtype} if dtype and kind == "merged" and not run.ingested else {}
    alpha = {"lora_alpha": lora_alpha} if lora_alpha is not None and run.ingested else {}
    for given, name, read in (
        (dtype, "--dtype", ingest or merge),
        (lora_alpha is not None, "--lora-alpha", alpha),
    ):
        if given and not read:
            raise UsageError(
                "HT009",
                f"{name} has nothing to act on: this {run.kind} checkpoint is published as it is",
                next=f"run the same command without {name}",
            )
    if kind == "merged" and run.adapter is not None:
        way = classify(run.adapter)
        if way.way == "peft":
            merge["engine"] = "peft"
            origins.append(f'merge engine = "peft" (adapter_config.json: {way.what})')
    tables = {"ingest": {**ingest, **alpha}, "merge": merge}
    return {table: values for table, values in tables.items() if values}


def _base(run: Run, source: Path, base: str, origins: list[str]) -> tuple[str, str | None]:
    if base and Path(base).expanduser().is_dir():
        raise UsageError(
            "HT009",
            "--base takes the base's Hub id, which the card names; this is a directory",
            where=base,
            next=f"--base owner/name@<40 hex revision> --base-path {base}",
        )
    named, _, revision = base.partition("@")
    config = run.adapter
    if not named and _REPO.fullmatch(run.base_hint) and not (source / run.base_hint).exists():
        named = run.base_hint
        origins.append(f"base {named} ({'adapter_config.json' if config else 'config.json'})")
    if not _REPO.fullmatch(named):
        hint = f" (the directory names {run.base_hint!r})" if run.base_hint else ""
        raise UsageError(
            "HT009",
            f"which base model was this trained from{hint}?",
            where=str(source),
            next="--base owner/name@<40 hex revision>",
        )
    if not revision and config is not None and config.revision:
        revision = config.revision
        origins.append(f"base revision {revision[:7]} (adapter_config.json)")
    if not re.fullmatch(r"[0-9a-f]{40}", revision):
        raise UsageError(
            "HT009",
            f"which revision of {named}? A base without a commit id pins nothing",
            where=str(source),
            detail=(f"given: {revision or 'none'}",),
            next=f"--base {named}@<40 hex> (the commit id on the model's Files page)",
        )
    return named, revision
