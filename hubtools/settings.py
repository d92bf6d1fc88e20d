"""The few settings, and where each came from: flag, environment, pyproject.toml, user, default.

Stdlib only. What a release publishes is never a setting: that is the manifest's.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubtools.errors import UsageError

DEFAULTS = {"hub": "https://huggingface.co", "color": "auto"}
LOCAL = "local"
_COLORS = ("auto", "always", "never")


@dataclass(frozen=True, slots=True)
class Settings:
    """Resolved settings.

    Args:
        hub: base URL of a Hub, or `local` for the embedded one.
        color: auto, always or never.
        origins: setting → where its value came from, for example `--hub` or a file name.
    """

    hub: str
    color: str
    origins: Mapping[str, str]


def resolve(
    flags: Mapping[str, str | None],
    *,
    environ: Mapping[str, str] | None = None,
    start: Path | None = None,
) -> Settings:
    """The settings in force.

    Args:
        flags: setting → value from the command line, None when not given.
        environ: the environment; the process's own by default. `HUBTOOLS_HUB` and
            `HUBTOOLS_COLOR` are read, and `HF_ENDPOINT` after `HUBTOOLS_HUB`.
        start: where to begin looking upwards for a pyproject.toml; default: the working directory.

    Raises:
        UsageError: HT330 a file that does not parse, an unknown setting, a value that is not
            allowed; the file or variable is named.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, str] = {}
    origins: dict[str, str] = {}
    for origin, found in _sources(flags, environ, start or Path.cwd()):
        for key, value in found.items():
            if key not in values:
                values[key] = _checked(key, value, origin)
                origins[key] = origin
    return Settings(values["hub"], values["color"], origins)


def user_config(environ: Mapping[str, str]) -> Path:
    """Where this platform keeps a user's settings: `hubtools/config.toml` in its config folder."""
    home = Path(environ.get("HOME") or Path.home())
    if sys.platform == "darwin":
        base = home / "Library" / "Application Support"
    elif sys.platform == "win32":
        base = Path(environ.get("APPDATA") or home / "AppData" / "Roaming")
    else:
        base = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    return base / "hubtools" / "config.toml"


def user_cache(environ: Mapping[str, str]) -> Path:
    """Where this platform keeps what can be computed again: `hubtools` in its cache folder."""
    home = Path(environ.get("HOME") or Path.home())
    if sys.platform == "darwin":
        base = home / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    else:
        base = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "hubtools"


def _sources(
    flags: Mapping[str, str | None], environ: Mapping[str, str], start: Path
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(origin, values), strongest first."""
    for key, flag in flags.items():
        if flag is not None:
            yield f"--{key}", {key: flag}
    for key in DEFAULTS:
        if value := environ.get(f"HUBTOOLS_{key.upper()}"):
            yield f"HUBTOOLS_{key.upper()}", {key: value}
    if value := environ.get("HF_ENDPOINT"):
        yield "HF_ENDPOINT", {"hub": value}
    for folder in (start.resolve(), *start.resolve().parents):
        project = folder / "pyproject.toml"
        if project.is_file():
            table = _table(project).get("tool", {}).get("hubtools", {})
            if not isinstance(table, dict):
                raise _wrong("[tool.hubtools] must be a table", str(project))
            yield str(project), table
            break
    config = user_config(environ)
    if config.is_file():
        yield str(config), _table(config)
    yield "default", DEFAULTS


def _table(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _wrong(f"this settings file cannot be read: {error}", str(path)) from error


def _checked(key: str, value: Any, origin: str) -> str:
    if key not in DEFAULTS:
        near = difflib.get_close_matches(key, DEFAULTS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise _wrong(f"unknown setting {key!r}{hint} (known: {', '.join(DEFAULTS)})", origin)
    if not isinstance(value, str) or not value:
        raise _wrong(f"{key} must be a text, not {value!r}", origin)
    if key == "color" and value not in _COLORS:
        raise _wrong(f"color must be one of {', '.join(_COLORS)}, not {value!r}", origin)
    if key == "hub" and value != LOCAL:
        if not re.fullmatch(r"https?://[^\s/@]+(/\S*)?", value):
            raise _wrong("hub must be `local` or an http(s) URL without a password", origin)
        return value.rstrip("/")
    return value


def _wrong(message: str, origin: str) -> UsageError:
    return UsageError(
        "HT330",
        message,
        where=origin,
        next=f"correct {origin}, then run the same command again",
    )
