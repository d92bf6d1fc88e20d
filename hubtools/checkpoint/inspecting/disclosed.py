"""Which files of a checkpoint give their author away, and where: text, JSON, headers, pickles."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from hubtools.checkpoint.carry import belongs
from hubtools.checkpoint.identity import published_config
from hubtools.checkpoint.inspecting.found import Found
from hubtools.checkpoint.inspecting.leaks import Leak, identity
from hubtools.checkpoint.inspecting.stored import as_finding
from hubtools.checkpoint.inspecting.texts import texts
from hubtools.checkpoint.modules import own_modules
from hubtools.checkpoint.trainer import STATE
from hubtools.checkpoint.unpickle import read_pickle
from hubtools.errors import CheckError, Finding
from hubtools.sizes import size_words

ARGUMENTS = "training_args.bin"
TEXT_LIMIT = 32 << 20
OTHER_LIMIT = 256 << 10
Scan = Callable[[str, str], list[Finding]]
"""(name, text) → findings of secrets, without the secrets themselves."""

_TEXT = (
    "*.json", "*.jsonl", "*.md", "*.txt", "*.yaml", "*.yml", "*.toml", "*.jinja", "*.py", "*.cfg",
    "*.ini", "*.sh", "LICEN[SC]E*", "NOTICE*",
)  # fmt: skip
# A vocabulary holds every kind of word, an index the names of tensors; neither tells of a person.
_WORDS = ("tokenizer.json", "vocab.*", "merges.txt", "added_tokens.json", "*.index.json")
# Other people's addresses belong in these.
_SIGNED = ("LICEN[SC]E*", "NOTICE*", "COPYING*", "USE_POLICY*", "*.py")
_BINARY = (
    "*.safetensors", "*.gguf", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.distcp", "*.onnx",
    "*.h5", "*.msgpack", "*.npy", "*.npz", "*.parquet", "*.arrow", "*.model", "*.zip", "*.gz",
    "*.tar", "*.zst", "*.png", "*.jpg", "*.jpeg", "*.gif", "*.webp", "*.mp4", "*.wav", "*.pdf",
    "*.pyc", "*.so", ".metadata", "events.out.tfevents*",
)  # fmt: skip
_UNSENT = (".git", ".cache", ".hubtools", "__pycache__")  # never uploaded, or ours
_REWRITTEN = ("adapter_config.json:/base_model_name_or_path", "config.json:/_name_or_path")
_GENERIC_HOSTS = frozenset({"localhost", "ubuntu", "debian", "fedora", "host", "node", "server"})


def is_text(name: str) -> bool:
    """Whether a file of this name is read for what it gives away."""
    return _named(name, _TEXT) and not _named(name, _WORDS)


def may_hold_secrets(name: str, size: int) -> bool:
    """Whether a file that is no part of a checkpoint is searched for secrets: notes, `.env`."""
    parts = name.split("/")
    small = 0 < size <= (TEXT_LIMIT if is_text(name) else OTHER_LIMIT)
    near = len(parts) < 4 and not any(part in _UNSENT for part in parts[:-1])
    return small and near and not _named(name, (*_BINARY, *_WORDS))


def text_leaks(
    name: str, data: bytes, *, published: bool, scan: Scan | None = None
) -> Iterator[Leak]:
    """What one text or JSON file gives away, each value once.

    Args:
        name: of the file in the checkpoint.
        data: its bytes.
        published: whether it would be published.
        scan: finds secrets; left out, none are looked for.
    """
    if _named(name, _WORDS):
        return
    text = data[:TEXT_LIMIT].decode("utf-8", errors="replace")
    if scan is not None:
        for finding in scan(name, text):
            yield _secret(finding, name, finding.where.rpartition(":")[2], published)
    value = None
    if name.endswith(".json"):
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            value = None  # read as text; that it is no JSON is told elsewhere
    places = _lines(text) if value is None else texts(value)
    yield from _known(name, places, published)


def pickle_leaks(
    path: Path, name: str, *, published: bool, scan: Scan | None = None
) -> Iterator[Leak]:
    """What a pickle gives away; none of it is run.

    Raises:
        CheckError: HT180 it cannot be read safely.
    """
    yield from _values(name, list(texts(read_pickle(path))), published, scan)


def metadata_leaks(
    name: str, metadata: Mapping[str, str], *, scan: Scan | None = None
) -> Iterator[Leak]:
    """What the texts in the header of a weight file give away."""
    places = [(f"__metadata__{place}", text) for place, text in texts(dict(metadata))]
    yield from _values(name, places, True, scan)


def published_leaks(files: Mapping[str, Path], *, base: str, revision: str) -> list[Finding]:
    """HT175 for every leak in what a release would publish, HT182 for a text too large to scan.

    Configs count as they are published: a local path that is rewritten is none.

    Args:
        files: name in the repo → file.
        base: Hub id that a local path of the base is rewritten to.
        revision: its commit.
    """
    leaks: list[Leak] = []
    unread: list[Finding] = []
    for name, path in sorted(files.items()):
        size = path.stat().st_size if is_text(name) and path.is_file() else 0
        if size > TEXT_LIMIT:
            unread.append(_not_scanned(name, size, path, published=True))
        elif size:
            data = path.read_bytes()
            try:
                data = published_config(name, data, base=base, revision=revision) or data
            except (ValueError, RecursionError, AttributeError):
                continue  # no JSON object: HT106 tells
            leaks += text_leaks(name, data, published=True)
    roots = {name: path.parents[name.count("/")] for name, path in files.items()}
    return [*unread, *(leak_finding(leak, root=roots[leak.file]) for leak in leaks)]


def find_leaks(
    found: Found, kind: str, *, scan: Scan | None, public: bool
) -> tuple[list[Leak], list[Finding]]:
    """What a directory gives away, and HT180 or HT182 for what could not be read.

    Args:
        found: the directory.
        kind: what it is.
        scan: finds secrets.
        public: whether every file is published already.
    """
    leaks: list[Leak] = []
    unread: list[Finding] = []
    root, folders = found.root, {"", *_beside(found)}
    modules = own_modules(root)
    for name, size in found.files.items():
        folder, _, last = name.rpartition("/")
        near = folder in folders or (public and name.count("/") < 3)
        published = public or belongs(last, kind, modules) or last == "README.md"
        text = last == ARGUMENTS or ((published or last == STATE) and is_text(last))
        if not near or not text:
            if scan is not None and name not in found.holes and may_hold_secrets(name, size):
                leaks += _secrets(root / name, name, scan, published=public)
        elif name in found.holes or (size > TEXT_LIMIT and last != ARGUMENTS):
            published = published and last != ARGUMENTS
            unread.append(_not_scanned(name, size, root / name, published=published))
        elif last == ARGUMENTS:
            try:
                leaks += pickle_leaks(root / name, name, published=public, scan=scan)
            except CheckError as error:
                unread.append(replace(as_finding(error), level="warning"))
        else:
            data = (root / name).read_bytes()
            leaks += text_leaks(name, data, published=published, scan=scan)
    for name, header in found.stored.headers.items():
        leaks += metadata_leaks(name, header.metadata, scan=scan)
    for info in found.stored.ggufs:
        leaks += metadata_leaks(info.path.name, info.texts, scan=scan)
    return leaks, unread


def _secrets(path: Path, name: str, scan: Scan, *, published: bool) -> Iterator[Leak]:
    """Secrets alone: what is no part of the checkpoint goes along when a folder is uploaded."""
    data = path.read_bytes()
    if b"\0" in data:
        return
    for finding in scan(name, data.decode("utf-8", errors="replace")):
        yield _secret(finding, name, finding.where.rpartition(":")[2], published)


def _not_scanned(name: str, size: int, place: Path, *, published: bool) -> Finding:
    """A text that may give anything away."""
    level: Literal["warning", "info"] = "warning" if published else "info"
    message = f"{name} was not read and not scanned for leaks: {size_words(size)} are too many"
    fix = f"make {name} smaller, or look through it yourself before you publish it"
    return Finding("HT182", level, message, where=str(place), next=fix if published else "")


def _beside(found: Found) -> list[str]:
    """Folders near a trainer's shards whose texts are published with them."""
    if found.shards is None:
        return []
    folder = found.shards.folder
    near = (folder, folder / "huggingface", folder / "lora_adapter")
    return [path.relative_to(found.root).as_posix() for path in near]


def leak_finding(leak: Leak, *, root: Path | None = None, public: bool = False) -> Finding:
    """HT175 for a file that is published, HT176 for one that stays at home.

    Args:
        leak: what was found.
        root: directory for `where`.
        public: whether the file is on the Hub already, where a secret is an error.
    """
    place = f"{root}/{leak.where}" if root is not None else leak.where
    if leak.kind == "secret":
        message = f"{leak.value} in {leak.file}"
        fix = f"revoke the secret, then remove it from {leak.file}"
        if public:
            return Finding("HT175", "error", f"{message}, on the Hub", where=place, next=fix)
        if not leak.published:
            message += " (hubtools does not publish it, but an upload of this folder would)"
            return Finding("HT176", "warning", message, where=place, next=fix)
    elif leak.where in _REWRITTEN:
        message = f"{leak.kind} {_short(leak.value)} as base in {leak.file}"
        fix = f"write the base's Hub id into {leak.file} (hubtools release does)"
    else:
        message = f"{leak.kind} {_short(leak.value)} in {leak.file}"
        fix = f"remove it from {leak.file}, if it is not meant to be public"
    if leak.published:
        return Finding("HT175", "warning", message, where=place, next=fix)
    return Finding("HT176", "info", f"{message} (not published)", where=place, next="")


def _values(
    name: str, places: Sequence[tuple[str, str]], published: bool, scan: Scan | None
) -> Iterator[Leak]:
    for place, text in places if scan is not None else ():
        assert scan is not None
        for finding in scan(name, text):
            yield _secret(finding, name, place, published)
    yield from _known(name, places, published)


def _secret(finding: Finding, name: str, place: str, published: bool) -> Leak:
    what = finding.message.removesuffix(" would be published")
    return Leak("secret", name, place, what, published)


def _known(name: str, places: Iterable[tuple[str, str]], published: bool) -> Iterator[Leak]:
    host = socket.gethostname()
    host = "" if host.lower() in _GENERIC_HOSTS else host
    signed = _named(name, _SIGNED)
    told: set[tuple[str, str]] = set()
    for place, text in places:
        pointer = place if place.startswith(("/", "__metadata__/")) else ""
        for kind, value in identity(text, pointer, host):
            if (kind, value) in told or (signed and kind != "home path"):
                continue
            told.add((kind, value))
            yield Leak(kind, name, place, value, published)


def _lines(text: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        yield str(number), line


def _named(name: str, patterns: tuple[str, ...]) -> bool:
    last = name.rpartition("/")[2]
    return any(fnmatchcase(last, pattern) for pattern in patterns)


def _short(value: str) -> str:
    return value if len(value) <= 100 else f"{value[:97]}…"
