"""Answers with transformers in this process: a checkpoint folder, or a base with a PEFT adapter."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eval_harness.backend import Reply
from eval_harness.errors import HarnessError
from eval_harness.suite import Message

DTYPES = ("float32", "bfloat16", "float16")


class TransformersBackend:
    """A loaded causal language model.

    Prompts of one batch are padded on the left to the longest. The checkpoint's own sampling
    defaults are not used: the suite says how to sample.

    Args:
        model: folder with config, safetensors and tokenizer.
        adapter: PEFT adapter folder to apply on it; its tokenizer, if it has one, is used.
        dtype: one of `DTYPES`.
        device: for example `cpu` or `cuda:0`.
        batch_size: chats per forward pass.

    Raises:
        HarnessError: `bad_model` or `missing_package`.
    """

    def __init__(
        self, model: Path, adapter: Path | None, dtype: str, device: str, batch_size: int
    ) -> None:
        self.batch_size = batch_size
        try:
            import torch
            import transformers
            from safetensors import SafetensorError
        except ImportError as error:
            raise _missing(error) from error
        transformers.utils.logging.disable_progress_bar()
        self._torch = torch
        self._settings = {"dtype": dtype, "device": device, "threads": torch.get_num_threads()}
        source = tokenizer_folder(model, adapter)
        try:
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(
                source, padding_side="left", local_files_only=True, trust_remote_code=False
            )
            loaded = transformers.AutoModelForCausalLM.from_pretrained(
                model,
                dtype=getattr(torch, dtype),
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
            )
            self._sampling(loaded)  # before PEFT keeps a reference of its own
            if adapter is not None:
                loaded = _with_adapter(loaded, adapter)
            self._model = loaded.to(device).eval()
        except (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as error:
            raise _unloadable(error, adapter or model) from error
        self._limit = getattr(loaded.config, "max_position_embeddings", None)

    def describe(self) -> dict[str, Any]:
        """Engine, versions, dtype, device and number of threads."""
        import torch
        import transformers

        versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        if hasattr(self._model, "peft_config"):
            import peft

            versions["peft"] = peft.__version__
        return {"backend": "transformers", "versions": versions, **self._settings}

    def answer(
        self,
        chats: Sequence[list[Message]],
        *,
        max_new_tokens: int,
        temperature: float,
        seed: int,
    ) -> list[Reply]:
        """One reply per chat; a chat too long for the model is a failure of that chat alone.

        Raises:
            HarnessError: `bad_model` when the logits are not finite.
        """
        prompts = [self._prompt(chat) for chat in chats]
        lengths = [len(self._tokenizer(prompt, add_special_tokens=False).input_ids)
                   for prompt in prompts]  # fmt: skip
        fits = [self._limit is None or n + max_new_tokens <= self._limit for n in lengths]
        asked = [prompt for prompt, fit in zip(prompts, fits, strict=True) if fit]
        rows = iter(self._generate(asked, max_new_tokens, temperature, seed) if asked else ())
        return [
            self._reply(next(rows), length)
            if fit
            else Reply(None, failure=f"prompt of {length} tokens does not fit the model")
            for fit, length in zip(fits, lengths, strict=True)
        ]

    def _prompt(self, chat: list[Message]) -> str:
        if self._tokenizer.chat_template is None:
            return "\n\n".join(message["content"] for message in chat)
        return str(
            self._tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        )

    def _generate(
        self, prompts: list[str], max_new_tokens: int, temperature: float, seed: int
    ) -> list[list[int]]:
        torch = self._torch
        torch.manual_seed(seed)
        inputs = self._tokenizer(
            prompts,
            return_tensors="pt",
            padding=True,
            add_special_tokens=False,
            return_token_type_ids=False,
        ).to(self._settings["device"])
        sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        with torch.inference_mode():
            made = self._model.generate(
                **inputs,
                max_new_tokens=max_new_tokens,
                return_dict_in_generate=True,
                output_logits=True,
                **(sampling if temperature > 0 else {"do_sample": False}),
            )
        if not all(torch.isfinite(step).all() for step in made.logits):
            raise HarnessError("bad_model", "the model's logits are not finite numbers")
        rows: list[list[int]] = made.sequences[:, inputs.input_ids.shape[1] :].tolist()
        return rows

    def _reply(self, row: list[int], prompt_tokens: int) -> Reply:
        ends = [place for place, token in enumerate(row) if token in self._eos]
        tokens = row[: ends[0] + 1] if ends else row
        text = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return Reply(text, "stop" if ends else "length", prompt_tokens, len(tokens))

    def _sampling(self, model: Any) -> None:
        """Keep from the checkpoint's generation config only where an answer ends."""
        from transformers import GenerationConfig

        eos = model.generation_config.eos_token_id
        if eos is None:
            eos = self._tokenizer.eos_token_id
        self._eos = {eos} if isinstance(eos, int) else set(eos or ())
        pad = self._tokenizer.pad_token_id
        if pad is None:
            pad = next(iter(sorted(self._eos)), 0)
            self._tokenizer.pad_token = self._tokenizer.convert_ids_to_tokens(pad)
        model.generation_config = GenerationConfig(
            eos_token_id=sorted(self._eos) or None, pad_token_id=pad
        )


def tokenizer_folder(model: Path, adapter: Path | None) -> Path:
    """Where tokenizer and chat template come from: the adapter's folder if it has them."""
    if adapter is not None and (adapter / "tokenizer_config.json").is_file():
        return adapter
    return model


def _with_adapter(model: Any, adapter: Path) -> Any:
    try:
        from peft import PeftModel
    except ImportError as error:
        raise _missing(error) from error
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tuned = PeftModel.from_pretrained(model, adapter)
    # PEFT only warns when weights of the adapter found no place: the base would be measured.
    for warning in said:
        if "missing adapter keys" in str(warning.message):
            raise ValueError(f"the adapter does not belong to this base: {warning.message}")
    return tuned


def _missing(error: ImportError) -> HarnessError:
    return HarnessError(
        "missing_package",
        f"running a model in process needs the package {error.name}",
        next="pip install 'hf-hubtools[eval,merge]', or evaluate through an endpoint",
    )


def _unloadable(error: Exception, folder: Path) -> HarnessError:
    words = str(error).strip().splitlines() or [type(error).__name__]
    return HarnessError(
        "bad_model",
        f"cannot load the model: {words[0][:300]}",
        where=str(folder),
        next="look at the log for the whole story",
    )
