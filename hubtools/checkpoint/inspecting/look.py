"""What is in this directory? Headers, small text files and names; no tensor is read, nothing run.

`inspect_checkpoint` is for what can be published and refuses the rest; this describes anything.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from hubtools.checkpoint.carry import belongs
from hubtools.checkpoint.inspecting.contents import custom_code, foreign_files
from hubtools.checkpoint.inspecting.describe import Description
from hubtools.checkpoint.inspecting.disclosed import Scan, find_leaks, leak_finding
from hubtools.checkpoint.inspecting.evidence import decide, named_base
from hubtools.checkpoint.inspecting.faults import faults
from hubtools.checkpoint.inspecting.found import Found, find
from hubtools.checkpoint.inspecting.quantised import Quantisation, parameters, quantisation
from hubtools.checkpoint.inspecting.steps import steps_of
from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.modules import own_modules
from hubtools.errors import CheckError

_VOCABULARIES = (
    "tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model",
    "sentencepiece.bpe.model", "tekken.json",
)  # fmt: skip
_LEVELS = ("error", "warning", "info")


def look(
    path: Path, *, scan: Scan | None = None, public: bool = False, holes: Collection[str] = ()
) -> Description:
    """Describe a directory, or one safetensors or GGUF file with what belongs to it.

    What is damaged becomes a finding of level `error`; the rest is described all the same.

    Args:
        path: what to look at.
        scan: finds secrets in texts; left out, none are looked for.
        public: whether every file of it is published already, as in a repo on the Hub. Of a repo,
            pickles are not fetched and so not read.
        holes: names of texts whose content is not there.

    Raises:
        CheckError: HT101 there is nothing at `path`.
    """
    if not path.exists():
        parent = path.absolute().parent
        raise CheckError("HT101", "there is nothing here", where=str(path), next=f"ls {parent}")
    found = find(path, pickles=not public, holes=holes)
    stored, files, config = found.stored, found.files, found.config
    how = None if found.adapter else quantisation(config, stored.entries)
    kind, evidence = decide(found, how)
    base, revision, source = named_base(found)
    steps = steps_of(found.root, found.trainer) if path.is_dir() else ()
    code = custom_code(files, found.configs, own_modules(found.root))
    leaks, unread = find_leaks(found, kind, scan=scan, public=public)
    findings = [*found.problems, *unread, *faults(found, code, steps)]
    if public:
        secrets = [leak for leak in leaks if leak.kind == "secret"]
        findings += [leak_finding(leak, root=found.root, public=True) for leak in secrets]
    return Description(
        path=found.root,
        kind=kind,
        evidence=evidence,
        architecture=_architecture(found),
        model_type=str(config.get("model_type") or ""),
        base=base,
        base_revision=revision,
        base_source=source,
        adapter=found.adapter,
        quantisation=how,
        ggufs=tuple(stored.ggufs),
        shards=found.shards,
        lora_step=found.lora_step,
        steps=steps,
        weights=_weights(found),
        missing=stored.missing,
        dtypes=stored.dtypes(),
        parameters=_parameters(found, how),
        files=len(files),
        bytes=sum(files.values()),
        foreign=foreign_files(files, kind, _own(found, kind), [one.name for one in found.inside]),
        code=tuple(code),
        tokenizer=_tokenizer(found, kind),
        chat_template=_has_template(found, kind),
        generation_config=(found.home / "generation_config.json").is_file(),
        inside=found.inside,
        leaks=tuple(leaks),
        findings=tuple(sorted(findings, key=lambda finding: _LEVELS.index(finding.level))),
    )


def _architecture(found: Found) -> str:
    named = found.config.get("architectures")
    if isinstance(named, list) and named:
        return str(named[0])
    return next((info.architecture for info in found.stored.ggufs), "")


def _weights(found: Found) -> dict[str, int]:
    """Weight file → bytes, whatever form they have."""
    stored = found.stored
    names = [*stored.headers, *(info.path.name for info in stored.ggufs)]
    if not names and found.shards is not None:
        folder = found.shards.folder.relative_to(found.root)
        names = [(folder / name).as_posix() for name in found.shards.files]
    return {name: found.files.get(name, 0) for name in names or found.pickles}


def _own(found: Found, kind: str) -> set[str]:
    """Names of the weights, of a model's modules, and of what lies beside a trainer's shards."""
    names = set(_weights(found))
    if kind != "adapter":
        names |= set(own_modules(found.root))
    if found.shards is not None:
        names.add((found.shards.folder / ".metadata").relative_to(found.root).as_posix())
        beside = found.home.relative_to(found.root).as_posix()
        names |= {
            name
            for name in found.files
            if name.rpartition("/")[0] == beside and belongs(name.rpartition("/")[2], "full")
        }
    return names


def _parameters(found: Found, how: Quantisation | None) -> int | None:
    stored = found.stored
    if stored.entries:
        return parameters(stored.entries, found.config, how)
    counts = [info.parameters for info in stored.ggufs]
    if any("-of-" in info.path.stem for info in stored.ggufs):  # parts of one model
        return sum(counts)
    return counts[0] if len(set(counts)) == 1 else None  # one model in several quantisations


def _tokenizer(found: Found, kind: str) -> tuple[str, ...]:
    if kind == "gguf":  # it brings its own, whatever lies beside it
        inside = any("tokenizer.ggml.model" in info.texts for info in found.stored.ggufs)
        return ("tokenizer.ggml (in the GGUF)",) if inside else ()
    return tuple(name for name in _VOCABULARIES if (found.home / name).is_file())


def _has_template(found: Found, kind: str) -> bool:
    if kind == "gguf":
        return any("tokenizer.chat_template" in info.texts for info in found.stored.ggufs)
    folder = found.home
    if any((folder / f"chat_template.{end}").is_file() for end in ("jinja", "json")):
        return True
    try:
        return bool(read_object(folder / "tokenizer_config.json").get("chat_template"))
    except CheckError:
        return False
