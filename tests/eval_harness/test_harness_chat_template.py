"""The chat template rendered by us is the one that transformers renders, to the letter."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from eval_harness.chat_template import ChatTemplate
from eval_harness.errors import HarnessError

CHATML = """{%- if tools %}{{ '<|im_start|>system\\n# Tools\\n<tools>' }}
{%- for tool in tools %}{{ '\\n' }}{{ tool | tojson }}{%- endfor %}{{ '\\n</tools><|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=-1) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {%- set body = message.content %}
        {%- if message.reasoning_content is defined and loop.index0 > ns.last %}
            {%- set thought = message.reasoning_content.strip('\\n') %}
            {%- set body = '<think>\\n' + thought + '\\n</think>\\n' + body %}
        {%- elif '</think>' in body %}
            {%- set body = body.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant' }}{% if message.name is defined %}{{ message.name }}{% endif %}
        {{- '\\n' }}{% generation %}{{ body }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n' }}{{ call.function | tojson }}{{ '\\n</tool_call>' }}
        {%- endfor %}{% endgeneration %}{{ '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- set before = messages[loop.index0 - 1].role %}
        {%- if loop.first or before != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- set after = messages[loop.index0 + 1].role %}
        {%- if loop.last or after != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}
"""
HEADERS = """{{ bos_token }}
{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}
{% if messages[0]['role'] == 'system' %}
    {% set system = messages[0]['content'] | trim %}{% set messages = messages[1:] %}
{% else %}{% set system = '' %}{% endif %}
<|head|>system<|/head|>Today: {{ date_string }} {{ system }}{{ eos_token }}
{% for message in messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('user and assistant must take turns') }}
    {% endif %}
    {% if message.content == 'stop here' %}{% break %}{% endif %}
    <|head|>{{ message['role'] }}<|/head|>
    {% if loop.first and tools is not none %}
        {% for tool in tools %}{{ tool | tojson(indent=4) }}{{ '\\n\\n' }}{% endfor %}
    {% endif %}
    {{ message['content'] | trim }}{{ eos_token }}
{% endfor %}
{% if add_generation_prompt %}<|head|>assistant<|/head|>{% endif %}
"""
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Find passages <b>&'é'",
            "parameters": {
                "type": "object",
                "properties": {"query_list": {"type": "array", "items": {"type": "string"}}},
                "required": ["query_list"],
            },
        },
    }
]
ASKED = {"role": "user", "content": "Who wrote <Faust>?  \n"}
CALL = {
    "role": "assistant",
    "content": "Let me look.",
    "reasoning_content": "\nI should search.\n",
    "tool_calls": [
        {"type": "function", "function": {"name": "search", "arguments": {"query_list": ["Faust"]}}}
    ],
}
FOUND = {"role": "tool", "content": '{"result": "Doc 1 (Title: Faust)"}'}
CHATS: list[list[dict[str, Any]]] = [
    [ASKED],
    [{"role": "system", "content": "Be brief."}, ASKED],
    [ASKED, {"role": "assistant", "content": "x</think>\nGoethe", "name": None}, ASKED],
    [ASKED, CALL, FOUND, FOUND, {"role": "assistant", "content": "Goethe."}],
    [ASKED, {"role": "assistant", "content": "stop here"}, ASKED],
]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Writes a folder with a word-level tokenizer and the given template files."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    def make(**files: Any) -> Path:
        folder = tmp_path_factory.mktemp("template")
        Tokenizer(WordLevel({"<unk>": 0}, unk_token="<unk>")).save(str(folder / "tokenizer.json"))
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>"}
        config |= {"eos_token": {"content": "</s>", "__type": "AddedToken"}} | files.pop(
            "config", {}
        )
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        for name, text in files.items():
            path = folder / name.replace("__", "/")
            path.parent.mkdir(exist_ok=True)
            path.with_suffix(".jinja").write_text(text)
        return folder

    return make


def same(folder: Path, chat: list[dict[str, Any]], tools: list[Any], prompt: bool) -> str:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(folder).apply_chat_template(
        chat, tools=tools or None, tokenize=False, add_generation_prompt=prompt
    )
    ours = ChatTemplate.load(folder).render(chat, tools, add_generation_prompt=prompt)
    assert ours == theirs
    return ours


@pytest.mark.parametrize("text", [CHATML, HEADERS], ids=["chatml", "headers"])
@pytest.mark.parametrize("tools", [[], TOOLS], ids=["plain", "tools"])
def test_what_transformers_renders(checkpoint: Any, text: str, tools: list[Any]) -> None:
    folder = checkpoint(chat_template=text)
    chats = CHATS if text is CHATML else [chat for chat in CHATS if CALL not in chat]
    for chat in chats:
        for prompt in (True, False):
            same(folder, chat, tools, prompt)


def test_characters_are_not_escaped_and_nulls_are_dropped(checkpoint: Any) -> None:
    text = same(checkpoint(chat_template=CHATML), CHATS[2], TOOLS, True)
    assert "<b>&'é'" in text
    assert "None" not in text


def test_one_template_for_tools(checkpoint: Any) -> None:
    config = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    named = checkpoint(config={"chat_template": config})
    files = checkpoint(chat_template="plain", additional_chat_templates__tool_use="tools")
    for folder in (named, files):
        assert same(folder, [ASKED], TOOLS, True) == "tools"
        assert same(folder, [ASKED], [], True) == "plain"
    assert ChatTemplate.load(named).sha256 == ChatTemplate.load(files).sha256


def test_the_file_comes_before_the_configuration(checkpoint: Any) -> None:
    folder = checkpoint(config={"chat_template": "old"}, chat_template="new")
    assert same(folder, [ASKED], [], True) == "new"
    assert ChatTemplate.load(folder).sha256 == hashlib.sha256(b"new").hexdigest()


def test_an_override_replaces_the_template_and_its_digest(checkpoint: Any, tmp_path: Path) -> None:
    other = tmp_path / "tools.jinja"
    other.write_text("{{ bos_token }}mine")
    template = ChatTemplate.load(checkpoint(chat_template="theirs"), other)
    assert template.render([ASKED]) == "<s>mine"
    assert template.sha256 == hashlib.sha256(b"{{ bos_token }}mine").hexdigest()


def test_a_template_with_a_date_says_so(checkpoint: Any) -> None:
    assert ChatTemplate.load(checkpoint(chat_template=HEADERS)).dated
    assert not ChatTemplate.load(checkpoint(chat_template=CHATML)).dated


@pytest.mark.parametrize(
    "text",
    [
        "{{ messages.__class__.__mro__ }}{{ raise_exception('reached') }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{% set n = namespace(__init__=1) %}",
        "{% set n = namespace() %}{% set n['_x'] = 1 %}",
        "{% for message in messages %}",
        "{{ messages.append(1) }}",
        "{{ 1 / 0 }}",
        "{{ messages[0].content + 1 }}",
    ],
)
def test_a_hostile_or_broken_template_is_refused(checkpoint: Any, text: str) -> None:
    with pytest.raises(HarnessError) as caught:
        ChatTemplate.load(checkpoint(chat_template=text)).render([ASKED])
    assert caught.value.kind == "bad_model"
    assert "reached" not in caught.value.message or "__mro__" in text


def test_the_template_may_refuse(checkpoint: Any) -> None:
    with pytest.raises(HarnessError, match="must take turns"):
        ChatTemplate.load(checkpoint(chat_template=HEADERS)).render([ASKED, ASKED])


def test_no_template_and_no_json(checkpoint: Any) -> None:
    folder = checkpoint()
    with pytest.raises(HarnessError, match="no chat template"):
        ChatTemplate.load(folder)
    (folder / "chat_template.json").write_text('{"chat_template": "here"}')
    assert ChatTemplate.load(folder).render([ASKED]) == "here"
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(HarnessError, match=r"tokenizer_config\.json cannot be read"):
        ChatTemplate.load(folder)
