"""What is in this directory? Headers, small text files and names; no tensor is read, nothing run.

`inspect_checkpoint` is for what can be published and refuses the rest; this describes anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hubtools.checkpoint import adapter as adapters
from hubtools.checkpoint.adapter import AdapterConfig, read_adapter_config
from hubtools.checkpoint.carry import belongs
from hubtools.checkpoint.contents import custom_code, foreign_files, list_files
from hubtools.checkpoint.describe import Description
from hubtools.checkpoint.disclosed import Scan, find_leaks
from hubtools.checkpoint.evidence import Found, decide, inside, named_base, pickled_weights
from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.kinds import TrainerShards, trainer_shards
from hubtools.checkpoint.pickled_tensors import file_tensors, shard_tensors
from hubtools.checkpoint.quantised import parameters, quantisation
from hubtools.checkpoint.steps import step_findings, steps_of
from hubtools.checkpoint.stored import Stored, as_finding, read_stored
from hubtools.checkpoint.trainer import read_trainer_state
from hubtools.errors import CheckError, Finding

_CONFIGS = (
    "config.json", "generation_config.json", "tokenizer_config.json", "processor_config.json",
    "preprocessor_config.json",
)  # fmt: skip
_VOCABULARIES = (
    "tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model",
    "sentencepiece.bpe.model", "tekken.json",
)  # fmt: skip


def look(path: Path, *, scan: Scan | None = None, public: bool = False) -> Description:
    """Describe a directory, or one safetensors or GGUF file.

    What is damaged becomes a finding of level `error`; the rest is described all the same.

    Args:
        path: what to look at.
        scan: finds secrets in texts; left out, none are looked for.
        public: whether every file of it is published already, as in a repo on the Hub.

    Raises:
        CheckError: HT101 there is nothing at `path`.
    """
    if not path.exists():
        raise CheckError(
            "HT101", "there is nothing here", where=str(path), next=f"ls {path.absolute().parent}"
        )
    root = path if path.is_dir() else path.parent
    files, whole = list_files(root) if path.is_dir() else ({path.name: path.stat().st_size}, True)
    stored = read_stored(root, files)
    findings = list(stored.problems)
    shards = trainer_shards(root) if path.is_dir() else None
    configs = _configs(root, files, findings)
    config_folder = _config_folder(root, files, shards)
    config = configs.get("config.json") or _other_config(config_folder, root)
    adapter = _adapter(root, files, findings)
    trainer = _trainer(root, files, findings)
    if not public:  # of a repo, pickles are not fetched
        findings += _describe_pickles(root, files, stored, shards)
    how = None if adapter else quantisation(config, stored.entries)
    below = inside(root, shards) if path.is_dir() else ()
    found = Found(root, files, stored, shards, adapter, how, below)
    kind, evidence = decide(found)
    base, revision, source = named_base(root, adapter, config, files)
    steps = steps_of(root, trainer) if path.is_dir() else ()
    code = custom_code(files, configs)
    leaks, unread = find_leaks(root, files, kind, stored, shards, scan=scan, public=public)
    findings += [*unread, *step_findings(steps, root), *_code_findings(code, root)]
    findings += [*_adapter_findings(root, adapter, shards), *_shard_findings(shards)]
    if not whole:
        message = f"more than {len(files)} files: the rest was not looked at"
        findings.append(Finding("HT182", "info", message, where=str(root)))
    architectures = config.get("architectures")
    return Description(
        path=root,
        kind=kind,
        evidence=evidence,
        architecture=str(architectures[0])
        if isinstance(architectures, list) and architectures
        else next((info.architecture for info in stored.ggufs), ""),
        model_type=str(config.get("model_type") or ""),
        base=base,
        base_revision=revision,
        base_source=source,
        adapter=adapter,
        quantisation=how,
        ggufs=tuple(stored.ggufs),
        shards=shards,
        steps=steps,
        weights=_weights(found),
        missing=stored.missing,
        dtypes=stored.dtypes(),
        parameters=_parameters(found, config),
        files=len(files),
        bytes=sum(files.values()),
        foreign=foreign_files(files, kind, _own(found, config_folder), [one.name for one in below]),
        code=tuple(code),
        tokenizer=tuple(name for name in _VOCABULARIES if (config_folder / name).is_file()),
        chat_template=_has_template(config_folder),
        generation_config=(config_folder / "generation_config.json").is_file(),
        inside=below,
        leaks=tuple(leaks),
        findings=tuple(sorted(findings, key=lambda finding: _LEVELS.index(finding.level))),
    )


_LEVELS = ("error", "warning", "info")


def _configs(
    root: Path, files: Mapping[str, int], findings: list[Finding]
) -> dict[str, dict[str, Any]]:
    configs = {}
    for name in _CONFIGS:
        if name in files:
            try:
                configs[name] = read_object(root / name)
            except CheckError as error:
                findings.append(as_finding(error))
    return configs


def _config_folder(root: Path, files: Mapping[str, int], shards: TrainerShards | None) -> Path:
    """Where configuration and tokenizer lie: beside the weights, or where verl puts them."""
    if shards is not None and "config.json" not in files:
        for folder in (shards.folder / "huggingface", shards.folder):
            if (folder / "config.json").is_file():
                return folder
    return root


def _other_config(folder: Path, root: Path) -> dict[str, Any]:
    if folder == root:
        return {}
    try:
        return read_object(folder / "config.json")
    except CheckError:
        return {}  # whoever uses it says so


def _adapter(root: Path, files: Mapping[str, int], findings: list[Finding]) -> AdapterConfig | None:
    if adapters.CONFIG not in files:
        return None
    try:
        config = read_adapter_config(root)
    except CheckError as error:
        findings.append(as_finding(error))
        fields: dict[str, Any] = {}
        return AdapterConfig(root / adapters.CONFIG, "", 0, 0.0, False, (), "", "", fields)
    if adapters.WEIGHTS not in files and "adapter_model.bin" not in files:
        message = f"an adapter without weights: {adapters.WEIGHTS} is missing"
        fix = "copy it from the training run"
        findings.append(Finding("HT101", "error", message, where=str(root), next=fix))
    return config


def _trainer(root: Path, files: Mapping[str, int], findings: list[Finding]) -> Any:
    if "trainer_state.json" not in files:
        return None
    try:
        return read_trainer_state(root)
    except CheckError as error:
        findings.append(as_finding(error))
        return None


def _own(found: Found, config_folder: Path) -> set[str]:
    """Names of the weights in whatever form, and of what lies beside a trainer's shards."""
    names = set(_weights(found))
    if found.shards is not None:
        names.add((found.shards.folder / ".metadata").relative_to(found.root).as_posix())
        beside = config_folder.relative_to(found.root).as_posix()
        names |= {
            name
            for name in found.files
            if name.rpartition("/")[0] == beside and belongs(name.rpartition("/")[2], "full")
        }
    return names


def _weights(found: Found) -> dict[str, int]:
    if found.stored.headers or found.stored.ggufs:
        names = [*found.stored.headers, *(info.path.name for info in found.stored.ggufs)]
    elif found.shards is not None:
        folder = found.shards.folder.relative_to(found.root)
        names = [(folder / name).as_posix() for name in found.shards.files]
    else:
        names = pickled_weights(found.files)
    return {name: found.files.get(name, 0) for name in names}


def _parameters(found: Found, config: Mapping[str, Any]) -> int | None:
    stored: Stored = found.stored
    if stored.entries:
        return parameters(stored.entries, config, found.quantisation)
    counts = {info.parameters for info in stored.ggufs}
    if any("-of-" in info.path.stem for info in stored.ggufs):  # parts of one model
        return sum(info.parameters for info in stored.ggufs)
    return counts.pop() if len(counts) == 1 else None  # the same model in several quantisations


def _describe_pickles(
    root: Path, files: Mapping[str, int], stored: Stored, shards: TrainerShards | None
) -> list[Finding]:
    """Take in what pickles say of their tensors, where nothing better is there."""
    if stored.headers or stored.ggufs:
        return []
    try:
        if shards is not None:
            stored.pickled = shard_tensors(shards)
        else:
            names = pickled_weights(files)
            stored.pickled = [entry for name in names for entry in file_tensors(root / name)]
    except CheckError as error:
        return [replace(as_finding(error), level="warning")]
    return []


def _has_template(folder: Path) -> bool:
    if any((folder / f"chat_template.{end}").is_file() for end in ("jinja", "json")):
        return True
    try:
        return bool(read_object(folder / "tokenizer_config.json").get("chat_template"))
    except CheckError:
        return False


def _code_findings(code: list[str], root: Path) -> list[Finding]:
    if not code:
        return []
    message = f"loading it runs code of its own (trust_remote_code): {', '.join(code)}"
    fix = "read that code before you load or publish it"
    return [Finding("HT177", "warning", message, where=str(root), next=fix)]


def _adapter_findings(
    root: Path, adapter: AdapterConfig | None, shards: TrainerShards | None
) -> list[Finding]:
    configs = [adapter] if adapter is not None else []
    if shards is not None and (shards.folder / "lora_adapter" / adapters.CONFIG).is_file():
        try:
            configs.append(read_adapter_config(shards.folder / "lora_adapter"))
        except CheckError as error:
            return [as_finding(error)]
    return [
        Finding(
            "HT183",
            "warning",
            "the trainer wrote lora_alpha = 0, with which the adapter does nothing",
            where=f"{config.path}:/lora_alpha",
            next=f"hubtools ingest {root} --lora-alpha N -o OUT  # N as in training",
        )
        for config in configs
        if config.peft_type == "LORA" and config.fields.get("lora_alpha") == 0
    ]


def _shard_findings(shards: TrainerShards | None) -> list[Finding]:
    if shards is None:
        return []
    why = ""
    if shards.missing:
        ranks = ", ".join(map(str, shards.missing[:8])) + ("…" if len(shards.missing) > 8 else "")
        why = f"ranks {ranks} of {shards.world_size} are missing"
    elif shards.kind == "dcp" and not (shards.folder / ".metadata").is_file():
        why = ".metadata is missing: nobody knows which tensor lies where"
    elif shards.kind == "dcp" and not shards.files:
        why = ".metadata is there, and none of the files it describes"
    if not why:
        return []
    fix = "copy the whole directory from the training run again"
    return [
        Finding("HT184", "error", f"not a whole step: {why}", where=str(shards.folder), next=fix)
    ]
