"""The Hub's rules for paths and for card metadata, as far as they are documented. Pure.

The schema of the real Hub is not public; these are the rules of its documentation and of refusals
that users reported. Unknown keys, tags and library names pass, as they do there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import yaml

from hubtools.localhub.failures import bad_request
from hubtools.localhub.vocabulary import LANGUAGE_WORDS, LANGUAGES, LICENSES

MAX_FOLDER_ENTRIES = 10_000
_FRONT = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_REPO_ID = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}(?:/[A-Za-z0-9_][\w.-]{0,95})?", re.ASCII)


@dataclass
class Verdict:
    """What validating a card found."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, list[dict[str, str]]]:
        """The answer of validate-yaml."""
        return {
            "errors": [{"message": text} for text in self.errors],
            "warnings": [{"message": text} for text in self.warnings],
        }


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice, as the Hub's parser does."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for name, _ in node.value:
            if name.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(name, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"duplicated mapping key {key!r}", name.start_mark
                )
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep)


def front_matter(card: str) -> dict[str, Any]:
    """The metadata block of a README; an empty mapping when there is none or it is no mapping.

    Raises:
        yaml.YAMLError: it does not parse.
    """
    found = _FRONT.match(card)
    data = yaml.load(found.group(1), _Loader) if found else None
    return data if isinstance(data, dict) else {}


def validate_card(card: str) -> Verdict:
    """Check a README's metadata by the documented rules."""
    verdict = Verdict()
    found = _FRONT.match(card)
    if found is None:
        verdict.warnings.append("empty or missing yaml metadata in repo card")
        return verdict
    try:
        data = yaml.load(found.group(1), _Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        verdict.errors.append(f"YAML metadata does not parse: {' '.join(str(error).split())}")
        return verdict
    if data is None:
        verdict.warnings.append("empty or missing yaml metadata in repo card")
    elif not isinstance(data, dict):
        verdict.errors.append("YAML metadata must be a mapping")
    else:
        _check_license(data, verdict)
        _check_language(data, verdict)
        for key in ("base_model", "datasets", "new_version"):
            _check_ids(key, data, verdict)
        _check_configs(data, verdict)
        if "model-index" in data:
            _check_model_index(data["model-index"], verdict)
    return verdict


def _listed(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, list):
        return [(f"[{index}]", item) for index, item in enumerate(value)]
    return [("", value)]


def _check_license(data: dict[Any, Any], verdict: Verdict) -> None:
    if "license" not in data:
        return
    for place, value in _listed(data["license"]):
        if not isinstance(value, str) or value not in LICENSES:
            verdict.errors.append(f'"license{place}" must be one of the listed ids, not {value!r}')
    if data["license"] == "other" and not ("license_name" in data and "license_link" in data):
        verdict.warnings.append('"license: other" needs license_name and license_link')


def _check_language(data: dict[Any, Any], verdict: Verdict) -> None:
    if "language" not in data:
        return
    for place, value in _listed(data["language"]):
        if value is False:  # YAML 1.1 reads the code of Norwegian as a boolean
            value = "no"
        fine = isinstance(value, str) and (
            value in LANGUAGES or value in LANGUAGE_WORDS or re.fullmatch(r"[a-z]{3}", value)
        )
        if not fine:
            verdict.errors.append(
                f'"language{place}" must be an ISO 639 code in lower case, not {value!r}'
            )


def _check_ids(key: str, data: dict[Any, Any], verdict: Verdict) -> None:
    if key not in data:
        return
    for place, value in _listed(data[key]):
        if not isinstance(value, str) or not _REPO_ID.fullmatch(value):
            verdict.errors.append(f'"{key}{place}" with value {value!r} is not an id on the Hub')


def _check_configs(data: dict[Any, Any], verdict: Verdict) -> None:
    for place, config in _listed(data.get("configs", [])):
        if not isinstance(config, dict) or not isinstance(config.get("config_name"), str):
            verdict.errors.append(f'"configs{place}.config_name" is required')


def _check_model_index(index: Any, verdict: Verdict) -> None:
    if not isinstance(index, list):
        verdict.errors.append('"model-index" must be a list')
        return
    for m, model in enumerate(index):
        place = f"model-index[{m}]"
        if not isinstance(model, dict) or not isinstance(model.get("name"), str):
            verdict.errors.append(f'"{place}.name" is required')
            continue
        results = model.get("results")
        if not isinstance(results, list):
            verdict.errors.append(f'"{place}.results" must be a list')
            continue
        for r, result in enumerate(results):
            _check_result(f"{place}.results[{r}]", result, verdict)


def _check_result(place: str, result: Any, verdict: Verdict) -> None:
    if not isinstance(result, dict):
        verdict.errors.append(f'"{place}" must be a mapping')
        return
    for part, keys in (("task", ("type",)), ("dataset", ("type", "name"))):
        value = result.get(part)
        for key in keys:
            if not isinstance(value, dict) or not isinstance(value.get(key), str):
                verdict.errors.append(f'"{place}.{part}.{key}" is required')
    config = (result.get("dataset") or {}).get("config") if isinstance(result, dict) else None
    if config is not None and not isinstance(config, str):
        verdict.errors.append(f'"{place}.dataset.config" must be a string, not {config!r}')
    metrics = result.get("metrics")
    if not isinstance(metrics, list):
        verdict.errors.append(f'"{place}.metrics" must be a list')
        return
    for m, metric in enumerate(metrics):
        for key in ("type", "value"):
            if not isinstance(metric, dict) or metric.get(key) is None:
                verdict.errors.append(f'"{place}.metrics[{m}].{key}" is required')


def check_path(path: Any) -> str:
    """Refuse a path in a repo that the Hub (or a file system) would refuse; returns it.

    Raises:
        ApiFailure: 400.
    """
    parts = path.split("/") if isinstance(path, str) else [""]
    for part in parts:
        fine = (
            part not in ("", ".", "..")
            and part.lower() not in (".git", ".cache")
            and len(part.encode("utf-8", "replace")) <= 255
            and not re.search(r"[\x00-\x1f\x7f\\\ud800-\udfff]", part)
        )
        if not fine:
            raise bad_request(f"path not allowed in a repo: {str(path)[:200]!r}")
    return str(path)


def check_branch(name: str) -> str:
    """Refuse a branch or tag name that git would refuse; returns it.

    Raises:
        ApiFailure: 400.
    """
    bad = re.search(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)", name)
    if not name or bad or name[0] in "/.-" or name[-1] in "/." or name in ("@", "HEAD"):
        raise bad_request(f"not a branch or tag name: {name[:200]!r}")
    return name


def check_folders(paths: Iterable[str]) -> None:
    """Refuse a tree with more entries in one folder than the Hub takes.

    Raises:
        ApiFailure: 400, naming the folder.
    """
    children: set[tuple[str, str]] = set()
    for path in paths:
        parts = path.split("/")
        children.update(("/".join(parts[:i]), parts[i]) for i in range(len(parts)))
    counts = Counter(folder for folder, _ in children)
    for folder, count in counts.most_common(1):
        if count > MAX_FOLDER_ENTRIES:
            raise bad_request(
                f"folder {folder or '/'} would hold {count} entries, more than {MAX_FOLDER_ENTRIES}"
            )
