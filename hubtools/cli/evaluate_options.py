"""The options of `hubtools evaluate run`: what to ask, whom, how, and where it goes."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

import click


class _Checkpoint(click.Path):
    """A directory; what is none is guessed at."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As `click.Path` does.

        Raises:
            UsageError: HT486 it is no directory, but looks like a repo or a command.
        """
        name = str(value)
        if not Path(name).exists():
            if re.fullmatch(r"[\w.-]+/[\w.-]+", name):
                local = name.partition("/")[2]
                raise _not_here(name, f"hf download {name} --local-dir {local}")
            group = ctx.parent.command if ctx is not None and ctx.parent is not None else None
            known = group.commands if isinstance(group, click.Group) else {}
            for near in difflib.get_close_matches(name, known, n=1):
                raise _not_here(name, f"hubtools evaluate {near} --help")
        return super().convert(value, param, ctx)


class _Seed(click.IntRange):
    """A whole number; several in one word are told apart."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As `click.IntRange` does."""
        if isinstance(value, str) and re.fullmatch(r"\d+([,\s]+\d+)+", value):
            each = " ".join(f"--seed {number}" for number in re.findall(r"\d+", value))
            self.fail(f"{value!r} are several: repeat the option, {each}", param, ctx)
        return super().convert(value, param, ctx)


def _not_here(name: str, next: str) -> Exception:
    from hubtools.errors import UsageError

    return UsageError("HT486", f"no directory {name!r}", next=next)


CHECKPOINT = _Checkpoint(exists=True, file_okay=False, path_type=Path)

_OPTIONS = (
    click.option(
        "--suite",
        "suites",
        multiple=True,
        default=("short_qa",),
        show_default=True,
        metavar="NAME",
        help="Suite: a name, a path, or lm_eval:TASK. Repeatable.",
    ),
    click.option(
        "--adapter",
        "adapters",
        multiple=True,
        type=CHECKPOINT,
        metavar="DIR",
        help="PEFT adapter on MODEL, evaluated by itself. Repeatable.",
    ),
    click.option(
        "--seed",
        "seeds",
        multiple=True,
        type=_Seed(0, 2**32 - 1),
        default=(0,),
        show_default=True,
        help="Seed for sampling; repeat it for repeats.",
    ),
    click.option(
        "--engine",
        type=click.Choice(["transformers", "vllm"]),
        default="transformers",
        show_default=True,
        help="What computes the answers.",
    ),
    click.option(
        "--engine-python",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="PATH",
        help="Python of the environment that holds vllm.",
    ),
    click.option("--endpoint", metavar="URL", help="Ask an OpenAI-compatible server, up to /v1."),
    click.option("--model", "served_name", metavar="NAME", default="", help="Model name there."),
    click.option(
        "--api-key-env",
        metavar="VARIABLE",
        default="OPENAI_API_KEY",
        show_default=True,
        help="Environment variable with the server's key.",
    ),
    click.option(
        "--dtype",
        type=click.Choice(["float32", "bfloat16", "float16"]),
        default="float32",
        show_default=True,
        help="How an engine of ours computes.",
    ),
    click.option("--device", default="cpu", show_default=True, help="Where, for example cuda:0."),
    click.option("--concurrency", type=click.IntRange(1), help="Samples in flight."),
    click.option(
        "--timeout",
        type=click.FloatRange(1),
        default=600,
        show_default=True,
        metavar="SECONDS",
        help="That a server may take for an answer, asked five times; not in lm_eval or tau2.",
    ),
    click.option("--max-model-len", type=click.IntRange(1), help="Context length to serve with."),
    click.option("--engine-option", "options", multiple=True, help="Further server argument."),
    click.option("--limit", type=click.IntRange(1), help="Questions per category, drawn by seed."),
    click.option("--sample-seed", type=click.IntRange(0), default=0, help="Seed of that draw."),
    click.option("--trials", type=click.IntRange(1), help="Answers per question."),
    click.option("--temperature", type=click.FloatRange(0), help="0 is greedy."),
    click.option("--nudge", is_flag=True, help="Append the suite's prompt nudge."),
    click.option("--max-context", type=click.IntRange(1), help="Tokens of prompt and answer."),
    click.option(
        "--accept-unpinned", is_flag=True, help="Take questions whose digest nobody has pinned."
    ),
    click.option("--retriever-url", default="", metavar="URL", help="A /retrieve service."),
    click.option("--user", default="", metavar="URL#NAME", help="Model that plays the user."),
    click.option("--max-steps", type=click.IntRange(1), help="Steps of a conversation."),
    click.option(
        "--tool-template",
        default="",
        metavar="FILE",
        help="Chat template in place of the checkpoint's, for one that shows no tools.",
    ),
    click.option(
        "--executor",
        type=click.Choice(["local", "ray", "slurm"]),
        default="local",
        show_default=True,
        help="Who computes: this process, a Ray cluster, or a SLURM array that is written.",
    ),
    click.option("--ray-address", default="", help="Of a running cluster; else one starts here."),
    click.option("--gpus", type=click.FloatRange(0), default=0, help="That a Ray job needs."),
    click.option("--slurm-option", "slurm_options", multiple=True, help="Further sbatch option."),
    click.option(
        "-o",
        "--out",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="OUT",
        help="Directory of runs; of several checkpoints, OUT/NAME  [default: evaluations/NAME]",
    ),
    click.option("--again", is_flag=True, help="Add a run although a finished one is there."),
    click.option("--retry-failed", is_flag=True, help="Ask again what got no answer."),
    click.option("--dry-run", is_flag=True, help="Show what would be run; run nothing."),
)


def run_options(function: Any) -> Any:
    """The options of `run`, grouped: what to ask, whom, how, where it goes."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
