from __future__ import annotations

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubtools.errors import UsageError
from hubtools.family.lines import line_of
from hubtools.family.manifest import Family, read_family
from hubtools.family.schema import Manifest

GOOD = """\
schema = 1
[family]
id = "dt"
owner = "wenyii"
kind = "full"
base = { repo = "Qwen/Qwen3-4B", revision = "0123456789012345678901234567890123456789" }
license = "apache-2.0"
[arms.r2e]
label = "code"
steps = ["s50", "ep1"]
[arms.search]
steps = ["s50"]
[steps.ep1]
optimizer_step = 218
[inputs]
checkpoint = "runs/{arm}/global_step_{optimizer_step}"
[provenance]
status = "none"
reason = "the authors name no teacher"
"""


def read(folder: Path, text: str) -> Family:
    (folder / "family.toml").write_text(text)
    return read_family(folder)


def refused(folder: Path, text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read(folder, text)
    assert caught.value.exit_code == 2
    return caught.value


def test_members_are_arms_times_steps(tmp_path: Path) -> None:
    family = read(tmp_path, GOOD)
    assert [m.id for m in family.members] == ["r2e/s50", "r2e/ep1", "search/s50"]
    assert [m.repo for m in family.members] == [
        "wenyii/dt-r2e-s50",
        "wenyii/dt-r2e-ep1",
        "wenyii/dt-search-s50",
    ]
    assert [m.optimizer_step for m in family.members] == [50, 218, 50]
    assert family.members[1].checkpoint == tmp_path.resolve() / "runs/r2e/global_step_218"
    assert family.member("wenyii/dt-r2e-ep1") is family.member("r2e/ep1")


@pytest.mark.parametrize(
    ("line", "replacement", "place", "words"),
    [
        ('license = "apache-2.0"', 'licence = "apache-2.0"', 7, "did you mean 'license'"),
        ('kind = "full"', 'kind = "ful"', 5, "family.kind"),
        ('label = "code"', 'lable = "code"', 9, "did you mean 'label'"),
        ('owner = "wenyii"', "", 2, "family.owner: required key is missing"),
        ("optimizer_step = 218", 'optimizer_step = "218"', 14, "steps.ep1.optimizer_step"),
        ('reason = "the authors name no teacher"', "", 17, "needs a reason"),
        ("0123456789012345678901234567890123456789", "main", 6, "family.base.revision"),
        ("[arms.search]", "[arms.search", 11, "not TOML"),
        ("{optimizer_step}", "{optimizer}", 3, "needs {optimizer}"),
    ],
)
def test_an_error_names_file_line_key_and_nearest_name(
    tmp_path: Path, line: str, replacement: str, place: int, words: str
) -> None:
    assert line in GOOD
    error = refused(tmp_path, GOOD.replace(line, replacement))
    assert words in error.message
    if "optimizer}" not in replacement:
        assert error.where.endswith(f"family.toml:{place}")
    assert error.next


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    error = refused(
        tmp_path,
        GOOD.replace('id = "dt"', 'idd = "dt"').replace("code", "a").replace("label", "lab"),
    )
    text = " ".join([error.message, *error.detail])
    for key in ("family.id:", "family.idd:", "arms.r2e.lab:"):
        assert key in text


def test_a_pattern_that_cannot_tell_members_apart_is_refused(tmp_path: Path) -> None:
    assert (
        "must hold"
        in refused(tmp_path, GOOD.replace("owner = ", 'name = "{family}-{arm}"\nowner = ')).message
    )
    side = refused(tmp_path, GOOD.replace("owner = ", 'name = "{arm}{step}"\nowner = '))
    assert "parse back" in side.message


def test_an_unknown_member_gets_the_nearest_name(tmp_path: Path) -> None:
    family = read(tmp_path, GOOD)
    with pytest.raises(UsageError, match="did you mean 'r2e/s50'"):
        family.member("r2e/s5")


def test_no_manifest_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_family(tmp_path)
    assert caught.value.id == "HT003"
    assert "--from" in caught.value.next


def test_a_manifest_of_bad_bytes_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "family.toml").write_bytes(b"schema = 1\n\xff\xfe")
    with pytest.raises(UsageError, match="cannot read"):
        read_family(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("runs/{arm}", "runs\\u0000{arm}", "inputs.checkpoint: holds a NUL"),
        ("runs/{arm}", "r" * 300 + "/{arm}", "inputs.checkpoint: has a part of more than 255"),
        ("runs/{arm}", "r/" * 1500 + "{arm}", "inputs.checkpoint: has more than 2048 bytes"),
        ("runs/{arm}", "~nobody-has-this-name/{arm}", "inputs.checkpoint: names the home"),
        ("{optimizer_step}", "{name}" * 30, "something that has a part of more"),
        ("optimizer_step = 218", f"optimizer_step = {2**63 - 1}", ""),
        ("optimizer_step = 218", f"optimizer_step = {2**63}", "steps.ep1.optimizer_step"),
        ("optimizer_step = 218", f"optimizer_step = {'9' * 5000}", "not TOML"),
        ('reason = "', f'deep = {"[" * 5000}{"]" * 5000}\nreason = "', "not TOML"),
        ("[provenance]", '[hooks]\nbefore_push = "\\u0000"\n[provenance]', "hooks.before_push"),
        ("[provenance]", "[evaluation]\nseeds = [-1]\n[provenance]", "evaluation.seeds"),
        ('owner = "wenyii"', 'owner = "wenyii"\nname = "\\u0000{arm}-{step}"', "holds a NUL"),
    ],
)
def test_nonsense_in_a_value_is_named_and_ends_in_no_traceback(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new)
    if not words:
        assert read(tmp_path, text).members
        return
    error = refused(tmp_path, text)
    assert words in error.message
    assert "family.toml" in error.where
    assert error.next


keys = st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True)


@given(
    st.lists(
        st.tuples(keys, st.lists(keys, min_size=1, max_size=4, unique=True)),
        max_size=6,
        unique_by=lambda t: t[0],
    )
)
def test_line_of_finds_every_key(tables: list[tuple[str, list[str]]]) -> None:
    lines: list[str] = []
    expected: dict[tuple[str, ...], int] = {}
    for table, names in tables:
        lines.append(f"[{table}]")
        expected[(table,)] = len(lines)
        for name in names:
            lines.extend([f'{name} = """', "decoy = 1", '"""'])
            expected[(table, name)] = len(lines) - 2
    text = "\n".join(lines)
    for key, line in expected.items():
        assert line_of(text, key) == line
        assert line_of(text, (*key, "inside", "inline")) == line


def test_the_schema_for_editors_is_that_of_the_models() -> None:
    kept = Path(__file__).parents[2] / "docs" / "schemas" / "family.schema.json"
    expected = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Manifest.model_json_schema(),
    }
    assert json.loads(kept.read_text()) == expected


@pytest.mark.parametrize("family", ["dt-4bT", "tau2-airline"])
def test_the_committed_families_hold_to_the_schema(family: str) -> None:
    root = Path(__file__).parents[2]
    schema = json.loads((root / "docs" / "schemas" / "family.schema.json").read_text())
    data = tomllib.loads((root / "cards" / family / "family.toml").read_text())
    jsonschema.validate(data, schema)
    assert read_family(root / "cards" / family).members


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('[merge]\ndtype = "bf16"', "merge.dtype"),
        ("[merge]\nkeep_tide = true", "did you mean 'keep_tied'"),
        ("[ingest]\nlora_alpha = 0", "ingest.lora_alpha"),
        ("[ingest]\nlora_alpha = inf", "ingest.lora_alpha"),
        ('[release]\nweights = "drop"', "release.weights"),
    ],
)
def test_options_of_the_weights_are_checked(tmp_path: Path, table: str, words: str) -> None:
    error = refused(tmp_path, f"{GOOD}{table}\n")
    assert words in error.message
    assert error.where.endswith(f":{GOOD.count(chr(10)) + 2}")


def test_options_of_the_weights_are_read(tmp_path: Path) -> None:
    text = '[merge]\ndtype = "bfloat16"\nkeep_tied = true\n[ingest]\nlora_alpha = 32\n'
    manifest = read(tmp_path, f'{GOOD}{text}[release]\nweights = "delete"\n').manifest
    assert (manifest.merge.dtype, manifest.merge.keep_tied) == ("bfloat16", True)
    assert manifest.ingest.lora_alpha == 32
    assert manifest.release.weights == "delete"
