"""Results as other harnesses write them: recorded ones, and made ones in the same formats."""

from __future__ import annotations

import copy
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hubtools.evaluation.importing.importing import import_run
from hubtools.evaluation.records import Run, read_run

RECORDED = Path(__file__).parent / "recorded"
"""lm-eval 0.4.13 with its dummy model on two made tasks; inspect 0.3.285 with its mock model."""


def take(path: Path, out: Path, **more: Any) -> Run:
    """Import and read back."""
    record = import_run(path, member="r2e", out=out, **more)
    return read_run(Path(record["path"]))


def raw(run: Run) -> dict[str, Any]:
    """The run's record as it stands in its file."""
    record: dict[str, Any] = json.loads(run.path.read_bytes())
    return record


def everything(out: Path) -> str:
    """All that was written below `out`."""
    return "\n".join(p.read_text() for p in sorted(out.rglob("*")) if p.is_file())


def console(validations: Mapping[int, Mapping[str, float]], *, numpy: bool = True) -> str:
    """verl's console log of a training run."""
    lines = ["(TaskRunner pid=77) Total training steps: 20"]
    for step, values in validations.items():
        told = [
            f"{name}:{f'np.float64({value})' if numpy else value}" for name, value in values.items()
        ]
        middle = "actor/pg_loss:0.0123 - " if step else ""
        lines.append(f"\x1b[36m(TaskRunner pid=77)\x1b[0m step:{step} - {middle}{' - '.join(told)}")
        lines.append(f"(TaskRunner pid=77) step:{step + 1} - actor/pg_loss:0.5 - critic/kl:0.1")
    return "\n".join(lines) + "\n"


def generations(scores: Sequence[Sequence[float]], step: int = 20) -> list[dict[str, Any]]:
    """Rows of verl's dumped validation: scores by prompt and trial."""
    return [
        {
            "input": f"question {item}",
            "output": f"answer {item}.{trial}",
            "gts": f"truth {item}",
            "score": score,
            "step": step,
            "acc": score == 1,
            "num_turns": 4,
        }
        for item, trials in enumerate(scores)
        for trial, score in enumerate(trials)
    ]


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


HEADER: dict[str, Any] = {
    "version": 2,
    "status": "success",
    "eval": {
        "created": "2026-11-30T10:00:00+00:00",
        "task": "acme/capitals",
        "task_version": 3,
        "dataset": {"samples": 2, "sample_ids": ["a", "b"]},
        "model": "openai-api/acme/mini",
        "config": {"epochs": 1},
        "packages": {"inspect_ai": "0.3.285"},
        "scorers": [{"name": "match", "options": {}}],
    },
    "plan": {"steps": [{"solver": "generate", "params": {}}], "config": {"temperature": 0.5}},
    "results": {
        "total_samples": 2,
        "completed_samples": 2,
        "scores": [{"name": "match", "reducer": "mean", "metrics": {"accuracy": {"value": 0.5}}}],
    },
}


def inspect_sample(id: str, value: Any, **more: Any) -> dict[str, Any]:
    """One file of an inspect log."""
    return {
        "id": id,
        "epoch": 1,
        "input": f"capital of {id}?",
        "target": ["Paris", "paris"],
        "messages": [
            {"role": "user", "content": f"capital of {id}?", "source": "input"},
            {"role": "assistant", "content": "Paris", "source": "generate"},
        ],
        "output": {
            "model": "mini-2026",
            "choices": [{"message": {"role": "assistant"}, "stop_reason": "stop"}],
            "usage": {"input_tokens": 5, "output_tokens": 1},
        },
        "scores": {"match": {"value": value, "answer": "Paris"}},
        **more,
    }


def inspect_log(
    path: Path,
    samples: Sequence[Mapping[str, Any]],
    change: Callable[[dict[str, Any]], None] = lambda header: None,
) -> Path:
    """A log of these samples, under a header that `change` may alter."""
    header = copy.deepcopy(HEADER)
    change(header)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as log:
        log.writestr("header.json", json.dumps(header))
        for sample in samples:
            log.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
    return path


def eee(*results: Mapping[str, Any]) -> dict[str, Any]:
    """An Every Eval Ever file, with the fields that its schema 0.2 requires."""
    return {
        "schema_version": "0.2.1",
        "evaluation_id": "made/acme-mini/1764500000",
        "retrieved_timestamp": "1764500000",
        "source_metadata": {
            "source_type": "documentation",
            "source_organization_name": "Acme",
            "evaluator_relationship": "first_party",
        },
        "eval_library": {"name": "helm", "version": "0.5"},
        "model_info": {"name": "Mini", "id": "acme/mini"},
        "evaluation_results": list(results),
    }


def eee_result(name: str, score: float, **metric: Any) -> dict[str, Any]:
    """One of its figures."""
    return {
        "evaluation_name": name,
        "source_data": {"dataset_name": name, "source_type": "other"},
        "metric_config": {"lower_is_better": False, **metric},
        "score_details": {"score": score, "uncertainty": {"num_samples": 80}},
        "generation_config": {"generation_args": {"temperature": 0.0}},
    }
