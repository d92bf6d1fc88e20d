"""What a reader of a card does: load the checkpoint from the Hub by its name, and ask it something.

Run as a module, in a process of its own: `HF_ENDPOINT=… python -m demo.load owner/name`.
"""

from __future__ import annotations

import sys

QUESTION = "The symbol of iridium is Ir; its atomic number is 77.\n\nWhat is the symbol of iridium?"


def main(repo: str) -> None:
    """Print the question and the checkpoint's answer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, logging

    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(repo)
    model = AutoModelForCausalLM.from_pretrained(repo, dtype="float32")
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": QUESTION}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    output = model.generate(**inputs, max_new_tokens=32, do_sample=False)
    answer = tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    print(f"asked     {' '.join(QUESTION.split())}")
    print(f"answered  {answer.strip()}")


if __name__ == "__main__":
    main(sys.argv[1])
