"""Answers with transformers in this process: a checkpoint folder, or a base with a PEFT adapter."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eval_harness.chat import Message, Reply, Request
from eval_harness.chat_template import ChatTemplate
from eval_harness.errors import HarnessError

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
        concurrency: chats per forward pass.
        template: in place of the checkpoint's own chat template.

    Raises:
        HarnessError: `bad_model` or `missing_package`.
    """

    lockstep = True

    def __init__(
        self,
        model: Path,
        adapter: Path | None,
        dtype: str,
        device: str,
        concurrency: int,
        template: ChatTemplate | None = None,
    ) -> None:
        self.concurrency, self._template = concurrency, template
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
        except (
            *(OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError),
            AssertionError,  # a torch without CUDA
        ) as error:
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

    async def ask_all(self, requests: Sequence[Request]) -> list[Reply]:
        """One reply per request; one too long for the model is a failure of that request alone.

        Raises:
            HarnessError: `bad_model` when the logits are not finite.
        """
        prompts = [self._prompt(request) for request in requests]
        lengths = [len(self._tokenizer(prompt, add_special_tokens=False).input_ids)
                   for prompt in prompts]  # fmt: skip
        replies: list[Reply | None] = [None] * len(requests)
        groups: dict[Any, list[int]] = {}
        for place, (request, length) in enumerate(zip(requests, lengths, strict=True)):
            if self._limit is not None and length + request.max_tokens > self._limit:
                why = f"prompt of {length} tokens does not fit the model"
                replies[place] = Reply(None, failure=why, failure_kind="context")
            else:
                alike = (request.max_tokens, request.temperature, request.top_p, request.stop)
                groups.setdefault(alike, []).append(place)
        for places in groups.values():
            rows = self._generate([prompts[place] for place in places], requests[places[0]])
            for place, row in zip(places, rows, strict=True):
                replies[place] = self._reply(row, lengths[place], requests[place].stop)
        return [reply for reply in replies if reply is not None]

    async def close(self) -> None:
        """Nothing to give back: the process ends with the run."""

    def _prompt(self, request: Request) -> str:
        if self._template is not None:
            return self._template.render(request.messages, request.tools)
        chat: list[Message] = list(request.messages)
        if self._tokenizer.chat_template is None:
            return "\n\n".join(message["content"] for message in chat)
        return str(
            self._tokenizer.apply_chat_template(
                chat,
                tools=list(request.tools) or None,
                tokenize=False,
                add_generation_prompt=True,
            )
        )

    def _generate(self, prompts: list[str], request: Request) -> list[list[int]]:
        torch = self._torch
        torch.manual_seed(request.seed)
        inputs = self._tokenizer(
            prompts,
            return_tensors="pt",
            padding=True,
            add_special_tokens=False,
            return_token_type_ids=False,
        ).to(self._settings["device"])
        how: dict[str, Any] = {"do_sample": False}
        if request.temperature > 0:
            how = {"do_sample": True, "temperature": request.temperature}
            how |= {"top_k": 0, "top_p": request.top_p}
        if request.stop:
            how |= {"stop_strings": list(request.stop), "tokenizer": self._tokenizer}
        with torch.inference_mode():
            made = self._model.generate(
                **inputs,
                max_new_tokens=request.max_tokens,
                return_dict_in_generate=True,
                output_logits=True,
                **how,
            )
        if not all(torch.isfinite(step).all() for step in made.logits):
            raise HarnessError("bad_model", "the model's logits are not finite numbers")
        rows: list[list[int]] = made.sequences[:, inputs.input_ids.shape[1] :].tolist()
        return rows

    def _reply(self, row: list[int], prompt_tokens: int, stop: tuple[str, ...]) -> Reply:
        ends = [place for place, token in enumerate(row) if token in self._eos]
        tokens = row[: ends[0] + 1] if ends else row
        text = self._tokenizer.decode(tokens, skip_special_tokens=True)
        cuts = [text.index(end) + len(end) for end in stop if end in text]
        if cuts:
            text = text[: min(cuts)]
        return Reply(text, "stop" if ends or cuts else "length", prompt_tokens, len(tokens))

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
