"""What `look` found out about a directory, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from hubtools.checkpoint.adapter import AdapterConfig
from hubtools.checkpoint.inspecting.contents import Foreign
from hubtools.checkpoint.inspecting.gguf import GgufInfo
from hubtools.checkpoint.inspecting.leaks import Leak
from hubtools.checkpoint.inspecting.quantised import Quantisation
from hubtools.checkpoint.inspecting.steps import Step
from hubtools.checkpoint.kinds import TrainerKind, TrainerShards
from hubtools.errors import Finding

Kind = (
    Literal[
        "full", "merged", "adapter", "quantised", "gguf", "consolidated", "pickle", "run", "unknown"
    ]
    | TrainerKind
)
"""
`full`: a whole model, base or fine-tune (which of them, no file can tell); `merged`: one whose
merge is on record; `consolidated`: whole weights without a configuration; `pickle`: whole weights
in pickles only; `run`: a folder of checkpoints; a trainer's kind: its own shards.
"""


@dataclass(frozen=True, slots=True)
class Inside:
    """A checkpoint in a folder below."""

    name: str
    kind: Kind
    step: int | None


@dataclass(frozen=True, slots=True)
class Description:
    """A directory (or one file) as it is.

    Args:
        kind: what it is.
        evidence: the files or fields that say so.
        base, base_revision: the base it names; may be a local path; empty when it names none.
        base_source: file and field of `base`.
        lora_step: whether `shards` are of a LoRA run.
        weights: weight file → bytes.
        missing: weight files that should be there and are not.
        dtypes: dtype → (tensors, elements).
        parameters: tied matrices once, packed weights unpacked; None when that is unknown.
        files: number of files in all.
        bytes: their size.
        foreign: what of it is not published.
        code: Python that loading it runs.
        tokenizer: names of its vocabulary files.
        inside: checkpoints in folders below.
        leaks: what its files give away about their author.
        findings: what is wrong with it, errors first.
    """

    path: Path
    kind: Kind
    evidence: str
    architecture: str
    model_type: str
    base: str
    base_revision: str
    base_source: str
    adapter: AdapterConfig | None
    quantisation: Quantisation | None
    ggufs: tuple[GgufInfo, ...]
    shards: TrainerShards | None
    lora_step: bool
    steps: tuple[Step, ...]
    weights: Mapping[str, int]
    missing: tuple[str, ...]
    dtypes: Mapping[str, tuple[int, int]]
    parameters: int | None
    files: int
    bytes: int
    foreign: tuple[Foreign, ...]
    code: tuple[str, ...]
    tokenizer: tuple[str, ...]
    chat_template: bool
    generation_config: bool
    inside: tuple[Inside, ...]
    leaks: tuple[Leak, ...]
    findings: tuple[Finding, ...]

    @property
    def broken(self) -> bool:
        """Whether a file of it is damaged or missing."""
        return any(finding.level == "error" for finding in self.findings)

    def words(self) -> str:
        """What it is, in one line."""
        if self.adapter is not None:
            return f"adapter: {adapter_words(self.adapter)}"
        if self.quantisation is not None and self.kind == "quantised":
            return f"quantised model: {self.quantisation.words()}"
        if self.kind == "gguf":
            kinds = dict.fromkeys(info.quantisation or "unstated type" for info in self.ggufs)
            return f"GGUF: {', '.join(kinds)}"
        if self.shards is not None and self.kind == self.shards.kind:
            size = self.shards.world_size
            what = "step of a LoRA run: " if self.lora_step else ""
            return f"{what}{_TRAINERS[self.shards.kind]}, {size} rank{'s' * (size != 1)}"
        if self.kind == "run":
            return f"a folder of {len(self.inside)} checkpoint{'s' * (len(self.inside) != 1)}"
        return _WORDS[self.kind]

    def to_json(self) -> dict[str, Any]:
        """The object of `--json`."""
        adapter = self.adapter
        return {
            "kind": self.kind,
            "words": self.words(),
            "evidence": self.evidence,
            "architecture": self.architecture,
            "model_type": self.model_type,
            "base": {
                "named": self.base,
                "revision": self.base_revision,
                "source": self.base_source,
            },
            "adapter": adapter
            and {
                "type": adapter.peft_type,
                "words": adapter_words(adapter),
                "rank": adapter.rank,
                "alpha": adapter.alpha,
                "targets": list(adapter.target_modules),
            },
            "quantisation": self.quantisation and asdict(self.quantisation),
            "gguf": [
                {
                    "name": info.path.name,
                    "architecture": info.architecture,
                    "model": info.name,
                    "quantisation": info.quantisation,
                    "tensors": info.tensors,
                    "parameters": info.parameters,
                }
                for info in self.ggufs
            ],
            "trainer": self.shards
            and {
                "kind": self.shards.kind,
                "folder": self.shards.folder.relative_to(self.path).as_posix(),
                "world_size": self.shards.world_size,
                "missing_ranks": list(self.shards.missing),
                "lora": self.lora_step,
            },
            "steps": [asdict(step) for step in self.steps],
            "weights": [{"name": name, "size": size} for name, size in self.weights.items()],
            "missing": list(self.missing),
            "dtypes": [
                {"dtype": name, "tensors": tensors, "elements": elements}
                for name, (tensors, elements) in self.dtypes.items()
            ],
            "parameters": self.parameters,
            "files": self.files,
            "bytes": self.bytes,
            "foreign": [asdict(foreign) for foreign in self.foreign],
            "code": list(self.code),
            "tokenizer": list(self.tokenizer),
            "chat_template": self.chat_template,
            "generation_config": self.generation_config,
            "inside": [asdict(one) for one in self.inside],
            "leaks": [{**asdict(leak), "where": leak.where} for leak in self.leaks],
            "findings": [finding.to_json() for finding in self.findings],
        }


_WORDS: dict[Kind, str] = {
    "full": "whole model (a base or a fine-tune)",
    "merged": "whole model, merged from an adapter",
    "consolidated": "whole weights without a configuration",
    "pickle": "whole model in pickles only",
    "unknown": "no checkpoint",
}
_TRAINERS: dict[TrainerKind, str] = {
    "verl-fsdp": "FSDP shards of verl",
    "dcp": "a distributed checkpoint of torch (DCP)",
    "deepspeed": "DeepSpeed ZeRO shards",
    "megatron": "Megatron shards",
}


def adapter_words(config: AdapterConfig) -> str:
    """The kind of adapter, for example `LoRA rank 16, alpha 32, DoRA, modules_to_save`."""
    if config.peft_type != "LORA":
        return config.peft_type or "of no type"
    words = [f"LoRA rank {config.rank}", f"alpha {config.alpha:g}"]
    start = config.fields.get("init_lora_weights", True)
    if isinstance(start, str) and start not in ("true", "gaussian"):
        words.append(f"started as {start}")
    for name, word in _OPTIONS.items():
        if config.fields.get(name):
            words.append(word)
    if config.fields.get("bias", "none") != "none":
        words.append(f"bias {config.fields['bias']}")
    return ", ".join(words)


_OPTIONS = {
    "use_rslora": "rsLoRA",
    "use_dora": "DoRA",
    "lora_bias": "with a bias of its own",
    "rank_pattern": "rank pattern",
    "alpha_pattern": "alpha pattern",
    "modules_to_save": "modules_to_save",
    "target_parameters": "on expert parameters",
    "trainable_token_indices": "trained token rows",
    "layer_replication": "replicated layers",
    "use_qalora": "QA-LoRA",
    "alora_invocation_tokens": "activated LoRA",
    "arrow_config": "Arrow",
    "kasa_config": "KaSA",
}
