"""Tasks of our own in lm-eval's format, with data beside them."""

from __future__ import annotations

import json
from pathlib import Path

_WORDS = """
task: our_words
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: generate_until
doc_to_text: "What is word {{{{n}}}}?"
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: ["\\n"]
  max_gen_toks: 16
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""


def write_tasks(folder: Path, count: int = 8) -> Path:
    """A folder with the task `our_words`: word N is answered by wN."""
    folder.mkdir(parents=True)
    data = folder / "words.jsonl"
    lines = [json.dumps({"n": n, "answer": f"w{n}"}) for n in range(count)]
    data.write_text("\n".join(lines) + "\n")
    (folder / "our_words.yaml").write_text(_WORDS.format(data=data))
    return folder
