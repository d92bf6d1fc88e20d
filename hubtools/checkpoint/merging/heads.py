"""A head that the base does not have, or with other labels, trained whole: for a classifier."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from hubtools.checkpoint.adapter import Adapter
from hubtools.checkpoint.merging.config_edits import edited
from hubtools.checkpoint.merging.drafts import Draft, Sketch, kind_of, module_of
from hubtools.checkpoint.merging.recipe import Stored
from hubtools.checkpoint.merging.refusals import incomplete, refuse
from hubtools.checkpoint.merging.tensors import FLOATS
from hubtools.checkpoint.naming.names import name_map
from hubtools.checkpoint.shards import INDEX
from hubtools.errors import CheckError

# PEFT's task → the suffix of the class in transformers.
_CLASSES = {
    "SEQ_CLS": "ForSequenceClassification",
    "TOKEN_CLS": "ForTokenClassification",
    "QUESTION_ANS": "ForQuestionAnswering",
}
_HEADS = ("score", "classifier", "pre_classifier", "qa_outputs")
# The layer with a row per label; what lies before it is as wide as the model.
_LABELS = ("score", "classifier", "classifier.out_proj", "qa_outputs")

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
    _require_numbers(adapter, values)
    suffix = _CLASSES[adapter.config.fields["task_type"]]
    last = next(reversed(sketch.drafts.values())).file
    sketch.drafts[name] = Draft(name, last, values, None, _main(sketch), kind=kind_of(name))
    architecture = _OTHER_HEAD.sub("", str(named[0])) + suffix
    sketch.edits["architectures"] = [architecture]
    _count_labels(sketch, name, values.entry.shape[0])
    _drop_output(sketch)
    sketch.note(f"{name} is new: the result is a {architecture}")
    return True


def relabel_head(sketch: Sketch, adapter: Adapter, draft: Draft, values: Stored) -> bool:
    """Replace a head of the base by one with another number of labels.

    Returns:
        whether it is such a head.

    Raises:
        CheckError: HT114 when it is no matrix or vector of numbers.
    """
    shape = values.entry.shape
    alike = len(shape) == len(draft.shape) and shape[1:] == draft.shape[1:]
    labelled = module_of(draft.name) in _LABELS and is_head(adapter, draft.name)
    if not labelled or not alike or shape == draft.shape:
        return False
    _require_numbers(adapter, values)
    before = draft.shape[0]
    draft.start_from(values, kind_of(draft.name))
    draft.ops.clear()
    _count_labels(sketch, draft.name, shape[0])
    sketch.note(f"{draft.name} is replaced: {before} labels become {shape[0]}")
    return True


def require_filled(sketch: Sketch, log: Path | None) -> None:
    """Refuse a classifier with layers that neither base nor adapter holds, as random as at start.

    Args:
        sketch: with every adapter applied.
        log: where the child process that asks transformers tells its story.

    Raises:
        CheckError: HT145.
    """
    # A model whose head is called score has no other layer of its own.
    new = {name.partition(".")[0] for name, draft in sketch.drafts.items() if draft.base is None}
    if "architectures" not in sketch.edits or not (new & set(_HEADS)) - {"score"}:
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        config = (sketch.base / "config.json").read_bytes()
        (folder / "config.json").write_bytes(edited(config, sketch.edits))
        files = [header.path for header in sketch.weights.headers.values()]
        for file in [*files, *([sketch.base / INDEX] if sketch.weights.index else [])]:
            (folder / file.name).symlink_to(file.absolute())
        try:
            names = name_map(folder, [], log)
        except CheckError as error:
            sketch.note(
                f"whether every layer of the classifier is there is not known: {error.message}"
            )
            return
    missing = [name for name in names.missing if name not in sketch.drafts]
    if missing:
        shown = ", ".join(missing[:4]) + (" …" if len(missing) > 4 else "")
        (architecture,) = sketch.edits["architectures"]
        raise refuse(
            "HT145",
            f"{len(missing)} tensors of a {architecture} are neither in the base nor in the"
            " adapter: they would be random each time it is loaded",
            sketch.base,
            "train again with these layers in modules_to_save, or name the base that has them:"
            " --base DIR",
            f"missing: {shown}",
        )


def is_head(adapter: Adapter, name: str) -> bool:
    """Whether a parameter belongs to the head that an adapter's task asks for."""
    known = str(adapter.config.fields.get("task_type")) in _CLASSES
    return known and name.partition(".")[0] in _HEADS


def _require_numbers(adapter: Adapter, values: Stored) -> None:
    entry = values.entry
    if entry.dtype not in FLOATS or not entry.shape or not entry.elements:
        what = f"{entry.name} is {entry.dtype} {list(entry.shape)}"
        raise incomplete(adapter.weights, what)


def _main(sketch: Sketch) -> str:
    """The dtype of most parameters."""
    counts: Counter[str] = Counter()
    for draft in sketch.drafts.values():
        if draft.dtype in FLOATS:
            counts[draft.dtype] += draft.source.entry.elements
    return counts.most_common(1)[0][0] if counts else "F32"


def _count_labels(sketch: Sketch, name: str, labels: int) -> None:
    if module_of(name) not in _LABELS:
        return
    known = sketch.config.get("id2label")
    if len(known) != labels if isinstance(known, Mapping) else labels != 2:
        sketch.edits["id2label"] = {str(i): f"LABEL_{i}" for i in range(labels)}
        sketch.edits["label2id"] = {f"LABEL_{i}": i for i in range(labels)}
        sketch.note("the labels of the head have no names: write them into id2label of config.json")
    if "num_labels" in sketch.config:
        sketch.edits["num_labels"] = labels


def _drop_output(sketch: Sketch) -> None:
    for name in [name for name in sketch.drafts if name.startswith(("lm_head.", "embed_out."))]:
        del sketch.drafts[name]
        sketch.tied.pop(name, None)
        sketch.note(f"{name} is left out: a classifier has no output vocabulary")
