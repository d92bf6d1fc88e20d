"""Python that loading a checkpoint runs is named, and counts as the model's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from hubtools.checkpoint.carry import carried_files, publishable_files
from hubtools.checkpoint.inspecting.basecheck import check_base
from hubtools.checkpoint.inspecting.look import look
from hubtools.digests import sha256_file

Pair = tuple[Path, Path]


def ids(path: Path) -> set[tuple[str, str]]:
    return {(finding.id, finding.level) for finding in look(path).findings}


def test_code_is_named(broken: Pair) -> None:
    base, _ = broken
    (base / "modeling_tiny.py").write_text("")
    auto = {"AutoModel": "modeling_tiny.Tiny", "AutoConfig": "configuration_tiny.TinyConfig"}
    config = json.loads((base / "config.json").read_bytes())
    (base / "config.json").write_text(json.dumps({**config, "auto_map": auto}))
    tokenizer = json.loads((base / "tokenizer_config.json").read_bytes())
    tokenizer["auto_map"] = {"AutoTokenizer": ["lab/other--tok.Slow", None]}
    (base / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    seen = look(base)
    assert seen.code == (
        "configuration_tiny.py (named in config.json, missing)",
        "lab/other--tok.Slow (tokenizer_config.json)",
        "modeling_tiny.py",
    )
    assert ("HT177", "warning") in ids(base)


def test_modules_that_a_module_imports_belong_to_the_model(broken: Pair, tmp_path: Path) -> None:
    base, adapter = broken
    texts = {
        "net.py": "from .helper import f\nfrom . import more\nimport train\nfrom .gone import g\n",
        "helper.py": "    from .deep import x\n# from .train import x\n",
        "deep.py": "from .net import A  # in a circle\n",
        "more.py": "",
        "train.py": "from .net import A\n",
    }
    for name, text in texts.items():
        (base / name).write_text(text)
    alone = look(base)
    assert alone.code == ()
    assert sum(foreign.files for foreign in alone.foreign) == 5
    config = json.loads((base / "config.json").read_bytes())
    (base / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "net.A"}}))
    seen = look(base)
    modules = ("deep.py", "helper.py", "more.py", "net.py")
    assert seen.code == modules
    assert [(foreign.files, foreign.example) for foreign in seen.foreign] == [(1, "train.py")]
    (base / "deep.py").write_text("/home/ann/secret = 1")
    assert [leak.file for leak in look(base).leaks if leak.published] == ["deep.py"]
    for files in (publishable_files(base, "full"), carried_files(adapter, base)):
        assert {name for name in files if name.endswith(".py")} == set(modules)


@pytest.mark.parametrize("name", ["helper.py", "other.py"])
def test_code_of_a_model_counts_against_its_base(broken: Pair, name: str) -> None:
    base, _ = broken
    (base / "modeling_x.py").write_text("from .helper import f\n")
    (base / "helper.py").write_text("def f(): pass\n")
    config = json.loads((base / "config.json").read_bytes())
    auto = {"auto_map": {"AutoModel": "modeling_x.A"}}
    (base / "config.json").write_text(json.dumps({**config, **auto}))

    class There(NamedTuple):
        size: int
        oid: str
        sha256: str | None

    listing = {
        file.name: There(file.stat().st_size, "", sha256_file(file)) for file in base.iterdir()
    }
    assert check_base(base, "a/b", "0" * 40, listing).verdict == "equal"
    (base / name).write_text("def f(): evil\n")
    check = check_base(base, "a/b", "0" * 40, listing)
    assert (check.verdict, list(check.differing)) == ("weights equal", [name])
    (base / name).unlink()
    check = check_base(base, "a/b", "0" * 40, listing)
    assert check.verdict == ("equal" if name == "other.py" else "weights equal")
