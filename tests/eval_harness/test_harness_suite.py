from __future__ import annotations

import builtins
import hashlib
import http
import json
from importlib import import_module
from pathlib import Path

import pytest
from tiny_chat import write_suite

from eval_harness.errors import HarnessError
from eval_harness.scorers import normalise
from eval_harness.suite import load_suite, suite_names
from eval_harness.suites.short_qa import build

ITEMS = [json.loads(line) for line in build.ITEMS.read_text(encoding="utf-8").splitlines()]

NAMES = [
    "short_qa",
    *(f"sr1_7bench{kind}" for kind in ("", "-fixture", "-fixture-tools", "-tools")),
]


def made_item(**changes: object) -> str:
    item = {"id": "a", "category": "c", "question": "q", "context": "", "answers": ["x"]}
    return json.dumps({**item, **changes}) + "\n"


def test_items_are_what_the_packages_give_today() -> None:
    assert build.ITEMS.read_text(encoding="utf-8") == build.rendered()


def test_there_are_enough_items_and_the_manifest_names_them() -> None:
    suite = load_suite("short_qa")
    assert suite_names() == NAMES
    assert len(suite.items) == 64
    assert [item.id for item in suite.items] == [item["id"] for item in ITEMS]
    assert len({(item.question, item.context) for item in suite.items}) == 64
    assert {source["name"] for source in suite.sources} == {"pycountry", "periodictable", "python"}


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item["id"])
def test_every_answer_can_be_looked_up_another_way(item: dict) -> None:
    """Not through build.py: the other direction of each table is read."""
    [answer] = item["answers"]
    source = item["source"]
    match source["package"]:
        case "pycountry":
            import pycountry

            [country] = [c for c in pycountry.countries if answer in c._fields.values()]
            assert country.alpha_2 == source["key"]
            assert country._fields[source["field"]] == answer
        case "periodictable":
            table = import_module("periodictable").elements
            [element] = [
                e for e in table if e.number and answer in (str(e.number), e.symbol, e.name)
            ]
            assert element.symbol == source["key"]
            assert str(getattr(element, source["field"])) == answer
        case "python:builtins":
            kind = getattr(builtins, source["key"])
            assert answer == kind.__name__ or answer == kind.__mro__[1].__name__
            if source["field"] == "__name__":
                same = [
                    k for k in vars(builtins).values() if getattr(k, "__doc__", 0) == kind.__doc__
                ]
                assert same == [kind]
        case "python:http.HTTPStatus":
            [status] = [s for s in http.HTTPStatus if answer in (str(s.value), s.phrase)]
            assert str(status.value) == source["key"]
        case other:
            pytest.fail(f"no way to check {other}")


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item["id"])
def test_a_passage_holds_its_answer_and_the_question_does_not(item: dict) -> None:
    words = normalise(item["answers"][0])
    assert bool(item["context"]) == (words in normalise(item["context"]))
    assert f" {words} " not in f" {normalise(item['question'])} "


def test_prompts_are_short(tiny_chat: Path) -> None:
    suite = load_suite("short_qa")
    assert max(len(suite.messages(item)[0]["content"]) for item in suite.items) < 600


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"items_sha256": "00"}, "bad_suite", "items_sha256 is not that of items.jsonl"),
        ({"metric": ["em/1"]}, "bad_suite", "unknown key 'metric'; did you mean 'metrics'?"),
        ({"scorers": ["em/9"]}, "bad_suite", "unknown scorer 'em/9'; known: em/1, "),
        ({"extractor": "x"}, "bad_suite", "unknown extractor 'x'"),
        ({"schema": 1}, "bad_suite", "schema 1, but this version reads 2"),
        ({"average": "mean"}, "bad_suite", "average 'mean' is neither micro nor macro"),
        ({"trials": 0}, "bad_suite", "trials 0 is less than 1"),
        ({"scorers": ["em/1", "em/1"]}, "bad_suite", "metrics need one name each"),
        ({"items": "../items.jsonl"}, "bad_suite", "items lies outside the suite's folder"),
    ],
)
def test_mistakes_in_a_suite_are_named(
    tmp_path: Path, changes: dict, kind: str, words: str
) -> None:
    folder = write_suite(tmp_path / "words", 4, **changes)
    with pytest.raises(HarnessError) as caught:
        load_suite(folder)
    assert caught.value.kind == kind
    assert words in caught.value.message
    assert caught.value.where == str(folder / "suite.toml")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("not json\n", "line 1 is not an item"),
        ('{"id": "a"}\n', "line 1 is not an item"),
        ('{"id":"a","category":"","question":"","context":"","answers":[]}\n', "has no answer"),
        ("", "no items"),
        (made_item(answers="Paris"), "answers is 'Paris', not a list of texts"),
        (made_item(answers={"a": 1}), "answers is .*, not a list of texts"),
        (made_item(answers=[None]), "one of answers is None, not a text"),
        (made_item(answers=[" "]), "or a blank one"),
        (made_item(question=None), "question is None, not a text"),
        (made_item(question="\ud83d"), "question holds half a surrogate pair"),
        (made_item(id="\ud83d"), "id holds half a surrogate pair"),
        (made_item(id=["a"]), "id is .*, not a text"),
        (made_item(category=["a"]), "category is .*, not a text"),
        (made_item(category=""), "category '' cannot head a column"),
        (made_item(category="a\nb"), "cannot head a column"),
        (made_item(category="a|b"), "cannot head a column"),
        (made_item(category="macro"), "category cannot be 'macro': that name is taken"),
        ("[" * 100_000 + "\n", "line 1 is not an item"),
    ],
)
def test_mistakes_in_items_are_named_with_their_line(tmp_path: Path, line: str, words: str) -> None:
    folder = write_suite(tmp_path / "words", 1)
    (folder / "items.jsonl").write_text(line)
    text = (folder / "suite.toml").read_text()
    old = text.split('items_sha256 = "')[1][:64]
    text = text.replace(old, hashlib.sha256(line.encode()).hexdigest())
    (folder / "suite.toml").write_text(text)
    with pytest.raises(HarnessError, match=words):
        load_suite(folder)


def test_an_unfillable_prompt_and_an_unknown_name_are_refused(tmp_path: Path) -> None:
    folder = write_suite(tmp_path / "words", 2)
    toml = folder / "suite.toml"
    toml.write_text(toml.read_text().replace('"{question}"', '"{query}"'))
    with pytest.raises(HarnessError, match="prompt cannot be filled for item w-00"):
        load_suite(folder)
    with pytest.raises(HarnessError) as caught:
        load_suite("short_q")
    assert caught.value.kind == "unknown_suite"
    assert caught.value.next == f"choose one of: {', '.join(NAMES)}, or give a path"


def test_the_digest_follows_what_is_asked_and_not_the_words_about_it(tmp_path: Path) -> None:
    plain = load_suite(write_suite(tmp_path / "a" / "words", 4))
    retitled = load_suite(write_suite(tmp_path / "b" / "words", 4, title="Other", description=""))
    longer = load_suite(write_suite(tmp_path / "c" / "words", 5))
    renumbered = load_suite(write_suite(tmp_path / "d" / "words", 4, version="2"))
    assert plain.digest == retitled.digest
    assert len({plain.digest, longer.digest, renumbered.digest}) == 3


def test_a_suite_may_extend_a_bundled_one(tmp_path: Path) -> None:
    base = load_suite("sr1_7bench-fixture")
    path = tmp_path / "suite.toml"
    head = 'extends = "sr1_7bench-fixture"\nschema = 2\nid = "mine"\n'
    path.write_text(f"{head}[agent]\ntopk = 5\n")
    mine = load_suite(path)
    assert (mine.id, mine.base, mine.items) == ("mine", base.base, base.items)
    assert mine.agent == {**base.agent, "topk": 5}
    assert mine.digest != base.digest
    path.write_text(head.replace("sr1_7bench-fixture", str(tmp_path)))
    with pytest.raises(HarnessError, match="no bundled suite"):
        load_suite(path)
    path.write_text(f"{head}agents = 1\n")
    with pytest.raises(HarnessError, match="unknown key 'agents'; did you mean 'agent'"):
        load_suite(path)


def test_calls_and_tags_are_two_suites_over_the_same_questions() -> None:
    tags, calls = load_suite("sr1_7bench-fixture"), load_suite("sr1_7bench-fixture-tools")
    assert tags.items == calls.items
    changed = {k for k, v in tags.identity().items() if calls.identity()[k] != v}
    assert changed == {"id", "agent", "prompt"}


def test_a_benchmark_without_pins_needs_consent() -> None:
    for name in ("sr1_7bench", "sr1_7bench-tools"):
        with pytest.raises(HarnessError, match="not pinned") as caught:
            load_suite(name)
        assert caught.value.kind == "unpinned"
        assert caught.value.next.startswith("hubtools evaluate pin sr1_7bench ")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        *(
            ('id = "words"', f"id = {json.dumps(name)}", "cannot name a folder")
            for name in (
                "../../../pwned",
                "/tmp/abs",
                "..",
                ".",
                "",
                "log",
                "x" * 300,
                "a\0b",
                "a/b",
            )
        ),
        ("max_new_tokens = 8", "max_new_tokens = -5", "max_new_tokens -5 is less than 1"),
        ("max_new_tokens = 8", "max_new_tokens = 1.5", "max_new_tokens is 1.5, not a whole"),
        *(
            ("temperature = 0.0", f"temperature = {value}", "not a number from 0")
            for value in ("-1", "nan", "inf", '"x"', "true")
        ),
        ("temperature = 0.0", "temperature = 0.0\ntop_p = 7", "top_p is 7, not a number from 0"),
        ("temperature = 0.0", 'temperature = 0.0\nstop = "abc"', "stop is 'abc', not a list"),
        ('version = "1"', 'version = "1"\ntrials = 2.7', "trials is 2.7, not a whole number"),
        ('"{question}"', '"{question.foo}"', "holds {question.foo} with something in it"),
        ('"{question}"', '"{question:>3000000000}"', "holds {question} with something in it"),
        ('"{question}"', '"{question!r}"', "holds {question} with something in it"),
        ('name = "em"', 'name = ""', "cannot head a column"),
        ('name = "em"', 'name = "failures"', "that name is taken"),
        ('version = "1"', 'version = "1"\nretriever = {day = 2020-01-01}', "not JSON serial"),
    ],
)
def test_values_that_no_suite_can_have(tmp_path: Path, old: str, new: str, words: str) -> None:
    folder = write_suite(tmp_path / "words", 2)
    toml = folder / "suite.toml"
    assert old in toml.read_text()
    toml.write_text(toml.read_text().replace(old, new))
    with pytest.raises(HarnessError) as caught:
        load_suite(folder)
    assert (caught.value.kind, caught.value.where) == ("bad_suite", str(toml))
    assert words in caught.value.message


def test_whole_numbers_are_answers_and_doubled_braces_are_text(tmp_path: Path) -> None:
    folder = write_suite(tmp_path / "words", 1)
    raw = made_item(answers=[1945, "x"]).encode()
    toml = folder / "suite.toml"
    old = hashlib.sha256((folder / "items.jsonl").read_bytes()).hexdigest()
    (folder / "items.jsonl").write_bytes(raw)
    text = toml.read_text().replace(old, hashlib.sha256(raw).hexdigest())
    toml.write_text(text.replace('"{question}"', '"{{}} {question}"'))
    suite = load_suite(folder)
    assert suite.items[0].answers == ("1945", "x")
    assert suite.messages(suite.items[0])[0]["content"] == "{} q"
