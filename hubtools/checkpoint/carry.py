"""Which files belong to a published checkpoint, by name: what is not listed stays at home.

An allow-list, because run directories hold optimizer states, logs and caches.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from hubtools.checkpoint import adapter
from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.links import require_inside
from hubtools.checkpoint.merging.config_edits import edited
from hubtools.checkpoint.modules import NAMED, own_modules
from hubtools.checkpoint.shards import INDEX, read_weights
from hubtools.errors import CheckError

_VOCABULARIES = (
    "tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model",
    "sentencepiece.bpe.model", "tekken.json", "*.tiktoken",
)  # fmt: skip
_TEMPLATES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates/*.jinja")
_TOKENIZER = (
    *_VOCABULARIES, *_TEMPLATES,
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt",
)  # fmt: skip
_PROCESSOR = ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json")
_LEGAL = ("LICENSE*", "LICENCE*", "NOTICE*", "USE_POLICY*", "COPYING*")
_MODEL = ("config.json", "generation_config.json", *NAMED, *_PROCESSOR, *_LEGAL)


def publishable_files(path: Path, kind: str) -> dict[str, Path]:
    """The files of a directory that is published as it is: name in the repo → file.

    Args:
        path: the directory.
        kind: `full` or `adapter` (a merged model is `full`).

    Raises:
        CheckError: HT101, HT102, HT104, HT105 when the weights are not there or not whole, HT156
            a link that would bring in a file from elsewhere.
    """
    if kind == "adapter":
        weights = [adapter.CONFIG, adapter.WEIGHTS]
        missing = [name for name in weights if not (path / name).is_file()]
        if missing:
            raise CheckError(
                "HT101",
                f"not an adapter: {', '.join(missing)} missing",
                where=str(path),
                next=f"ls {path}  # then name the directory that holds the adapter",
            )
        others = _matching(path, (adapter.CONFIG, *_TOKENIZER, *_PROCESSOR, *_LEGAL))
    else:
        found = read_weights(path)
        weights = list(found.headers)
        own = (INDEX,) if found.index is not None else ()
        others = _matching(path, (*own, *own_modules(path), *_MODEL, *_TOKENIZER))
    return dict(sorted({**others, **{name: path / name for name in weights}}.items()))


def belongs(name: str, kind: str, modules: Collection[str] = ()) -> bool:
    """Whether a file of this name may be part of a published checkpoint.

    Args:
        name: in the checkpoint, `/` between folders.
        kind: `adapter`, or anything else for a model.
        modules: a model's `own_modules`, which may have any name.
    """
    if kind != "adapter" and name in modules:
        return True
    own: tuple[str, ...] = (INDEX, "*.safetensors", "*.gguf", *_MODEL)
    if kind == "adapter":
        own = (adapter.CONFIG, adapter.WEIGHTS, *_PROCESSOR, *_LEGAL)
    patterns = (*own, *_TOKENIZER)
    return any(name.count("/") == p.count("/") and fnmatchcase(name, p) for p in patterns)


@dataclass(frozen=True, slots=True)
class SmallFile:
    """A file beside the weights of a merged model.

    Args:
        side: where it comes from.
    """

    data: bytes
    side: Literal["base", "adapter"]


def small_files(adapters: Sequence[Path], base: Path) -> dict[str, SmallFile]:
    """What a merged model holds beside its weights, before any edit: name → content.

    Args:
        adapters: directories in which a tokenizer may lie, the last one last.
        base: directory of the model.

    Raises:
        CheckError: HT106 a file that cannot be read, HT156 one that lies elsewhere.
    """
    files = {}
    for name, file in carried_files(adapters, base).items():
        inside = [folder for folder in (base, *adapters) if folder in file.parents]
        nearest = max(inside, key=lambda folder: len(folder.parts))
        files[name] = SmallFile(file.read_bytes(), "base" if nearest == base else "adapter")
    return files


def with_edits(files: Mapping[str, SmallFile], edits: Mapping[str, Any]) -> dict[str, SmallFile]:
    """`small_files` with the edits of config.json; see `config_edits.edited`."""
    config = files.get("config.json")
    if config is None or not edits:
        return dict(files)
    return {**files, "config.json": SmallFile(edited(config.data, edits), config.side)}


def carried_files(adapters: Sequence[Path] | Path, base: Path) -> dict[str, Path]:
    """The files beside the weights of a merged model: name → file of the side it comes from.

    The tokenizer comes as a whole from the side that was trained: the last adapter that has one.
    Configuration, licence and notice come from the base.

    Raises:
        CheckError: HT156 a link that would bring in a file from elsewhere.
    """
    folders = [adapters] if isinstance(adapters, Path) else adapters
    files = _matching(base, (*_MODEL, *own_modules(base)))
    theirs = _matching(base, _TOKENIZER)
    ours: dict[str, Path] = {}
    for folder in folders:
        found = _matching(folder, _TOKENIZER)
        ours = found if _matching(folder, _VOCABULARIES) else {**ours, **_templates(found)}
    vocabulary = any(_is_vocabulary(name) for name in ours)
    tokenizer = ours if vocabulary else {**theirs, **_templates(ours)}
    if not _has_template(tokenizer):
        tokenizer = {**tokenizer, **_templates(theirs)}
    return dict(sorted({**files, **tokenizer}.items()))


def _is_vocabulary(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in _VOCABULARIES)


def _matching(path: Path, patterns: tuple[str, ...]) -> dict[str, Path]:
    names = [file.name for file in path.iterdir() if _is_one(file)]
    folder = path / "additional_chat_templates"
    if folder.is_dir():
        names += [f"{folder.name}/{file.name}" for file in folder.iterdir() if _is_one(file)]
    found = {
        name: path / name
        for name in sorted(names)
        if any(fnmatchcase(name, pattern) for pattern in patterns) and "/." not in f"/{name}"
    }
    for file in found.values():
        require_inside(file, path)
    return found


def _is_one(file: Path) -> bool:
    return file.is_file() or (file.is_symlink() and not file.exists())


def _templates(files: dict[str, Path]) -> dict[str, Path]:
    return {
        name: file
        for name, file in files.items()
        if any(fnmatchcase(name, pattern) for pattern in _TEMPLATES)
    }


def _has_template(files: dict[str, Path]) -> bool:
    if _templates(files):
        return True
    config = files.get("tokenizer_config.json")
    return config is not None and bool(read_object(config).get("chat_template"))
