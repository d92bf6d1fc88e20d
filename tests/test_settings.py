"""Settings: who wins, where a value came from, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubtools.errors import UsageError
from hubtools.settings import resolve


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_each_source_beats_the_ones_below_it(tmp_path: Path) -> None:
    deep = tmp_path / "project" / "runs"
    deep.mkdir(parents=True)
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "conf")}

    def hub(flag: str | None = None) -> tuple[str, str]:
        settings = resolve({"hub": flag}, environ=environ, start=deep)
        return settings.hub, settings.origins["hub"]

    assert hub() == ("https://huggingface.co", "default")
    user = write(tmp_path / "conf/hubtools/config.toml", 'hub = "https://user.example/"')
    assert hub() == ("https://user.example", str(user))
    project = write(
        tmp_path / "project/pyproject.toml", '[tool.hubtools]\nhub = "http://127.0.0.1:9"\n'
    )
    assert hub() == ("http://127.0.0.1:9", str(project))
    environ["HF_ENDPOINT"] = "https://hf.example"
    assert hub() == ("https://hf.example", "HF_ENDPOINT")
    environ["HUBTOOLS_HUB"] = "local"
    assert hub() == ("local", "HUBTOOLS_HUB")
    assert hub("https://flag.example") == ("https://flag.example", "--hub")


def test_each_value_has_its_own_origin(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", '[tool.hubtools]\nhub = "local"\n')
    environ = {"HOME": str(tmp_path), "HUBTOOLS_COLOR": "never"}
    settings = resolve({}, environ=environ, start=tmp_path)
    assert (settings.color, settings.origins["color"]) == ("never", "HUBTOOLS_COLOR")
    assert (settings.hub, settings.origins["hub"]) == ("local", str(tmp_path / "pyproject.toml"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[tool.hubtools]\nhubb = "local"\n', "did you mean 'hub'?"),
        ("[tool.hubtools]\nhub = 3\n", "hub must be a text, not 3"),
        ('[tool.hubtools]\nhub = "ftp://x"\n', "`local` or an http(s) URL"),
        ('[tool.hubtools]\ncolor = "blue"\n', "one of auto, always, never"),
        ("[tool]\nhubtools = 3\n", "must be a table"),
        ("[tool.hubtools\n", "cannot be read"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path / "pyproject.toml", text)
    with pytest.raises(UsageError) as caught:
        resolve({}, environ={"HOME": str(tmp_path)}, start=tmp_path)
    assert caught.value.id == "HT330"
    assert words in caught.value.message
    assert caught.value.where == str(path)


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        resolve({"hub": "https://me:sesame@hub.example"}, environ={"HOME": "/nonexistent"})
    assert "sesame" not in str(caught.value.to_json())
