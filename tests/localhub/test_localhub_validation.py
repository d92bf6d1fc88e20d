"""The documented rules for cards, paths and branch names."""

from __future__ import annotations

import subprocess

import pytest

from hubtools.localhub.failures import ApiFailure
from hubtools.localhub.validation import (
    check_branch,
    check_folders,
    check_path,
    front_matter,
    validate_card,
)


def errors(yaml: str) -> list[str]:
    return validate_card(f"---\n{yaml}\n---\n# card\n").errors


GOOD = """\
license: apache-2.0
language: [en, no, zho, code]
library_name: transformers
tags: [anything, goes]
base_model: Qwen/Qwen3-4B-Thinking-2507
datasets: [squad, lab/data_1]
unknown_key: {a: 1}
configs:
- config_name: sft
  data_files: x.jsonl
model-index:
- name: m
  results:
  - task: {type: question-answering}
    dataset: {type: lab/data_1, name: Data, config: default}
    metrics: [{type: em, value: 0.5}]"""


def test_a_good_card_passes() -> None:
    verdict = validate_card(f"---\n{GOOD}\n---\n# card\n")
    assert verdict.to_json() == {"errors": [], "warnings": []}
    assert front_matter(f"---\n{GOOD}\n---\n")["library_name"] == "transformers"


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("license: [", "does not parse"),
        ("a: 1\na: 2", "duplicated mapping key 'a'"),
        ("- 1", "must be a mapping"),
        ("license: MIT", "\"license\" must be one of the listed ids, not 'MIT'"),
        ("license:", '"license" must be one of the listed ids, not None'),
        (
            "language: [en, zh-CN]",
            "\"language[1]\" must be an ISO 639 code in lower case, not 'zh-CN'",
        ),
        ("language: noinfo", "noinfo"),
        ("language: xx", "'xx'"),
        ("language:", "None"),
        ("base_model: /home/me/model", "is not an id on the Hub"),
        ("base_model: ./out", "is not an id on the Hub"),
        ("base_model: my favourite model", "is not an id on the Hub"),
        ("datasets:\n- null", '"datasets[0]" with value None'),
        ("datasets: data/train/x.json", "is not an id on the Hub"),
        ("configs:\n- data_files: x", '"configs[0].config_name" is required'),
        ("model-index: {}", "must be a list"),
        ("model-index:\n- results: []", '"model-index[0].name" is required'),
    ],
)
def test_a_refused_card_says_which_key(yaml: str, message: str) -> None:
    assert message in "\n".join(errors(yaml))


def test_each_missing_part_of_a_result_is_named() -> None:
    found = errors(
        "model-index:\n- name: m\n  results:\n"
        "  - dataset: {name: D, config: 5}\n    metrics: [{type: em}]"
    )
    assert [text.split('"')[1].removeprefix("model-index[0].results[0].") for text in found] == [
        "task.type",
        "dataset.type",
        "dataset.config",
        "metrics[0].value",
    ]


@pytest.mark.parametrize("card", ["", "# no metadata\n", "---\n---\n# empty\n", "---\nopen: 1\n"])
def test_a_card_without_metadata_is_a_warning(card: str) -> None:
    verdict = validate_card(card)
    assert verdict.errors == []
    assert verdict.warnings == ["empty or missing yaml metadata in repo card"]


def test_other_license_wants_a_name() -> None:
    assert validate_card("---\nlicense: other\n---\n").warnings


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/a",
        "a/",
        "a//b",
        "../x",
        "a/../b",
        "./a",
        ".git/config",
        "x/.GIT/y",
        ".cache/x",
        "a\x00b",
        "a\nb",
        "a\\b",
        "x" * 256,
        None,
        7,
    ],
)
def test_bad_paths(path: object) -> None:
    with pytest.raises(ApiFailure, match="path not allowed"):
        check_path(path)


@pytest.mark.parametrize("path", ["a", ".gitattributes", ".hubtools/x.json", "ü/ 日本.txt", "a..b"])
def test_good_paths(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize(
    "name",
    [
        "main",
        "exp/a",
        "v1.0",
        "a b",
        "a..b",
        "-x",
        "x.lock",
        "a//b",
        "/a",
        "a/",
        "a~1",
        "a^",
        "a:b",
        "a?b",
        "a*b",
        "a[b",
        "a\\b",
        ".a",
        "a/.b",
        "a.",
        "@",
        "a@{b",
        "ü",
    ],
)
def test_branch_names_are_gits(name: str) -> None:
    theirs = subprocess.run(["git", "check-ref-format", f"refs/heads/{name}"]).returncode == 0
    try:
        ours = check_branch(name) == name
    except ApiFailure:
        ours = False
    assert ours == (theirs and name not in ("-x", "@"))


def test_a_full_folder_is_refused() -> None:
    check_folders(f"data/{i}" for i in range(10_000))
    with pytest.raises(ApiFailure, match="folder data would hold 10001 entries"):
        check_folders(f"data/{i}" for i in range(10_001))
