"""From a checkpoint to the record of a run: the harness works in a child process, we keep order.

Runs are append-only: `<out>/<suite>/<n>/`. A finished run of the same weights under the same
protocol and seed is found again; an unfinished one is gone on with.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from eval_harness.backends.transformers import DTYPES, tokenizer_folder
from eval_harness.errors import HarnessError
from eval_harness.suite import Suite, load_suite
from hubtools.children import run_child
from hubtools.digests import sha256_bytes, sha256_file, sha256_json, weights_digest
from hubtools.errors import CheckError, UsageError
from hubtools.evaluation.failures import bridged
from hubtools.evaluation.protocol import protocol_id, protocol_of
from hubtools.evaluation.records import read_run
from hubtools.files import locked
from hubtools.progress import Progress, silent

BATCH = {"transformers": 16, "openai": 4}
ENGINE = ("torch", "transformers")
OMP = "OMP_WAIT_POLICY"
"""Threads that spin at every barrier are three times slower where others use the machine too."""

_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
_SAME = ("protocol_id", "weights", "member", "requested")


def planned_protocol(
    suite: str,
    *,
    dtype: str,
    device: str = "cpu",
    endpoint: str | None = None,
    model: Path | None = None,
    adapter: Path | None = None,
) -> dict[str, Any]:
    """The protocol that `evaluate` would use, without running or importing an engine.

    Without `model` the digest of its chat template is left out, so that a plan can be made before
    the checkpoint exists.

    Raises:
        UsageError: HT401 unknown suite, HT402 a suite with a mistake, HT413 unknown dtype.
    """
    if dtype not in DTYPES:
        raise UsageError(
            "HT413", f"unknown dtype {dtype!r}", next=f"choose one of: {', '.join(DTYPES)}"
        )
    backend = "openai" if endpoint else "transformers"
    template = None if model is None else chat_template_digest(tokenizer_folder(model, adapter))
    return protocol_of(
        _load(suite).identity(),
        backend=backend,
        engine={} if endpoint else {name: _version(name) for name in ENGINE},
        dtype="server" if endpoint else dtype,
        device="server" if endpoint else device.partition(":")[0],
        batch_size=BATCH[backend],
        chat_template="server" if endpoint else template,
    )


def evaluate(
    suite: str,
    model: Path | None,
    *,
    adapter: Path | None = None,
    endpoint: str | None = None,
    served_name: str = "",
    api_key_env: str = "OPENAI_API_KEY",
    weights: str,
    member: str,
    seed: int,
    dtype: str,
    device: str = "cpu",
    out: Path,
    log: Path,
    again: bool = False,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Run a suite, or find the run that was already made.

    Args:
        suite: name of a bundled suite, or path of another.
        model: checkpoint folder; None with an endpoint.
        adapter: PEFT adapter folder on top of it.
        endpoint: base URL of an OpenAI-compatible server to ask instead, up to `/v1`.
        served_name: the model's name there.
        api_key_env: environment variable with the key for it.
        weights: digest of what is measured; empty where a server cannot prove it.
        member: whom the figures are about.
        seed: for sampling; recorded even where nothing is sampled.
        dtype: in which an in-process model computes.
        device: on which it does.
        out: folder of runs, append-only.
        log: file for the child's story.
        again: add a run though a finished one is there.
        progress: told the number of answered questions.

    Returns:
        The run's record, and under `path` the file that holds it.

    Raises:
        UsageError: HT401, HT402, HT413.
        AuthError: HT405 the server refuses the key.
        CheckError: HT403 the model cannot be loaded, HT406 every question failed, HT407.
        EnvironmentFailure: HT404 no server, HT408 a package is missing, HT901 disk, HT903 another
            process is at work there, HT904 the child died; answers so far are kept.
    """
    protocol = planned_protocol(
        suite, dtype=dtype, device=device, endpoint=endpoint, model=model, adapter=adapter
    )
    about = {
        "protocol": protocol,
        "protocol_id": protocol_id(protocol),
        "weights": weights,
        "member": member,
        "requested": served_name,
    }
    runs = out / _load(suite).id
    with locked(runs / ".lock", f"the folder of runs {runs.name}"):
        folder = _folder(runs, about, seed, again=again)
        if not (folder / "run.json").is_file():
            job = {
                "suite": suite,
                "model": None if model is None else str(model),
                "adapter": None if adapter is None else str(adapter),
                "endpoint": endpoint,
                "served_name": served_name,
                "api_key_env": api_key_env,
                "dtype": dtype,
                "device": device,
                "batch_size": protocol["batch_size"],
                "seed": seed,
                "out": str(folder),
                "about": about,
            }
            run_child(
                "hubtools.evaluation.worker",
                job,
                log=log,
                what=f"evaluating {member} on {runs.name}",
                progress=progress,
                env=_ENVIRONMENT | ({} if OMP in os.environ else {OMP: "PASSIVE"}),
            )
    path = folder / "run.json"
    return {**json.loads(path.read_bytes()), "path": str(path)}


def model_weights(model: Path, adapter: Path | None = None) -> str:
    """Weights digest of a checkpoint folder, together with that of an adapter on it.

    Raises:
        CheckError: HT409 no safetensors there.
    """
    files: dict[str, str] = {}
    for prefix, folder in (("", model), ("adapter/", adapter)):
        if folder is None:
            continue
        found = sorted(folder.glob("*.safetensors"))
        if not found:
            raise CheckError(
                "HT409",
                "no safetensors files in the folder",
                where=str(folder),
                detail=("Pickled weights are not loaded.",),
                next="name a checkpoint folder that holds *.safetensors (or convert its weights)",
            )
        files |= {prefix + path.name: sha256_file(path) for path in found}
    return weights_digest(files)


def chat_template_digest(folder: Path) -> str:
    """sha256 of the chat template that transformers would use from `folder`, or `none`."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return sha256_bytes(file.read_bytes())
    try:
        template = json.loads((folder / "tokenizer_config.json").read_bytes()).get("chat_template")
    except (OSError, ValueError, AttributeError):
        return "none"  # loading the model says what is wrong with it
    return sha256_json(template) if template else "none"


def _load(suite: str) -> Suite:
    try:
        return load_suite(suite)
    except HarnessError as error:
        raise bridged(error) from error


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _folder(runs: Path, about: Mapping[str, Any], seed: int, *, again: bool) -> Path:
    """The run to return, to go on with, or the next free number."""
    numbers = sorted(int(path.name) for path in runs.iterdir() if path.name.isdigit())
    finished: Path | None = None
    for number in numbers:
        folder = runs / str(number)
        if not _same(folder / "about.json", about, seed):
            continue
        if not (folder / "run.json").is_file():
            return folder
        if _sound(folder):
            finished = folder
    if finished is not None and not again:
        return finished
    return runs / str(numbers[-1] + 1 if numbers else 1)


def _sound(folder: Path) -> bool:
    """Whether a finished run can be read back; a damaged one stays where it is and is not used."""
    try:
        read_run(folder)
    except CheckError:
        return False
    return True


def _same(path: Path, about: Mapping[str, Any], seed: int) -> bool:
    try:
        known = json.loads(path.read_bytes())
        return bool(known["seed"] == seed and all(known[key] == about[key] for key in _SAME))
    except (OSError, ValueError, KeyError, TypeError):
        return False
