from __future__ import annotations

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from xet_encoder import File, Xorb, encode_shard

from hubtools.localhub.objects import ObjectStore
from hubtools.localhub.xet.hashes import text_of
from hubtools.localhub.xet.ingest import take_shard, take_xorb, unpacked
from hubtools.localhub.xet.refusal import Refused
from hubtools.localhub.xet.shard import read_shard
from hubtools.localhub.xet.store import XetStore, hash_of_sha256

A = Xorb([bytes([n]) * (1000 + n) for n in range(40)], [n % 3 for n in range(40)])
B = Xorb([bytes(range(250)) * 20, b"tail"], [0, 1])


def file(**false: object) -> File:
    return File([(A, 3, 17), (B, 0, 1), (A, 0, 40), (B, 1, 2)], **false)


def send(store: XetStore, xorb: Xorb, name: bytes | None = None) -> bool:
    with store.incoming() as scratch:
        scratch.write_bytes(xorb.body)
        return take_xorb(store, name or xorb.name, scratch)


def register(store: XetStore, objects: ObjectStore, *files: File) -> bool:
    return take_shard(store, objects, read_shard(encode_shard(list(files), [])))


def kept(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_file_is_rebuilt_under_its_sha256(
    store: XetStore, objects: ObjectStore, tmp_path: Path
) -> None:
    assert send(store, A)
    assert send(store, B)
    assert not send(store, B), "a second time it is there already"
    wanted = file()
    assert register(store, objects, wanted)
    digest = sha256(wanted.content).hexdigest()
    assert objects.path(digest).read_bytes() == wanted.content
    record = store.file(wanted.name)
    assert record is not None
    assert (record.sha256, record.size) == (digest, len(wanted.content))
    assert b"".join(d for term in record.terms for d in unpacked(store, term)) == wanted.content
    assert hash_of_sha256(tmp_path, digest) == text_of(wanted.name)
    before = kept(tmp_path)
    assert not register(store, objects, wanted)
    assert kept(tmp_path) == before


def test_a_file_whose_object_was_removed_is_rebuilt(store: XetStore, objects: ObjectStore) -> None:
    send(store, B)
    wanted = File([(B, 0, 2)])
    register(store, objects, wanted)
    digest = sha256(wanted.content).hexdigest()
    objects.path(digest).unlink()
    assert register(store, objects, wanted)
    assert objects.path(digest).read_bytes() == wanted.content


def test_a_xorb_under_a_false_name_is_refused(store: XetStore, tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        send(store, A, name=B.name)
    assert caught.value.id == "HT651"
    assert text_of(A.name) in caught.value.message
    assert kept(tmp_path) == []


@pytest.mark.parametrize(
    ("wanted", "id", "why"),
    [
        (File([(Xorb([b"never sent"]), 0, 1)]), "HT653", "this storage has no xorb"),
        (file(sha256="ab" * 32), "HT657", "does not have the sha256"),
        (file(sha256=None), "HT656", "gives no sha256"),
        (file(length_error=1), "HT654", "chunks 3 to 17 are not"),
        (file(proof=bytes(32)), "HT654", "no proof of chunks 3 to 17"),
        (file(hash=b"\1" * 32), "HT654", "its chunks hash to"),
        (File([(A, 40, 41)]), "HT654", "chunks 40 to 41 of a xorb that has 40"),
        (File([(A, 5, 5)]), "HT654", "chunks 5 to 5 of a xorb that has 40"),
    ],
)
def test_a_false_shard_is_refused_and_leaves_nothing(
    store: XetStore, objects: ObjectStore, tmp_path: Path, wanted: File, id: str, why: str
) -> None:
    send(store, A)
    send(store, B)
    before = kept(tmp_path)
    with pytest.raises(Refused) as caught:
        register(store, objects, wanted)
    assert caught.value.id == id
    assert why in caught.value.message
    assert caught.value.next
    assert kept(tmp_path) == before


def test_one_false_file_keeps_the_whole_shard_out(
    store: XetStore, objects: ObjectStore, tmp_path: Path
) -> None:
    send(store, A)
    send(store, B)
    before = kept(tmp_path)
    with pytest.raises(Refused):
        register(store, objects, File([(A, 0, 1)]), file(length_error=-1))
    assert kept(tmp_path) == before


def test_a_shard_may_not_describe_a_xorb_that_is_not_here(
    store: XetStore, objects: ObjectStore
) -> None:
    with pytest.raises(Refused) as caught:
        take_shard(store, objects, read_shard(encode_shard([], [A])))
    assert caught.value.id == "HT653"
    assert "HF_XET_CACHE" in caught.value.next


def test_leftovers_of_a_killed_server_are_swept(tmp_path: Path) -> None:
    left = XetStore(tmp_path)
    (tmp_path / "xet" / "incoming" / "half").write_bytes(b"half a xorb")
    XetStore(tmp_path)
    assert kept(tmp_path) == []
    assert not left.has_xorb(A.name)


KILLED = """
import json, os, signal, sys
from pathlib import Path
sys.path[:0] = json.loads(sys.argv[2])
from test_xet_ingest import A, B, File, register, send
from hubtools.localhub.objects import ObjectStore
from hubtools.localhub.xet.store import XetStore

real, calls = {}, 0
def dying(name, at):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real[name](*args, **kwargs)
    return call

at = 0
while True:
    at += 1
    root = Path(sys.argv[1]) / str(at)
    root.mkdir()
    child = os.fork()
    if child == 0:
        for name in ("fsync", "replace", "rename", "mkdir", "unlink"):
            real[name] = getattr(os, name)
            setattr(os, name, dying(name, at))
        store, objects = XetStore(root), ObjectStore(root)
        send(store, A); send(store, B)
        register(store, objects, File([(A, 3, 17), (A, 0, 40)]))
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        break
print(json.dumps(at))
"""


def test_killed_at_any_step_it_holds_whole_things_or_none(tmp_path: Path) -> None:
    path = json.dumps([str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), path], check=True, capture_output=True
    )
    steps = json.loads(done.stdout)
    assert steps > 20
    wanted = File([(A, 3, 17), (A, 0, 40)])
    digest = sha256(wanted.content).hexdigest()
    for at in range(1, steps + 1):
        root = tmp_path / str(at)
        store, objects = XetStore(root), ObjectStore(root)
        assert not [name for name in kept(root / "xet") if "/." in name or "incoming" in name]
        if store.has_xorb(A.name):
            assert [(c.hash, c.raw) for c in store.chunks_of(A.name) or []] == A.nodes
            assert store.xorb_path(A.name).read_bytes() == A.body
        if store.file(wanted.name) is not None or hash_of_sha256(root, digest) is not None:
            assert objects.path(digest).read_bytes() == wanted.content
        if (root / "xet" / "sha256" / digest).exists():
            assert store.file(wanted.name) is not None
        send(store, A)
        register(store, objects, wanted)
        assert objects.path(digest).read_bytes() == wanted.content
        assert hash_of_sha256(root, digest) == text_of(wanted.name)
