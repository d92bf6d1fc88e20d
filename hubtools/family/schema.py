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
SuiteName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9./~][A-Za-z0-9._:@,/~ -]*$", max_length=400)
]
PathText = Annotated[str, AfterValidator(_path)]
Command = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
Whole = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[int, Field(ge=1, lt=2**63)]
Revision = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Dtype = Literal["float32", "bfloat16", "float16"]


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

    id: Name = Field(description="name of the family, `{family}` in patterns")
    owner: Name = Field(description="user or organisation on the Hub")
    name: str = Field(default="{family}-{arm}-{step}", description="repo name pattern")
    title: str = Field(default="", description="heading of the cards; empty takes the repo name")
    kind: Literal["full", "adapter", "merged"] = Field(
        description="what is published: full weights, LoRA adapters, or adapters merged first"
    )
    base: BaseModelTable
    license: str = Field(default="", description="licence id of the Hub; empty: not stated")
    license_name: str = Field(default="", description='name, for `license = "other"`')
    license_link: str = Field(default="", description='URL or file, for `license = "other"`')
    languages: tuple[str, ...] = Field(default=(), description="ISO 639 codes such as `en`")
    tags: tuple[str, ...] = Field(default=(), description="free tags of the cards")
    datasets: tuple[RepoId, ...] = Field(default=(), description="training data, as Hub ids")
    pipeline_tag: str = Field(default="text-generation", description="task of the Hub")
    visibility: Literal["public", "private"] = Field(
        default="public", description="what a new repo becomes after its first commit"
    )
    suites: tuple[SuiteName, ...] = Field(
        default=(), description="evaluation suites to run: names, lm_eval:TASK, or paths as ./mine"
    )


class ArmTable(Table):
    """`[arms.NAME]`: one line of training, saved at several steps."""

    label: str = Field(default="", description="the arm in words; empty takes its name")
    steps: tuple[Name, ...] = Field(min_length=1, description="names of the saved steps")


class StepTable(Table):
    """`[steps.NAME]`: what a step name stands for."""

    optimizer_step: Whole | None = Field(
        default=None, description="the trainer's count; read from names such as `s50` otherwise"
    )


class InputsTable(Table):
    """`[inputs]`: where the checkpoints are."""

    checkpoint: PathText = Field(description="directory pattern, relative to the manifest")
    merged: PathText = Field(
        default="merged/{name}", description="where merged weights are written"
    )


class IngestTable(Table):
    """`[ingest]`: how a trainer's own shards (FSDP, verl, DCP) become weights."""

    dtype: Literal["float32", "bfloat16", "float16", "float64"] | None = Field(
        default=None, description="of the weights; to be stated where trainer and config differ"
    )
    lora_alpha: float | None = Field(
        default=None,
        gt=0,
        lt=1e9,
        description="of a LoRA run whose trainer did not write it down",
    )


class MergeTable(Table):
    """`[merge]`: how adapters become whole weights, for `kind = "merged"`."""

    dtype: Dtype | None = Field(
        default=None, description="of the merged weights; none: each tensor as in the base"
    )
    keep_tied: bool = Field(
        default=False,
        description="keep tied embeddings tied, as PEFT does, though the adapter changed only one",
    )
    base_is_residual: bool = Field(
        default=False, description="the base is what PiSSA, OLoRA and the like left of it"
    )
    engine: Literal["stream", "peft"] = Field(
        default="stream", description="`peft` loads the whole model: for adapters other than LoRA"
    )


class ReleaseTable(Table):
    """`[release]`: what becomes of the work once it is published."""

    weights: Literal["keep", "delete"] = Field(
        default="keep",
        description="`delete`: merged and ingested weight files go once the Hub lists them with"
        " their digests; they are made again if they are needed",
    )


class TeacherTable(Table):
    """`[provenance.teacher]`: the logs that can show which model answered."""

    logs: PathText | tuple[PathText, ...] = Field(
        description="files or globs, relative to the manifest"
    )
    claim: str = Field(description="the model the card would name")
    requested: str = Field(default="", description="the name that the script asked for")
    hosting: Literal["api", "self"] = Field(
        default="api", description="`self`: you ran the server, so its names are your own words"
    )
    served: PathText = Field(
        default="", description="saved /v1/models answer of a self-hosted server"
    )
    weights: str = Field(default="", description="weights digest of a self-hosted teacher")


class ProvenanceTable(Table):
    """`[provenance]`: who taught this family, and how it is known."""

    status: Literal["logs", "reported", "none"] = Field(
        description="`logs`: verified from files; `reported`: told by someone; `none`"
    )
    reason: str = Field(default="", description="why not `logs`; the cards print it")
    teacher: TeacherTable | None = None
    aliases: PathText = Field(default="", description="alias table that overrides the bundled one")

    @model_validator(mode="after")
    def _complete(self) -> ProvenanceTable:
        if self.status == "logs" and self.teacher is None:
            raise ValueError('status = "logs" needs a [provenance.teacher] table')
        if self.status != "logs" and not self.reason:
            raise ValueError(f'status = "{self.status}" needs a reason, which the card prints')
        return self


class SuiteTable(Table):
    """`[evaluation.options.SUITE]`: what is changed of one suite; all of it is in the protocol."""

    limit: Positive | None = Field(
        default=None, description="questions per category; their ids are kept with the run"
    )
    sample_seed: Whole = Field(default=0, description="seed of that draw")
    trials: Positive | None = Field(default=None, description="answers per question")
    temperature: float | None = Field(default=None, ge=0, description="0 is greedy")
    nudge: Literal["off", "on", "both"] = Field(
        default="off", description="the suite's prompt nudge; `both` gives anchor rows"
    )
    max_context: Positive | None = Field(
        default=None, description="tokens of prompt and answer together"
    )
    retriever_url: str = Field(default="", description="a service with the /retrieve contract")
    user: str = Field(default="", description="model that plays the user, URL#NAME")
    accept_unpinned: bool = Field(
        default=False, description="take questions whose digest nobody has pinned; tables say so"
    )
    max_steps: Positive | None = Field(default=None, description="of a conversation")
    tool_template: PathText = Field(
        default="", description="chat template in place of one that shows no tools"
    )


class EvaluationTable(Table):
    """`[evaluation]`: how the suites are run."""

    engine: Literal["transformers", "vllm"] = Field(
        default="transformers", description="what computes the answers"
    )
    engine_python: PathText = Field(
        default="", description="interpreter of the environment that holds vllm"
    )
    engine_options: tuple[Command, ...] = Field(
        default=(), description="further arguments of the server"
    )
    dtype: Dtype = Field(
        default="float32", description="in which the model computes; part of the protocol"
    )
    device: str = Field(default="cpu", description="as torch names it: cpu, cuda, cuda:1, mps")
    concurrency: Positive | None = Field(default=None, description="samples in flight")
    max_model_len: Positive | None = Field(default=None, description="context length to serve with")
    seeds: tuple[Whole, ...] = Field(
        default=(0,), min_length=1, description="one run each; several give repeats"
    )
    options: dict[SuiteName, SuiteTable] = {}


class CardTable(Table):
    """`[card]`: prose, reported figures, and what the usage section needs to say."""

    prose: PathText = Field(default="prose", description="folder of hand-written sections")
    reported: PathText = Field(default="", description="file of figures that others published")
    max_model_len: Whole | None = Field(
        default=None, description="context length to serve with, for the usage section"
    )
    vllm_flags: tuple[str, ...] = Field(
        default=(), description="further vLLM flags, for the usage section"
    )


class HooksTable(Table):
    """`[hooks]`: commands of the user's own."""

    before_push: Command = Field(
        default="", description="shell command run once before a push; a failure stops it"
    )


class Manifest(Table):
    """`family.toml`."""

    version: Literal[1] = Field(alias="schema")
    family: FamilyTable
    arms: dict[Name, ArmTable] = Field(min_length=1)
    steps: dict[Name, StepTable] = {}
    inputs: InputsTable | None = None
    ingest: IngestTable = IngestTable()
    merge: MergeTable = MergeTable()
    provenance: ProvenanceTable
    evaluation: EvaluationTable = EvaluationTable()
    card: CardTable = CardTable()
    release: ReleaseTable = ReleaseTable()
    hooks: HooksTable = HooksTable()
