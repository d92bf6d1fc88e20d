"""Small recordings of each format, written by us in the shape that its software writes."""

import base64
import json
from typing import Any

from log_lines import chunk, response

ANTHROPIC = {
    "id": "msg_01AbCdEfGhIjKlMnOpQrStUv",
    "type": "message",
    "role": "assistant",
    "model": "claude-x-20250101",
    "content": [{"type": "text", "text": "Hi"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 3, "output_tokens": 1},
}
ANTHROPIC_EVENTS = [
    {"type": "message_start", "message": {**ANTHROPIC, "content": [], "stop_reason": None}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
    {"type": "message_stop"},
]
RESPONSES = {
    "id": "resp_68600000aa",
    "object": "response",
    "created_at": 1751119980,
    "model": "gpt-x-2025-04-14",
    "status": "completed",
    "error": None,
    "output": [],
}
RESPONSES_EVENTS = [
    {"type": "response.created", "response": {**RESPONSES, "status": "in_progress"}},
    {"type": "response.output_text.delta", "delta": "Hi"},
    {"type": "response.completed", "response": RESPONSES},
]
GEMINI = {
    "candidates": [{"content": {"parts": [{"text": "Hi"}], "role": "model"}, "index": 0}],
    "modelVersion": "gemini-x",
    "responseId": "D5MUaYKeH9PjnsEPron42AQ",
    "usageMetadata": {"totalTokenCount": 4},
}
CONVERSE = {
    "output": {"message": {"role": "assistant", "content": [{"text": "Hi"}]}},
    "stopReason": "end_turn",
    "usage": {"totalTokens": 4},
}
OLLAMA = [
    {
        "model": "llama-x",
        "created_at": "2025-05-24T20:26:46.294874123Z",
        "message": {"role": "assistant", "content": "Hi"},
        "done": done,
    }
    for done in (False, True)
]


def events(*parts: Any) -> str:
    """Server-sent events, as OpenAI-like servers end them."""
    return "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"


def litellm(id: str = "chatcmpl-7", model: str = "model-x") -> dict[str, Any]:
    message = {"role": "assistant", "content": "Hi", "provider_specific_fields": None}
    return response(id, model, choices=[{"index": 0, "message": message}])


CASSETTE = {
    "version": 1,
    "interactions": [
        {
            "request": {
                "method": "POST",
                "uri": "https://api.example/v1/chat/completions",
                "body": json.dumps({"model": "alias-x", "messages": []}),
            },
            "response": {
                "status": {"code": 200},
                "headers": {"Date": ["Sat, 28 Jun 2025 14:13:33 GMT"]},
                "body": {"string": json.dumps(response("chatcmpl-v1"))},
            },
        },
        {
            "request": {"method": "GET", "uri": "https://api.example/health", "body": None},
            "response": {"status": {"code": 200}, "headers": {}, "body": {"string": "ok"}},
        },
        {
            "request": {"method": "POST", "uri": "https://api.example/v1/chat/completions"},
            "response": {"status": {"code": 429}, "headers": {}, "body": {"string": "slow down"}},
        },
    ],
}

HAR = {
    "log": {
        "version": "1.2",
        "entries": [
            {
                "startedDateTime": "2025-06-28T14:13:33.000Z",
                "request": {
                    "url": "https://api.example/v1/messages",
                    "postData": {"text": json.dumps({"model": "claude-x-20250101"})},
                },
                "response": {
                    "status": 200,
                    "headers": [{"name": "Content-Type", "value": "application/json"}],
                    "content": {
                        "encoding": "base64",
                        "text": base64.b64encode(json.dumps(ANTHROPIC).encode()).decode(),
                    },
                },
            }
        ],
    }
}

TAU2 = {
    "info": {"agent_info": {"llm": "gw/alias-x"}, "user_info": {"llm": "gw/alias-u"}},
    "tasks": [],
    "simulations": [
        {
            "task_id": "0",
            "termination_reason": "user_stop",
            "messages": [
                {"role": "assistant", "content": "Hello", "raw_data": None},
                {"role": "user", "content": "Hi", "raw_data": litellm("chatcmpl-u1", "model-u")},
                {"role": "assistant", "content": "Yes", "raw_data": litellm("chatcmpl-a1")},
                {"role": "tool", "content": "{}"},
                {"role": "assistant", "content": "Bye", "raw_data": litellm("chatcmpl-a2")},
            ],
        }
    ],
}

INSPECT = {
    "id": 1,
    "epoch": 1,
    "events": [
        {"event": "step", "action": "begin"},
        {
            "event": "model",
            "role": "grader",
            "model": "openai/alias-x",
            "timestamp": "2025-02-11T15:18:05-05:00",
            "output": {"model": "model-x"},
            "call": {"request": {"model": "alias-x"}, "response": response("chatcmpl-i1")},
        },
        {"event": "model", "model": "hf/own", "output": {"model": "own"}, "call": None},
    ],
}

LITELLM = {
    "original_response": json.dumps(response("chatcmpl-l1")),
    "standard_logging_object": {
        "model": "alias-x",
        "response": response("chatcmpl-l1", "alias-x"),
        "hidden_params": {},
        "stream": False,
        "startTime": 1780000000.5,
        "status": "success",
    },
}

MINI_SWE = {
    "trajectory_format": "mini-swe-agent-1.1",
    "info": {"config": {"model": {"model_name": "gw/alias-x"}}},
    "messages": [
        {"role": "user", "content": "Fix it"},
        {"role": "assistant", "content": "ls", "extra": {"response": litellm("chatcmpl-m1")}},
    ],
}

OPENHANDS = {
    "instance_id": "a-1",
    "metadata": {"llm_config": {"model": "gw/alias-x"}},
    "history": [
        {"action": "run", "tool_call_metadata": {"model_response": litellm("chatcmpl-o1")}},
        {"observation": "run", "tool_call_metadata": {"model_response": litellm("chatcmpl-o1")}},
        {"action": "finish"},
    ],
}

SWE_AGENT = {
    "trajectory": [{"action": "ls", "observation": "a", "response": "I look around"}],
    "replay_config": json.dumps({"agent": {"model": {"name": "alias-x"}}}),
}

OTEL = {
    "resourceSpans": [
        {
            "scopeSpans": [
                {
                    "spans": [
                        {
                            "name": "chat alias-x",
                            "startTimeUnixNano": "1780000000500000000",
                            "attributes": [
                                {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
                                {
                                    "key": "gen_ai.request.model",
                                    "value": {"stringValue": "alias-x"},
                                },
                                {
                                    "key": "gen_ai.response.model",
                                    "value": {"stringValue": "model-x"},
                                },
                                {"key": "gen_ai.response.id", "value": {"stringValue": "c-1"}},
                            ],
                        },
                        {"name": "tool", "attributes": []},
                    ]
                }
            ]
        }
    ]
}
SPAN = {
    "name": "chat alias-x",
    "start_time": "2026-05-28T20:26:40.500000Z",
    "attributes": {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "alias-x",
        "gen_ai.response.model": "model-x",
        "gen_ai.response.id": "c-1",
    },
}
TAU_BENCH = {
    "task_id": 0,
    "reward": 1.0,
    "traj": [{"role": who, "content": "Hi"} for who in ("system", "user", "assistant", "tool")],
}
VERL = {"input": "a", "output": "b", "gts": "c", "score": 1.0, "step": 3}
DISTILABEL = {"model_name": "alias-x", "distilabel_metadata": {}, "generation": "Hi"}

DOCUMENTS: dict[str, Any] = {
    "chat": response(),
    "chunk": chunk("c1", "model-x"),
    "Anthropic": ANTHROPIC,
    "Anthropic batch": {"custom_id": "1", "result": {"type": "succeeded", "message": ANTHROPIC}},
    "Responses": RESPONSES,
    "Gemini": GEMINI,
    "Converse": {"request": {}, "response": CONVERSE},
    "Ollama": {"request": {"model": "llama-x"}, "response": OLLAMA},
    "VCR": CASSETTE,
    "HAR": HAR,
    "τ²": TAU2,
    "Inspect": INSPECT,
    "LiteLLM": LITELLM,
    "mini-SWE-agent": MINI_SWE,
    "OpenHands": OPENHANDS,
    "SWE-agent": SWE_AGENT,
    "OpenTelemetry": OTEL,
    "span": SPAN,
    "τ-bench": TAU_BENCH,
    "verl": VERL,
    "distilabel": DISTILABEL,
}
