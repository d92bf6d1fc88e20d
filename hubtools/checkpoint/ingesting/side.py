"""What goes beside the weights: configuration, tokenizer and papers, from the run and the base."""

from __future__ import annotations

from pathlib import Path

from hubtools.checkpoint.carry import belongs, carried_files
from hubtools.checkpoint.ingesting.find import Source
from hubtools.checkpoint.jsonfile import read_object
from hubtools.checkpoint.links import require_inside
from hubtools.checkpoint.merging.config_edits import edited, everywhere
from hubtools.errors import CheckError

_TRAINED = ("config.json", "generation_config.json")


def config_folder(run: Path, source: Source, base: Path | None) -> Path:
    """Where config.json is: the run's own, else the base's.

    Raises:
        CheckError: HT173 when neither has one.
    """
    for folder in (source.side, base):
        if folder is not None and (folder / "config.json").is_file():
            return folder
    raise CheckError(
        "HT173",
        "no config.json in the run",
        where=str(run),
        detail=("The trainer saved weights only; nothing was written.",),
        next="give the model that was trained: --base DIR or --base owner/name@COMMIT",
    )


def side_files(source: Source, base: Path | None, kind: str) -> dict[str, Path]:
    """Name in the output → file, for `model` or `adapter`.

    As in a merge the tokenizer comes as a whole from the run when it has one; the configuration is
    the trained model's; licence and notice are the base's.

    Raises:
        CheckError: HT156 a link that would bring in a file from elsewhere.
    """
    run = source.side or base
    if run is None:
        return {}
    if kind == "adapter":
        files = carried_files(run, run)
        return {name: file for name, file in files.items() if belongs(name, "adapter")}
    files = carried_files(run, base or run)
    own = {name: run / name for name in _TRAINED if (run / name).is_file()}
    for file in own.values():
        require_inside(file, run)
    return dict(sorted({**files, **own}.items()))


def config_with_dtype(config: Path, dtype: str) -> bytes:
    """config.json with the dtype that was written; every other byte as it was."""
    fields = read_object(config)
    edits = {
        path: dtype
        for key in ("dtype", "torch_dtype")
        for path, value in everywhere(fields, key).items()
        if value != dtype
    }
    return edited(config.read_bytes(), edits) if dtype and edits else config.read_bytes()
