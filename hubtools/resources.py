"""Where the templates are, in the checkout or in the wheel, and the digest of what one includes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from hubtools.digests import sha256_bytes, sha256_json
from hubtools.errors import EnvironmentFailure

_TAG = re.compile(r"\{%[-+]?\s*(?:include|extends|import|from)\b(.*?)%\}", re.DOTALL)
_NAME = re.compile(r"""(["'])([^"']+)\1""")


def bundled_templates() -> Path:
    """The templates that belong to this version: the checkout's, else the installed copy.

    Raises:
        EnvironmentFailure: HT086 when neither is there.
    """
    package = Path(__file__).resolve().parent
    checkout = package.parent / "templates"
    if (package.parent / "pyproject.toml").is_file() and checkout.is_dir():
        return checkout
    installed = package / "_data" / "templates"
    if installed.is_dir():
        return installed
    raise EnvironmentFailure(
        "HT086",
        "the card templates are missing from this installation",
        where=str(installed),
        next="pip install --force-reinstall hf-hubtools",
    )


def template_roots(project: Path | None = None, family: Path | None = None) -> tuple[Path, ...]:
    """Folders to look in, first match wins: `project/templates`, `family/templates`, the bundled.

    Args:
        project: where the command runs; its `templates` folder overrides everything.
        family: the manifest's folder (`cards/<family>`).
    """
    wanted = [folder / "templates" for folder in (project, family) if folder is not None]
    bundled = bundled_templates()
    found = [folder.resolve() for folder in wanted if folder.is_dir()]
    return (*dict.fromkeys(folder for folder in found if folder != bundled), bundled)


def template_files(name: str, roots: Sequence[Path]) -> dict[str, Path]:
    """Every template that rendering `name` can read: template name → file.

    A name that is computed in the template cannot be followed; then every template counts.
    """
    files: dict[str, Path] = {}
    waiting = [name]
    while waiting:
        current = waiting.pop()
        path = _find(current, roots)
        if current in files or path is None:
            continue
        files[current] = path
        for tag in _TAG.findall(path.read_text(encoding="utf-8")):
            names = [match[2] for match in _NAME.finditer(tag)]
            waiting += names or _every_name(roots)
    return files


def template_digest(name: str, roots: Sequence[Path]) -> str:
    """sha256 over `name` and all it includes, for the key of the stage that renders."""
    files = template_files(name, roots)
    return sha256_json({key: sha256_bytes(files[key].read_bytes()) for key in sorted(files)})


def _find(name: str, roots: Sequence[Path]) -> Path | None:
    if ".." in Path(name).parts or name.startswith("/"):
        return None
    searched = roots
    if name.startswith("base/") and roots:
        name, searched = name.removeprefix("base/"), roots[-1:]
    return next((root / name for root in searched if (root / name).is_file()), None)


def _every_name(roots: Sequence[Path]) -> list[str]:
    return sorted({str(p.relative_to(root)) for root in roots for p in root.rglob("*.j2")})
