"""Read `family.toml`: into frozen values, or an error with file, line, key and nearest name."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubtools.errors import UsageError
from hubtools.family.lines import line_of
from hubtools.family.names import check_pattern, expand

if TYPE_CHECKING:
    from pydantic import ValidationError

    from hubtools.family.schema import Manifest

FILE = "family.toml"


@dataclass(frozen=True, slots=True)
class Member:
    """One checkpoint of the family.

    Args:
        id: `arm/step`, how the command line and tables name it.
        repo: `owner/name` on the Hub.
        optimizer_step: the trainer's step count, declared or read from the step's name.
        declared: whether the manifest states that count; a name alone is no statement.
        checkpoint: the run's directory; None when the manifest declares no inputs.
        merged: where merged weights are written.
    """

    id: str
    arm: str
    step: str
    label: str
    repo: str
    optimizer_step: int | None
    checkpoint: Path | None
    merged: Path
    declared: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """A manifest that was read: its values, its members, and where it stands."""

    path: Path
    text: str = field(repr=False)
    manifest: Manifest
    members: tuple[Member, ...]

    @property
    def root(self) -> Path:
        """The folder that relative paths of the manifest start from."""
        return self.path.parent

    def where(self, *key: str) -> str:
        """`file:line` of a key, for messages."""
        return f"{self.path}:{line_of(self.text, key)}"

    def resolve(self, relative: str) -> Path:
        """A path of the manifest, absolute."""
        return (self.root / Path(relative).expanduser()).resolve()

    def member(self, name: str) -> Member:
        """The member with this id or repo id (`r2e/s50`, `owner/name`).

        Raises:
            UsageError: HT005, with the nearest name.
        """
        for member in self.members:
            if name in (member.id, member.repo):
                return member
        known = [member.id for member in self.members] + [m.repo for m in self.members]
        raise UsageError(
            "HT005",
            f"no member {name!r} in family {self.manifest.family.id}{nearest(name, known)}",
            where=str(self.path),
            detail=("members: " + ", ".join(member.id for member in self.members),),
            next=f"hubtools family status {self.root}",
        )


def nearest(name: str, known: Sequence[str]) -> str:
    """`; did you mean 'x'?`, or nothing."""
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {found[0]!r}?" if found else ""


def read_family(path: Path) -> Family:
    """Read a manifest; `path` is the file or the folder that holds `family.toml`.

    Raises:
        UsageError: HT003 no such file, HT004 not TOML or not a manifest (file:line, key, nearest
            valid name), HT006 two members with one repo id.
    """
    file = path / FILE if path.is_dir() else path
    try:
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise UsageError(
            "HT003",
            "no family manifest here",
            where=str(file),
            next="hubtools release owner/name --from DIR (needs no manifest), or write family.toml",
        ) from error
    except (UnicodeDecodeError, OSError) as error:
        raise UsageError(
            "HT004",
            f"cannot read the manifest: {error}",
            where=str(file),
            next=f"save {file} as UTF-8 text that you may read, then run the same command again",
        ) from error
    manifest = parse_manifest(text, file)
    family = Family(file.resolve(), text, manifest, _members(file.resolve(), text, manifest))
    return family


def parse_manifest(text: str, file: Path) -> Manifest:
    """Parse and validate manifest text; `file` is only named in messages."""
    from pydantic import ValidationError

    from hubtools.family.schema import Manifest

    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number too long, tables too deep
        found = re.search(r"line (\d+)", str(error))
        place = f"{file}:{found[1]}" if found else str(file)
        raise UsageError(
            "HT004", f"not TOML: {error}", where=place, next=f"correct {place}"
        ) from error
    try:
        return Manifest.model_validate(_tuples(data))
    except ValidationError as error:
        raise _manifest_error(error, text, file) from error


def _tuples(value: Any) -> Any:
    """TOML arrays as tuples: strict models take no lists for them."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _manifest_error(error: ValidationError, text: str, file: Path) -> UsageError:
    problems = []
    for item in error.errors(include_url=False):
        key = [str(part) for part in item["loc"] if not isinstance(part, int)]
        key = [part for part in key if part not in ("str", "tuple[str, ...]", "[key]")]
        line = line_of(text, key)
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            message = f"unknown key{nearest(key[-1], _valid_keys(key[:-1]))}"
        elif item["type"] == "missing":
            message = "required key is missing"
        problems.append((line, ".".join(key), message))
    problems.sort()
    line, key_name, message = problems[0]
    return UsageError(
        "HT004",
        f"{key_name}: {message}",
        where=f"{file}:{line}",
        detail=[f"{file}:{n}: {name}: {text}" for n, name, text in problems[1:]],
        next=f"correct {file}:{line}, then run the same command again",
    )


def _valid_keys(table: Sequence[str]) -> list[str]:
    from hubtools.family.schema import ArmTable, Manifest, StepTable, Table

    model: type[Table] = Manifest
    for part in table:
        if model is Manifest and part in ("arms", "steps"):
            model = ArmTable if part == "arms" else StepTable
            break
        inner = model.model_fields[part].annotation if part in model.model_fields else None
        options = [inner, *getattr(inner, "__args__", ())]
        tables = [o for o in options if isinstance(o, type) and issubclass(o, Table)]
        if not tables:
            return []
        model = tables[0]
    return [info.alias or name for name, info in model.model_fields.items()]


def _members(file: Path, text: str, manifest: Manifest) -> tuple[Member, ...]:
    table = manifest.family
    place = f"{file}:{line_of(text, ['family', 'name'])}"
    count = sum(len(arm.steps) for arm in manifest.arms.values())
    check_pattern(table.name, place, members=count)
    members: list[Member] = []
    for arm_name, arm in manifest.arms.items():
        for step_name in arm.steps:
            step = manifest.steps.get(step_name)
            words = {"family": table.id, "arm": arm_name, "step": step_name}
            name = expand(table.name, words, place)
            words |= {"name": name, "optimizer_step": _step_number(step_name, step)}
            inputs = manifest.inputs
            members.append(
                Member(
                    id=f"{arm_name}/{step_name}",
                    arm=arm_name,
                    step=step_name,
                    label=arm.label or arm_name,
                    repo=f"{table.owner}/{name}",
                    optimizer_step=int(words["optimizer_step"])
                    if words["optimizer_step"]
                    else None,
                    checkpoint=None
                    if inputs is None
                    else _under(file, expand(inputs.checkpoint, words, place)),
                    declared=step is not None and step.optimizer_step is not None,
                    merged=_under(
                        file, expand(inputs.merged if inputs else "merged/{name}", words, place)
                    ),
                )
            )
    repos = [member.repo for member in members]
    for repo in repos:
        if repos.count(repo) > 1:
            raise UsageError(
                "HT006",
                f"two members would be released as {repo}",
                where=place,
                next="use {arm} and {step} in [family] name, so that every member has its own repo",
            )
    return tuple(members)


def _step_number(name: str, step: Any) -> str:
    if step is not None and step.optimizer_step is not None:
        return str(step.optimizer_step)
    found = re.fullmatch(r"(?:s|step-?|checkpoint-?)?(\d+)", name)
    return found[1] if found else ""


def _under(file: Path, relative: str) -> Path:
    return (file.parent / Path(relative).expanduser()).resolve()
