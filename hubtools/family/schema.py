"""The manifest's shape: one frozen model per table, every key with its meaning.

Unknown keys are errors; `hubtools.family.manifest` turns them into messages with file and line.
The JSON schema for editors is exported from these models.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from hubtools.family.names import path_problem


def _path(value: str) -> str:
    """A path or glob that can be asked for: the file itself need not be there yet."""
    if problem := path_problem(value):
        raise ValueError(problem)
    if value.startswith("~"):
        try:
            Path(value).expanduser()
        except RuntimeError as error:
            raise ValueError(f"names the home of nobody here: {error}") from error
    return value


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=96)]
RepoId = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")
]
PathText = Annotated[str, AfterValidator(_path)]
Command = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
Whole = Annotated[int, Field(ge=0, lt=2**63)]
Revision = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]


class Table(BaseModel):
    """A TOML table: frozen, unknown keys refused, no silent conversion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class BaseModelTable(Table):
    """`[family] base`: what the checkpoints were trained from."""

    repo: RepoId = Field(description="Hub id of the base model")
    revision: Revision | None = Field(
        default=None, description="commit it was loaded from, 40 hex digits"
    )
    path: PathText | None = Field(default=None, description="local copy, relative to the manifest")
    license: str = Field(default="", description="licence id of the base, for the licence chain")


class FamilyTable(Table):
    """`[family]`: identity and the card's metadata."""

    id: Name
    owner: Name
    name: str = Field(default="{family}-{arm}-{step}", description="repo name pattern; parses back")
    title: str = ""
    kind: Literal["full", "adapter", "merged"]
    base: BaseModelTable
    license: str = ""
    license_name: str = ""
    license_link: str = ""
    languages: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    datasets: tuple[RepoId, ...] = ()
    pipeline_tag: str = "text-generation"
    visibility: Literal["public", "private"] = "public"
    suites: tuple[Name, ...] = ()


class ArmTable(Table):
    """`[arms.NAME]`: one line of training, saved at several steps."""

    label: str = ""
    steps: tuple[Name, ...] = Field(min_length=1)


class StepTable(Table):
    """`[steps.NAME]`: what a step name stands for."""

    optimizer_step: Whole | None = None
    label: str = ""


class InputsTable(Table):
    """`[inputs]`: where the checkpoints are."""

    checkpoint: PathText = Field(description="directory pattern, relative to the manifest")
    merged: PathText = Field(
        default="merged/{name}", description="where merged weights are written"
    )


class TeacherTable(Table):
    """`[provenance.teacher]`: the logs that can show which model answered."""

    logs: PathText | tuple[PathText, ...] = Field(
        description="files or globs, relative to the manifest"
    )
    claim: str = Field(description="the model the card would name")
    requested: str = ""
    hosting: Literal["api", "self"] = "api"
    served: PathText = Field(
        default="", description="saved /v1/models answer of a self-hosted server"
    )
    weights: str = Field(default="", description="weights digest of a self-hosted teacher")


class ProvenanceTable(Table):
    """`[provenance]`: who taught this family, and how it is known."""

    status: Literal["logs", "reported", "none"]
    reason: str = ""
    teacher: TeacherTable | None = None
    aliases: PathText = Field(default="", description="alias table that overrides the bundled one")

    @model_validator(mode="after")
    def _complete(self) -> ProvenanceTable:
        if self.status == "logs" and self.teacher is None:
            raise ValueError('status = "logs" needs a [provenance.teacher] table')
        if self.status != "logs" and not self.reason:
            raise ValueError(f'status = "{self.status}" needs a reason, which the card prints')
        return self


class EvaluationTable(Table):
    """`[evaluation]`: how the suites are run."""

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    device: str = Field(default="cpu", description="as torch names it: cpu, cuda, cuda:1, mps")
    seed: Whole = 0


class CardTable(Table):
    """`[card]`: prose, reported figures, and what the usage section needs to say."""

    prose: PathText = "prose"
    reported: PathText = ""
    max_model_len: Whole | None = None
    vllm_flags: tuple[str, ...] = ()


class HooksTable(Table):
    """`[hooks]`: commands of the user's own."""

    before_push: Command = ""


class Manifest(Table):
    """`family.toml`."""

    version: Literal[1] = Field(alias="schema")
    family: FamilyTable
    arms: dict[Name, ArmTable] = Field(min_length=1)
    steps: dict[Name, StepTable] = {}
    inputs: InputsTable | None = None
    provenance: ProvenanceTable
    evaluation: EvaluationTable = EvaluationTable()
    card: CardTable = CardTable()
    hooks: HooksTable = HooksTable()
