"""Do tokenizer, embedding, end-of-text tokens and chat template of one checkpoint fit together?"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from hubtools.errors import Finding

_PROBE = "a question 7"


def vocabulary_findings(model: Any, tokenizer: Any, path: Path) -> tuple[list[Finding], bool]:
    """Check a loaded model against a loaded tokenizer.

    Args:
        model: a transformers or PEFT causal language model.
        tokenizer: a transformers tokenizer.
        path: the checkpoint, for the findings.

    Returns:
        findings HT132 to HT135, and whether there is a chat template that renders.
    """
    findings: list[Finding] = []

    def found(id: str, level: Literal["error", "warning"], message: str, fix: str) -> None:
        findings.append(Finding(id, level, message, where=str(path), next=fix))

    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        message = f"the tokenizer has {len(tokenizer)} tokens, the embedding {rows} rows"
        found("HT132", "error", message, "take the tokenizer from the run that trained this model")
    ends = _ends(model)
    if tokenizer.eos_token_id is None:
        message = "the tokenizer has no end-of-text token: generation stops only at its limit"
        found("HT133", "warning", message, "set eos_token in tokenizer_config.json")
    elif ends and tokenizer.eos_token_id not in ends:
        message = (
            f"the tokenizer ends with {tokenizer.eos_token_id} ({tokenizer.eos_token}), "
            f"generation stops at {', '.join(map(str, sorted(ends)))}"
        )
        found("HT133", "warning", message, "set eos_token_id in generation_config.json")
    pad = tokenizer.pad_token_id
    if pad is not None and pad >= rows:
        message = f"padding token {pad} is outside the embedding ({rows} rows)"
        found("HT134", "warning", message, "set pad_token in tokenizer_config.json")
    templated = bool(tokenizer.chat_template)
    if templated:
        why = _template_fault(tokenizer)
        if why:
            found("HT135", "error", f"the chat template {why}", "correct chat_template.jinja")
            templated = False
    return findings, templated


def _ends(model: Any) -> set[int]:
    value = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if value is None:
        value = getattr(model.config, "eos_token_id", None)
    if value is None:
        return set()
    return {value} if isinstance(value, int) else set(value)


def _template_fault(tokenizer: Any) -> str:
    turn = [{"role": "user", "content": _PROBE}]
    try:
        text = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # a template is a program of its own; any of them may fail
        return f"does not render: {type(error).__name__}: {error}"
    return "" if _PROBE in text else "loses what the user said"
