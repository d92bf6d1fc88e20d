"""What the tests of this room share."""

from __future__ import annotations

from dataclasses import dataclass, field

TOKEN = "hf_SecretSecretSecretSecretSecret"


@dataclass
class Canned:
    """Answers in order; the last one is repeated. `(status, headers, body)`, or None: hang up."""

    url: str = ""
    answers: list[tuple[int, dict[str, str], bytes] | None] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
