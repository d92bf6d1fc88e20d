from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from xet_encoder import Xorb

from hubtools.localhub.xet.plan import plan_json, plan_range
from hubtools.localhub.xet.shard import Term
from hubtools.localhub.xet.xorb import read_chunks, unpack_chunk

XORBS = [
    Xorb([bytes([10 * x + c]) * (1 + (3 * x + 5 * c) % 7) for c in range(6)]) for x in range(3)
]
BY_NAME = {xorb.name: xorb for xorb in XORBS}
CHUNKS = {xorb.name: list(read_chunks(xorb.body)) for xorb in XORBS}


@st.composite
def files(draw: st.DrawFn) -> list[Term]:
    terms = []
    for _ in range(draw(st.integers(0, 5))):
        xorb = draw(st.sampled_from(XORBS))
        start = draw(st.integers(0, 5))
        end = draw(st.integers(start + 1, 6))
        terms.append(Term(xorb.name, start, end, sum(map(len, xorb.chunks[start:end]))))
    return terms


def content(terms: list[Term]) -> bytes:
    return b"".join(b"".join(BY_NAME[t.xorb].chunks[t.start : t.end]) for t in terms)


@settings(max_examples=400)
@given(files(), st.data())
def test_following_a_plan_gives_the_bytes_asked_for(terms: list[Term], data: st.DataObject) -> None:
    whole = content(terms)
    start = data.draw(st.integers(0, max(0, len(whole) - 1)))
    end = data.draw(st.integers(start + 1, len(whole))) if whole else 0
    plan = plan_range(terms, CHUNKS.__getitem__, start, end)
    fetched: dict[tuple[bytes, int], bytes] = {}
    for fetch in plan.fetches:
        body = memoryview(BY_NAME[fetch.xorb].body[fetch.first : fetch.last + 1])
        at = 0
        for index in range(fetch.start, fetch.end):
            fetched[fetch.xorb, index], at = unpack_chunk(body, at)
        assert at == len(body)
    rebuilt = b""
    for term in plan.terms:
        run = b"".join(fetched[term.xorb, index] for index in range(term.start, term.end))
        assert len(run) == term.length
        rebuilt += run
    assert rebuilt[plan.skip : plan.skip + end - start] == whole[start:end]


@given(files(), st.data())
def test_a_plan_fetches_no_chunk_it_does_not_need(terms: list[Term], data: st.DataObject) -> None:
    whole = content(terms)
    start = data.draw(st.integers(0, max(0, len(whole) - 1)))
    end = data.draw(st.integers(start + 1, len(whole))) if whole else 0
    plan = plan_range(terms, CHUNKS.__getitem__, start, end)
    used = {(t.xorb, i) for t in plan.terms for i in range(t.start, t.end)}
    fetched = [(f.xorb, i) for f in plan.fetches for i in range(f.start, f.end)]
    assert sorted(fetched) == sorted(used)
    ends = {(f.xorb, f.end) for f in plan.fetches}
    assert not any((f.xorb, f.start) in ends for f in plan.fetches), "touching runs are one"
    if plan.terms:
        first, last = plan.terms[0], plan.terms[-1]
        assert plan.skip < CHUNKS[first.xorb][first.start].raw
        length = sum(term.length for term in plan.terms)
        assert plan.skip + end - start > length - CHUNKS[last.xorb][last.end - 1].raw


def test_the_answer_has_the_protocols_shape() -> None:
    xorb = XORBS[0]
    name = "".join(xorb.name[at : at + 8][::-1].hex() for at in range(0, 32, 8))
    terms = [Term(xorb.name, 0, 3, sum(map(len, xorb.chunks[:3])))]
    plan = plan_range(terms, CHUNKS.__getitem__, 2, 8)
    first, second = CHUNKS[xorb.name][1:3]
    assert plan_json(plan, lambda fetch: f"u{fetch.first}") == {
        "offset_into_first_range": 1,
        "terms": [{"hash": name, "unpacked_length": 10, "range": {"start": 1, "end": 3}}],
        "fetch_info": {
            name: [
                {
                    "range": {"start": 1, "end": 3},
                    "url": f"u{first.start}",
                    "url_range": {"start": first.start, "end": second.end - 1},
                }
            ]
        },
    }
