"""A head that the base does not have, trained whole: sequence or token classification."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hubtools.checkpoint.adapter import Adapter
from hubtools.checkpoint.merging.drafts import Draft, Sketch, kind_of
from hubtools.checkpoint.merging.recipe import Stored
from hubtools.checkpoint.merging.refusals import incomplete
from hubtools.checkpoint.merging.tensors import FLOATS

# PEFT's task → the suffix of the class in transformers.
_CLASSES = {
    "SEQ_CLS": "ForSequenceClassification",
    "TOKEN_CLS": "ForTokenClassification",
    "QUESTION_ANS": "ForQuestionAnswering",
}
_HEADS = ("score", "classifier", "qa_outputs")

_OTHER_HEAD = re.compile(r"(For[A-Z]\w*|LMHeadModel|Model)$")


def adopt_head(sketch: Sketch, adapter: Adapter, name: str, values: Stored) -> bool:
    """Add a trained head to the result and let config.json name the class that has it.

    Returns:
        whether `name` is part of such a head.

    Raises:
        CheckError: HT114 when it is no matrix or vector of numbers.
    """
    named = sketch.config.get("architectures")
    if not is_head(adapter, name) or not isinstance(named, list) or not named:
        return False
    entry = values.entry
    if entry.dtype not in FLOATS or not entry.shape or not entry.elements:
        what = f"{entry.name} is {entry.dtype} {list(entry.shape)}"
        raise incomplete(adapter.weights, what)
    suffix = _CLASSES[adapter.config.fields["task_type"]]
    last = next(reversed(sketch.drafts.values())).file
    main = next(iter(sketch.drafts.values())).dtype
    sketch.drafts[name] = Draft(name, last, values, None, main, kind=kind_of(name))
    architecture = _OTHER_HEAD.sub("", str(named[0])) + suffix
    sketch.edits["architectures"] = [architecture]
    labels = entry.shape[0]
    known = sketch.config.get("id2label")
    if len(known) != labels if isinstance(known, Mapping) else labels != 2:
        sketch.edits["id2label"] = {str(i): f"LABEL_{i}" for i in range(labels)}
        sketch.edits["label2id"] = {f"LABEL_{i}": i for i in range(labels)}
        sketch.note("the labels of the head have no names: write them into id2label of config.json")
    _drop_output(sketch)
    sketch.note(f"{name} is new: the result is a {architecture}")
    return True


def is_head(adapter: Adapter, name: str) -> bool:
    """Whether a parameter belongs to the head that an adapter's task asks for."""
    known = str(adapter.config.fields.get("task_type")) in _CLASSES
    return known and name.partition(".")[0] in _HEADS


def _drop_output(sketch: Sketch) -> None:
    for name in [name for name in sketch.drafts if name.startswith(("lm_head.", "embed_out."))]:
        del sketch.drafts[name]
        sketch.tied.pop(name, None)
        sketch.note(f"{name} is left out: a classifier has no output vocabulary")
