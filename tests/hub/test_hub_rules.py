"""What is refused before anything is sent; repo ids agree with the client library."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hubtools.hub.model import LocalFile, RepoPlan
from hubtools.hub.rules import path_problem, plan_findings, repo_id_problem

PARTS = st.text(alphabet="aZ09_.-é ", max_size=12)


@given(owner=PARTS, name=PARTS)
@example(owner="o", name="n" * 96)
@example(owner="o", name="n" * 97)
@example(owner="o", name="a--b")
@example(owner="o", name="a..b")
@example(owner="o", name="a.git")
@example(owner="o", name="a_")
def test_repo_ids_are_judged_as_the_client_judges_them(owner: str, name: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    repo = f"{owner}/{name}"
    try:
        validate_repo_id(repo)
        accepted = True
    except HFValidationError:
        accepted = False
    assert (repo_id_problem(repo) is None) == accepted


@pytest.mark.parametrize(
    ("repo", "words"),
    [
        ("name-alone", "must be owner/name"),
        ("a/b/c", "must be owner/name"),
        ("o/" + "n" * 97, "97 characters, the Hub allows 96"),
        ("o/a b", "holds ' '"),
        ("o/-a", "begin or end"),
        ("o/a--b", "-- or .."),
        ("o/a.git", "end with .git"),
    ],
)
def test_a_refused_repo_id_says_why(repo: str, words: str) -> None:
    assert words in str(repo_id_problem(repo))


@pytest.mark.parametrize(
    "path", ["", "/a", "a//b", "../a", "a/../b", "a/.git/b", ".cache/x", "a\nb"]
)
def test_paths_that_could_escape_or_that_the_hub_refuses(path: str) -> None:
    assert path_problem(path) is not None


@pytest.mark.parametrize("path", ["README.md", ".gitattributes", ".hubtools/release.json", "a/b c"])
def test_usual_paths_pass(path: str) -> None:
    assert path_problem(path) is None


def sized(path: str, size: int) -> LocalFile:
    return LocalFile(path, Path("/nowhere"), size, "0" * 64)


def test_everything_wrong_is_told_at_once() -> None:
    files = (sized("../x", 1), sized("big", 501 * 10**9), sized("large", 300 * 10**9))
    findings = plan_findings(RepoPlan("o/" + "n" * 97, "model", files, "public"))
    assert [(f.id, f.level) for f in findings] == [
        ("HT311", "error"),
        ("HT312", "error"),
        ("HT313", "error"),
        ("HT313", "warning"),
    ]
    assert all(f.where and f.next for f in findings)


def test_a_folder_holds_at_most_ten_thousand_entries() -> None:
    def found(count: int) -> list[str]:
        files = tuple(sized(f"data/{i}.txt", 1) for i in range(count))
        return [f.message for f in plan_findings(RepoPlan("o/n", "dataset", files, "public"))]

    assert found(10_000) == []
    assert found(10_001) == ["folder data has 10001 entries, the Hub allows 10000"]


def test_folders_count_as_entries_of_their_parent() -> None:
    files = tuple(sized(f"{i}/a/b.txt", 1) for i in range(10_001))
    (finding,) = plan_findings(RepoPlan("o/n", "model", files, "public"))
    assert finding.message == "folder / has 10001 entries, the Hub allows 10000"


def test_too_many_files_for_one_commit() -> None:
    files = tuple(sized(f"{i % 50}/{i}.txt", 1) for i in range(25_001))
    (finding,) = plan_findings(RepoPlan("o/n", "dataset", files, "public"))
    assert (finding.id, finding.level) == ("HT314", "error")
