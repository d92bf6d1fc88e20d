"""What a person wrote on the Hub is never overwritten unseen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hub_state import remote_state
from huggingface_hub import HfApi

from hubtools.localhub.server import LocalHub

Hubtools = Callable[..., Any]


def test_a_card_written_by_hand_is_kept_until_it_is_adopted(
    hub: LocalHub, hubtools: Hubtools, family: Path
) -> None:
    api = HfApi(endpoint=hub.url, token=hub.token)
    api.create_repo("lab/tiny-red-s4")
    text = "---\nlicense: mit\n---\n# By hand\n\nWords of a person.\n"
    api.upload_file(
        path_or_fileobj=text.encode(), path_in_repo="README.md", repo_id="lab/tiny-red-s4"
    )
    before = remote_state(hub, ["lab/tiny-red-s4"])
    ended = hubtools("release", "--yes", str(family))
    assert ended.code == 3, ended.err
    assert "error[HT517]" in ended.err
    assert "hubtools card adopt lab/tiny-red-s4" in ended.err
    assert remote_state(hub, ["lab/tiny-red-s4"]) == before
    adopted = hubtools("card", "adopt", "lab/tiny-red-s4", "--family", str(family))
    assert adopted.code == 0, adopted.err
    assert "Words of a person." in Path(adopted.out.strip()).read_text()
    done = hubtools("release", "--yes", str(family))
    assert done.code == 0, done.err
    card = api.hf_hub_download("lab/tiny-red-s4", "README.md", cache_dir=family / "cache")
    assert "Words of a person." in Path(card).read_text()


def test_an_edit_in_the_web_editor_stops_the_next_release(
    hub: LocalHub, hubtools: Hubtools, family: Path
) -> None:
    assert hubtools("release", "--yes", str(family), "red/s4").code == 0
    api = HfApi(endpoint=hub.url, token=hub.token)
    card = Path(api.hf_hub_download("lab/tiny-red-s4", "README.md", cache_dir=family / "cache"))
    edited = card.read_text() + "\nA person's remark.\n"
    api.upload_file(
        path_or_fileobj=edited.encode(), path_in_repo="README.md", repo_id="lab/tiny-red-s4"
    )
    ended = hubtools("release", "--yes", str(family), "red/s4")
    assert ended.code == 3, ended.err
    assert "error[HT517]" in ended.err
    adopted = hubtools("card", "adopt", "red/s4", "--family", str(family))
    assert adopted.code == 0, adopted.err
    assert Path(adopted.out.strip()).read_text() == "A person's remark.\n"
    done = hubtools("release", "--yes", str(family), "red/s4")
    assert done.code == 0, done.err
