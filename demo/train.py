"""Two LoRA arms, trained on exactly what the teacher answered, with the Trainer everyone uses.

Run as a module it is the child process that trains one arm.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from demo.questions import INSTRUCTION, questions
from demo.state import DemoError, Made, State
from demo.teacher import FOLDER, LOG, read_log
from hubtools.children import child_main, run_child
from hubtools.progress import Progress

SETTINGS: dict[str, Any] = {
    "r": 8,
    "lora_alpha": 16,
    "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"],
    "learning_rate": 1e-3,
    "batch_size": 6,
    "max_steps": 8,
    "save_steps": 4,
    "seed": 7,
}
ARMS = ("country", "element")
RUNS = "runs"
VERSION = 2
Pair = tuple[str, str]
"""What the student is asked, and what it shall answer."""


def train(state: State, family: Path, weights: str) -> dict[str, Any]:
    """Train every arm; `family/runs/<arm>/checkpoint-<step>` are the checkpoints.

    Args:
        state: where the demo lives.
        family: the family's folder.
        weights: digest of the base's weights.

    Returns:
        `{arms: {<arm>: {samples, loss_before, loss_after}}}`; losses are means per target token.

    Raises:
        DemoError: an arm's loss did not go down.
    """
    log = family / FOLDER / LOG
    inputs = {
        "base": weights,
        "log": state.digests.sha256(log),
        "settings": SETTINGS,
        "code": VERSION,
    }

    def work() -> Made:
        lines = read_log(log)
        reports = {arm: _train_arm(state, family / RUNS / arm, lines) for arm in ARMS}
        return [f for f in (family / RUNS).rglob("*") if f.is_file()], {"arms": reports}

    return state.once("train", "two LoRA arms trained on the responses", inputs, work)


def _train_arm(state: State, folder: Path, log: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    arm = folder.name
    pairs = training_pairs(log, arm)
    part = folder.with_name(f"{arm}.part")
    for old in (folder, part):
        shutil.rmtree(old, ignore_errors=True)
    with state.output.progress() as progress:
        report = run_child(
            "demo.train",
            {"base": str(state.root / "base"), "out": str(part), "arm": arm, "pairs": pairs}
            | {"settings": SETTINGS},
            log=state.log(f"train-{arm}"),
            what=f"training {arm}",
            progress=progress,
            env=state.env(HF_HUB_OFFLINE="1"),
        )
    before, after = report["loss_before"], report["loss_after"]
    if not after < before:
        raise DemoError(f"training {arm} did not lower its loss: {before:.3f} to {after:.3f}")
    part.rename(folder)
    state.output.note(
        f"  {arm}: {len(pairs)} responses, loss per token {before:.3f} before, {after:.3f} after"
    )
    return {"samples": len(pairs), "loss_before": before, "loss_after": after}


def training_pairs(log: Sequence[Mapping[str, Any]], arm: str) -> list[Pair]:
    """Question and target of each response of an arm that is whole and holds the right answer.

    The student sees the question without the teacher's instruction; its target is the logged text,
    unchanged.

    Raises:
        DemoError: too few responses are right, or a target is not a logged response.
    """
    asked = {f"{q.prompt()} {INSTRUCTION}": q for q in questions() if q.arm == arm}
    pairs = []
    for line in log:
        question = asked.get(line["request"]["messages"][-1]["content"])
        choice = line["response"]["choices"][0]
        text = choice["message"]["content"]
        whole = choice["finish_reason"] == "stop"
        if question and whole and says(text, question.answer):
            pairs.append((question.prompt(), text))
    logged = {line["response"]["choices"][0]["message"]["content"] for line in log}
    if not all(target in logged for _, target in pairs):
        raise DemoError("a training target is not a logged response")
    if len(pairs) < SETTINGS["batch_size"]:
        raise DemoError(f"only {len(pairs)} responses are right and whole: too few for {arm}")
    return pairs


def says(text: str, answer: str) -> bool:
    """Whether the answer stands in the text as a word; codes and symbols keep their case."""
    flags = re.NOFLAG if len(answer) <= 3 else re.IGNORECASE
    return re.search(rf"\b{re.escape(answer)}\b", text, flags) is not None


def fit(job: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Train one arm; the Trainer writes the checkpoints, the result holds the losses."""
    label = f"train {job['arm']}"
    progress(label, 0, job["settings"]["max_steps"], "steps")
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import (
        AutoModelForCausalLM,
        AutoTokenizer,
        Trainer,
        TrainerCallback,
        TrainingArguments,
        set_seed,
    )

    settings = job["settings"]
    set_seed(settings["seed"])
    tokenizer = AutoTokenizer.from_pretrained(job["base"])
    base = AutoModelForCausalLM.from_pretrained(job["base"], dtype=torch.float32)
    lora = {name: settings[name] for name in ("r", "lora_alpha", "target_modules")}
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **lora))
    rows = [encode(tokenizer, *pair) for pair in job["pairs"]]

    class Tell(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            progress(label, state.global_step, settings["max_steps"], "steps")

    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=job["out"],
            max_steps=settings["max_steps"],
            save_steps=settings["save_steps"],
            per_device_train_batch_size=settings["batch_size"],
            learning_rate=settings["learning_rate"],
            seed=settings["seed"],
            dataloader_drop_last=True,
            logging_steps=1,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=rows,
        data_collator=lambda batch: pad(batch, tokenizer.eos_token_id),
        processing_class=tokenizer,
        callbacks=[Tell()],
    )
    before = _loss(model, rows, tokenizer.eos_token_id)
    trainer.train()
    return {"loss_before": before, "loss_after": _loss(model, rows, tokenizer.eos_token_id)}


def encode(tokenizer: Any, prompt: str, target: str) -> dict[str, list[int]]:
    """Token ids of a dialogue; only the answer and its end token are learned (label not -100)."""
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
    )
    start = tokenizer(asked, add_special_tokens=False).input_ids
    answer = tokenizer(target + tokenizer.eos_token, add_special_tokens=False).input_ids
    return {"input_ids": start + answer, "labels": [-100] * len(start) + answer}


def pad(batch: Sequence[Mapping[str, list[int]]], token: int) -> dict[str, Any]:
    """Tensors of a batch, filled up on the right."""
    import torch

    width = max(len(row["input_ids"]) for row in batch)

    def filled(name: str, filler: int) -> Any:
        return torch.tensor([row[name] + [filler] * (width - len(row[name])) for row in batch])

    seen = [[1] * len(row["input_ids"]) + [0] * (width - len(row["input_ids"])) for row in batch]
    return {
        "input_ids": filled("input_ids", token),
        "labels": filled("labels", -100),
        "attention_mask": torch.tensor(seen),
    }


def _loss(model: Any, rows: Sequence[Mapping[str, list[int]]], token: int) -> float:
    """Mean loss per target token over all rows, without dropout."""
    import torch

    model.eval()
    total = count = 0.0
    with torch.inference_mode():
        for start in range(0, len(rows), 8):
            batch = pad(rows[start : start + 8], token)
            learned = int((batch["labels"] != -100).sum())
            total += float(model(**batch).loss) * learned
            count += learned
    return total / count


if __name__ == "__main__":
    child_main(fit)
