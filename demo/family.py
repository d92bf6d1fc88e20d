"""The family's folder: the committed manifest with what only this run can know, and the prose.

Which commit the base has on the embedded Hub depends on the time of its upload, so a manifest that
pins it cannot be the same for everyone. `cards/demo/` holds the one of a recorded run, with the
cards that came of it; the demo works in a copy.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import tomlkit

from demo.state import State, shown
from hubtools.family.manifest import FILE
from hubtools.files import write_atomic

CARDS = Path(__file__).resolve().parents[1] / "cards" / "demo"
RENDERED = "rendered"


def write_family(state: State, folder: Path, *, revision: str, weights: str) -> None:
    """Write `family.toml` and `prose/` into the family's folder.

    Args:
        state: where the demo lives.
        folder: the family's folder.
        revision: commit of the base on the embedded Hub.
        weights: digest of the base's weights, which the teacher served.
    """
    text = manifest(CARDS / FILE, revision=revision, weights=weights)
    file = folder / FILE
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        write_atomic(file, text.encode())
    shutil.rmtree(folder / "prose", ignore_errors=True)
    shutil.copytree(CARDS / "prose", folder / "prose")
    state.output.note(f"✓ manifest of this run: {shown(file)}")


def manifest(file: Path, *, revision: str, weights: str) -> str:
    """The manifest's text with the base's commit and the teacher's weights put in."""
    document = tomlkit.parse(file.read_text(encoding="utf-8"))
    document["family"]["base"]["revision"] = revision
    document["provenance"]["teacher"]["weights"] = weights
    return tomlkit.dumps(document)


def record(folder: Path) -> list[Path]:
    """Make this run the recorded one: its manifest and rendered cards go to `cards/demo/`.

    Args:
        folder: the family's folder, after `hubtools card render`.
    """
    shutil.rmtree(CARDS / RENDERED, ignore_errors=True)
    shutil.copytree(folder / RENDERED, CARDS / RENDERED)
    shutil.copyfile(folder / FILE, CARDS / FILE)
    return sorted((CARDS / RENDERED).iterdir())
