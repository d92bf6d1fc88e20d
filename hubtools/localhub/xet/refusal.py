"""Why the storage says no: one exception with the HTTP status, and the limits it enforces."""

from __future__ import annotations

from hubtools.errors import CheckError

MAX_CHUNK = 128 << 10
"""Most raw bytes in one chunk; what bounds every decompression."""

MAX_XORB = 64 << 20
"""Most bytes of a serialised xorb, its footer not counted."""

MAX_FOOTER = 4 << 20
"""Most bytes of a xorb's footer, which is checked for its place and not read."""

MAX_SHARD = 64 << 20
"""Most bytes of a shard."""

_UPLOAD_AGAIN = (
    "upload the file again; if it persists, remove the client's xet cache "
    "($HF_XET_CACHE, by default $HF_HOME/xet) first"
)


class Refused(CheckError):
    """An upload or a query that the storage does not accept; nothing was stored.

    Args:
        id: HT650 to HT657, as listed in the error reference.
        message: what is wrong, in one line.
        status: the HTTP status of the answer.
    """

    def __init__(
        self, id: str, message: str, *, where: str = "", status: int = 400, next: str = ""
    ) -> None:
        super().__init__(
            id,
            message,
            where=where,
            detail=("Nothing was stored.",) if status == 400 else (),
            next=next or _UPLOAD_AGAIN,
        )
        self.status = status


def malformed_xorb(why: str, place: int) -> Refused:
    """HT650: the body of a xorb does not parse at byte `place`."""
    return Refused("HT650", f"not a valid xorb: {why}", where=f"byte {place}")


def false_xorb(claimed: str, actual: str) -> Refused:
    """HT651: the chunks of a xorb hash to another name than the one it was sent under."""
    return Refused("HT651", f"the content of this xorb hashes to {actual}", where=f"xorb {claimed}")


def malformed_shard(why: str, place: int) -> Refused:
    """HT652: the body of a shard does not parse at byte `place`."""
    return Refused("HT652", f"not a valid shard: {why}", where=f"byte {place}")


def unknown_xorb(xorb: str, file: str) -> Refused:
    """HT653: a shard refers to a xorb that was never uploaded here."""
    return Refused(
        "HT653",
        f"this storage has no xorb {xorb}",
        where=f"file {file}" if file else f"xorb {xorb}",
        next=(
            "remove the client's xet cache ($HF_XET_CACHE, by default $HF_HOME/xet), which "
            "remembers another server at this address, and upload again"
        ),
    )


def false_file(why: str, file: str) -> Refused:
    """HT654: a file's chunks contradict what the shard says of it (ranges, lengths, hashes)."""
    return Refused("HT654", f"the shard is false: {why}", where=f"file {file}")


def too_large(what: str, limit: int) -> Refused:
    """HT655: a body beyond the protocol's limit."""
    return Refused(
        "HT655",
        f"{what} of more than {limit} bytes",
        status=413,
        next="use the hf_xet client, which keeps to the limit",
    )
