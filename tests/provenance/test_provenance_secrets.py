"""Secrets: every kind in every place it hides, nothing of it in the finding, few false alarms.

Key-looking strings are put together at run time, so that this file holds none.
"""

import json
import random
import string

import pytest

from hubtools.provenance.secrets import scan_bytes, scan_text

HEX, BASE62 = "0123456789abcdef", string.ascii_letters + string.digits


def drawn(n: int, alphabet: str = BASE62) -> str:
    return "".join(random.Random(n).choices(alphabet, k=n))


def keys() -> dict[str, str]:
    parts = "-".join(drawn(n, HEX) for n in (8, 4, 4, 4, 12))
    return {
        "Hugging Face token": "hf_" + drawn(34),
        "Anthropic key": "sk-" + "ant-api03-" + drawn(80),
        "OpenRouter key": "sk-" + "or-v1-" + drawn(64, HEX),
        "Langfuse key": "sk-" + "lf-" + parts,
        "OpenAI-style key": "sk-" + "proj-" + drawn(60),
        "xAI key": "xai-" + drawn(80),
        "Groq key": "gsk_" + drawn(52),
        "Google key": "AIza" + drawn(35),
        "AWS access key id": "AKIA" + drawn(16, string.ascii_uppercase + "234567"),
        "GitHub token": "ghp_" + drawn(36),
        "GitLab token": "glpat-" + drawn(20),
        "Slack token": "xoxb-" + drawn(40),
    }


PLACES = {
    "JSON value": lambda key: json.dumps({"key": key}),
    "after a line break in JSON": lambda key: json.dumps({"text": f"set\n{key}\nand run"}),
    "environment": lambda key: f"export KEY={key}",
    "prose": lambda key: f"my key is {key}, do not tell",
    "end of file": lambda key: key,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", keys())
def test_every_key_is_found_and_not_shown(kind: str, place: str) -> None:
    key = keys()[kind]
    text = "first line\nsecond line\n" + PLACES[place](key) + "\n"
    (finding,) = scan_text("data.jsonl", text)
    assert finding.message == f"{kind} ending in …{key[-2:]} would be published"
    assert (finding.id, finding.level, finding.where) == ("HT250", "error", "data.jsonl:3")
    shown = json.dumps(finding.to_json(), ensure_ascii=False)
    assert not any(key[i : i + 4] in shown for i in range(4, len(key) - 4))
    assert scan_bytes("data.jsonl", b"\xff\n" + text.encode())[0].where == "data.jsonl:4"


def test_older_and_plain_openai_style_keys() -> None:
    for key in ("sk-" + drawn(48), "sk-" + drawn(32, HEX)):
        (finding,) = scan_text("x", f"OPENAI_API_KEY={key}")
        assert finding.message.startswith("OpenAI-style key")


@pytest.mark.parametrize(
    ("kind", "before", "secret", "after"),
    [
        ("authorization header", '{"Authorization": "Basic ', drawn(24), '"}'),
        ("authorization header", "authorization: Bearer ", drawn(40), ""),
        ("authorization header", '{"x-api-key": "', drawn(32), '"}'),
        ("bearer token", "curl -H 'A: Bearer ", drawn(40), "'"),
        ("AWS secret key", "aws_secret_access_key = ", drawn(40), ""),
        ("AWS secret key", '{"AwsSecretAccessKey": "', drawn(40), '"}'),
        ("password in a URL", "postgres://app:", "correct-horse", "@db/x"),
        ("filled-in secret field", '{"api_key": "', "dummy", '"}'),
        ("filled-in secret field", '{"t": "{\\"password\\": \\"', "hunter2", '\\"}"}'),
    ],
)
def test_secrets_known_by_their_place(kind: str, before: str, secret: str, after: str) -> None:
    (finding,) = scan_text("x", before + secret + after)
    assert finding.message.startswith(kind)
    assert secret not in finding.message


def test_a_private_key_block_is_found() -> None:
    for kind in ("", "RSA ", "OPENSSH ", "EC "):
        block = f"-----BEGIN {kind}PRIVATE " + "KEY-----"
        (finding,) = scan_text("id", f"{block}\nMIIE\n")
        assert finding.message == "private key block would be published"
    assert scan_text("id", "-----BEGIN PUBLIC " + "KEY-----") == []


@pytest.mark.parametrize(
    "text",
    [
        "the sk-learn package, ask-" + "a" * 40,
        "task-" + drawn(40),
        "call your_key hf_" + "x" * 34,
        'client = OpenAI(api_key="EMPTY")',
        '{"api_key": "${OPENAI_API_KEY}", "token": "<your token>", "password": ""}',
        '{"api_key": "[redacted]", "Authorization": "***"}',
        "sha256:" + drawn(64, HEX),
        "https://huggingface.co/org/model@main",
        "bearer of bad news and of a long story",
        '{"password": {"type": "string"}}',
        "Authorization: Bearer $HF_TOKEN",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert scan_text("x", text) == []


def test_findings_come_in_order_and_once_per_place() -> None:
    a, b = keys()["Hugging Face token"], keys()["Google key"]
    found = scan_text("x", f"Authorization: Bearer {a}\n{b}\n{a}")
    assert [finding.where for finding in found] == ["x:1", "x:2", "x:3"]
    assert found[0].message.startswith("Hugging Face token")


def test_megabytes_without_secrets_are_quick() -> None:
    import time

    text = json.dumps({drawn(n % 40 + 5): n for n in range(200_000)})
    start = time.process_time()
    assert scan_text("tokenizer.json", text) == []
    assert len(text) / (time.process_time() - start) > 2e6
