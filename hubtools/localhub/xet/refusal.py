"""Why the storage says no: one exception with the HTTP status, and the limits it enforces."""

from __future__ import annotations

from hubtools.errors import CheckError

MAX_CHUNK = 128 << 10
"""Most raw bytes in one chunk; what bounds every decompression."""

MAX_XORB = 64 << 20
"""Most raw bytes in one xorb. Clients count these, so a serialised one may be longer."""

MAX_OVERHEAD = 4 << 20
"""Most bytes a serialised xorb may have beyond that: the chunks' headers and the footer."""

MAX_SHARD = 64 << 20
"""Most bytes of a shard."""

_UPLOAD_AGAIN = (
    "upload the file again; if it persists, remove the client's xet cache "
    "($HF_XET_CACHE, by default $HF_HOME/xet) first"
)


class Refused(CheckError):
    """A request that the storage does not answer as wished.

    Args:
        id: HT650 to HT657 for uploads, HT658 for access, HT659 for queries.
        message: what is wrong, in one line.
        status: the HTTP status of the answer.
        where: the xorb, file or byte it is about.
        stored: what is to be said about the storage; empty for queries.
        next: what the user can do.
    """

    def __init__(
        self, id: str, message: str, *, status: int, where: str = "", stored: str = "", next: str
    ) -> None:
        super().__init__(id, message, where=where, detail=(stored,) if stored else (), next=next)
        self.status = status


def _upload(
    id: str, message: str, where: str = "", status: int = 400, next: str = _UPLOAD_AGAIN
) -> Refused:
    return Refused(id, message, status=status, where=where, stored="Nothing was stored.", next=next)


def malformed_xorb(why: str, place: int) -> Refused:
    """HT650: the body of a xorb does not parse at byte `place`."""
    return _upload("HT650", f"not a valid xorb: {why}", f"byte {place}")


def false_xorb(claimed: str, actual: str) -> Refused:
    """HT651: the chunks of a xorb hash to another name than the one it was sent under."""
    return _upload("HT651", f"the content of this xorb hashes to {actual}", f"xorb {claimed}")


def malformed_shard(why: str, place: int) -> Refused:
    """HT652: the body of a shard does not parse at byte `place`."""
    return _upload("HT652", f"not a valid shard: {why}", f"byte {place}")


def unknown_xorb(xorb: str, file: str) -> Refused:
    """HT653: a shard refers to a xorb that was never uploaded here."""
    return _upload(
        "HT653",
        f"this storage has no xorb {xorb}",
        f"file {file}" if file else f"xorb {xorb}",
        next=(
            "remove the client's xet cache ($HF_XET_CACHE, by default $HF_HOME/xet), which "
            "remembers another server at this address, and upload again"
        ),
    )


def false_file(why: str, file: str) -> Refused:
    """HT654: a file's chunks contradict what the shard says of it (ranges, lengths, hashes)."""
    return _upload("HT654", f"the shard is false: {why}", f"file {file}")


def too_large(what: str, limit: int) -> Refused:
    """HT655: a body beyond the protocol's limit."""
    return _upload(
        "HT655",
        f"{what} of more than {limit} bytes",
        status=413,
        next="use the hf_xet client, which keeps to the limit",
    )


def no_sha256(file: str) -> Refused:
    """HT656: a shard without the digest by which a repo refers to the file."""
    return _upload("HT656", "the shard gives no sha256 for this file", f"file {file}")


def false_sha256(claimed: str, file: str) -> Refused:
    """HT657: the rebuilt file has another digest than the shard claims."""
    why = f"the content of this file does not have the sha256 {claimed}"
    return _upload("HT657", why, f"file {file}")


def no_access(why: str, status: int) -> Refused:
    """HT658: a token or a ticket that does not allow this."""
    again = "ask the Hub for a new xet token (clients do so by themselves)"
    return Refused("HT658", why, status=status, next=again)


def bad_query(why: str, status: int = 400) -> Refused:
    """HT659: a file or a range that is not there, or not readable as one."""
    again = "ask for the file again through the Hub's resolve URL"
    return Refused("HT659", why, status=status, next=again)
