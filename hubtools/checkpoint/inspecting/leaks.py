"""What a text gives away about where its author works: paths, hosts, run ids, addresses.

A finding of these is a question, not a verdict: an address in a README may be meant to be there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

LeakKind = Literal[
    "home path", "local path", "user name", "host name", "run id", "e-mail address", "secret"
]

_REST = r"[^\s\"'`<>|;,)\]}*?\\]*"
_HOME = re.compile(
    r"(?<![\w./~-])(?:/(?:home|Users|export/home)/(?P<unix>[\w.@-]+)(?:/" + _REST + r")?"
    r"|/root/" + _REST + r"|[A-Za-z]:[\\/]{1,4}Users[\\/]{1,4}(?P<windows>[\w.@-]+)[^\s\"'`<>|;,]*)"
)
_LOCAL = re.compile(
    r"(?<![\w./~:-])/(?:mnt|scratch[\w-]*|gpfs\w*|lustre\w*|nfs\w*|fsx\w*|cpfs\w*|cephfs|workspaces?"
    r"|data\d*|datasets?|storage|projects?|shared|tmp|var|work\w*|raid\w*|nvme\w*|ssd\w*|local|opt"
    r"|srv|volumes?|Volumes|content|kaggle|dbfs|ibex|vast|ceph|hpc|netscratch|private)/[\w.@+-]"
    + _REST
)
# Only where the whole text is one: in prose, a slash is often no path.
_ABSOLUTE = re.compile(r"(?:file://)?(?:/[\w.@+=-]{2,}){2,}/?|~/[\w./@+=-]+|[A-Za-z]:\\[\w\\. @-]+")
_STORE = re.compile(r"\b(?:s3|gs|hdfs|abfss?|oss|tos|viewfs|dbfs)://[\w.-]+/?" + _REST)
_TENSORBOARD = re.compile(r"\b[A-Z][a-z]{2}\d{1,2}_\d\d-\d\d-\d\d_(?P<host>[A-Za-z0-9][\w.-]*)")
_EVENTS = re.compile(r"\bevents\.out\.tfevents\.\d+\.(?P<host>[\w.-]{1,100}?)\.\d+\.\d+")
_INTERNAL = re.compile(
    r"(?<![\w.-])(?P<machine>[a-z0-9][a-z0-9.-]*)"
    r"\.(?:local|lan|internal|intranet|corp|cluster)\b"
    r"|\bip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}\b"
    r"|(?<![\d.])(?:10\.\d{1,3}|192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2}(?!\.?\d)"
)
_RUN = re.compile(
    r"\bwandb\.ai/[\w.-]+/[\w.-]+/runs/\w+|\b(?:offline-)?run-\d{8}_\d{6}-[a-z0-9]{8}\b"
    r"|\b(?:app\.neptune\.ai|www\.comet\.com|dagshub\.com)/[\w.-]+/[\w./-]+"
)
_EMAIL = re.compile(
    r"(?<![\w.+/:@-])(?!git@)[\w.+-]+@(?P<domain>[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,})\b"
)
_NUMBERED = re.compile(r"[\d-]")
_NAME_LIMIT = 253
_MANY = 200  # in one value or line; who has more knows by then
_FIELDS: tuple[tuple[LeakKind, re.Pattern[str]], ...] = (
    ("user name", re.compile(r"(?i)/(?:user_?name|login|unix_user)$")),
    ("host name", re.compile(r"(?i)/(?:host|host_?name|node_?name|machine)$")),
    ("run id", re.compile(r"(?i)/(?:wandb_(?:run_)?id|run_id|run_uuid|mlflow_run_id|trial_id)$")),
)
_NOBODY = re.compile(
    r"(?i)(?:user(?:name)?|you(?:r[\w-]*)?|me|name|path|xxx+|someone|example|runner|\w*user\w*)"
)
_NO_MAIL = re.compile(
    r"(?i)(?:example\.\w+|.*\.example|users\.noreply\.github\.com|localhost\.\w+)"
)


@dataclass(frozen=True, slots=True)
class Leak:
    """One thing a file tells about its author's place of work.

    Args:
        kind: what it is.
        file: name of the file in the checkpoint.
        place: line number, or JSON pointer.
        value: what stands there; of a secret only its kind.
        published: whether the file would be published.
    """

    kind: LeakKind
    file: str
    place: str
    value: str
    published: bool

    @property
    def where(self) -> str:
        """`file:line` or `file:/pointer`."""
        return f"{self.file}:{self.place}" if self.place else self.file


def identity(text: str, pointer: str = "", host: str = "") -> Iterator[tuple[LeakKind, str]]:
    """Everything in one text that tells who wrote it or where.

    Args:
        text: a value, or a line of prose.
        pointer: JSON pointer of a value: the name of a field may say what it holds, and a value
            that is a path as a whole is one. Empty for prose.
        host: name of this machine, looked for as a word; empty not to.
    """
    if pointer and text.strip():
        for kind, field in _FIELDS:
            if field.search(pointer):
                yield kind, text
                return
    found: list[tuple[int, int]] = []

    def new(span: tuple[int, int]) -> bool:
        fresh = len(found) < _MANY and all(
            span[1] <= start or end <= span[0] for start, end in found
        )
        if fresh:
            found.append(span)
        return fresh

    for kind, pattern, needles in _PATTERNS:
        if not any(needle in text for needle in needles):
            continue
        for match in pattern.finditer(text):
            group = "host" if "host" in pattern.groupindex else 0
            if not _harmless(match) and new(match.span()):
                yield kind, match[group].rstrip(".,:")
    if pointer and _ABSOLUTE.fullmatch(text.strip()) and new((0, len(text))):
        yield "local path", text.strip()
    if len(host) > 3:
        for match in re.finditer(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", text):
            if new(match.span()):
                yield "host name", host


# Each with texts of which one is in every match: most texts have none, and finding out is quick.
_PATTERNS: tuple[tuple[LeakKind, re.Pattern[str], tuple[str, ...]], ...] = (
    ("host name", _TENSORBOARD, ("_",)),
    ("host name", _EVENTS, ("tfevents",)),
    ("home path", _HOME, ("/home/", "/root/", "Users")),
    ("local path", _LOCAL, ("/",)),
    ("local path", _STORE, ("://",)),
    ("run id", _RUN, ("run-", "wandb.ai/", "neptune.ai/", "comet.com/", "dagshub.com/")),
    ("e-mail address", _EMAIL, ("@",)),
    ("host name", _INTERNAL, (
        ".local", ".lan", ".int", ".corp", ".cluster", "ip-", "10.", "192.168.", "172.",
    )),
)  # fmt: skip


def _harmless(match: re.Match[str]) -> bool:
    """Placeholders of documentation."""
    named = match.groupdict()
    machine = named.get("machine")
    if machine and (len(machine) > _NAME_LIMIT or not _NUMBERED.search(machine)):
        return True  # a word of prose, or of code: hosts of a cluster are numbered
    user = named.get("unix") or named.get("windows")
    if user and _NOBODY.fullmatch(user):
        return True
    return bool(named.get("domain") and _NO_MAIL.fullmatch(named["domain"]))
