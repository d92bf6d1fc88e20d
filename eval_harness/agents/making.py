"""Agents by the name that a suite's `[agent]` table gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eval_harness.agents.search import SearchAgent, Settings, search_settings
from eval_harness.agents.single import SingleAgent
from eval_harness.errors import HarnessError
from eval_harness.retrievers.passages import Retriever

if TYPE_CHECKING:
    from eval_harness.chat import Agent
    from eval_harness.suite_model import Suite

KINDS = ("single", "search")
_ELSEWHERE = ("max_context", "max_new_tokens", "temperature", "top_p")


def make_agent(suite: Suite, retriever: Retriever | None = None) -> Agent:
    """The agent that answers `suite`.

    Args:
        suite: with its options.
        retriever: for an agent that searches.

    Raises:
        HarnessError: `bad_suite` for unknown settings, `no_retriever` when one is needed.
    """
    if agent_kind(suite.agent) == "single":
        return SingleAgent(suite.sampling)
    if retriever is None:
        raise HarnessError(
            "no_retriever",
            f"suite {suite.id} searches, and no retriever is there",
            next="add --retriever-url URL",
        )
    return SearchAgent(settings_of(suite), retriever)


def settings_of(suite: Suite) -> Settings:
    """The settings of a suite whose agent searches.

    Raises:
        HarnessError: `bad_suite` for unknown ones.
    """
    sampling = suite.sampling
    more: dict[str, Any] = {"max_new_tokens": sampling.max_new_tokens}
    more |= {"temperature": sampling.temperature, "top_p": sampling.top_p}
    if suite.max_context is not None:
        more["max_context"] = suite.max_context
    return search_settings(suite.agent, **more)


def agent_identity(table: Mapping[str, Any]) -> dict[str, Any]:
    """Everything of an agent that a suite does not say elsewhere; needs no retriever.

    Raises:
        HarnessError: `bad_suite` for an unknown kind or setting.
    """
    if agent_kind(table) == "single":
        return SingleAgent.IDENTITY
    whole = search_settings(table).identity()
    return {key: value for key, value in whole.items() if key not in _ELSEWHERE}


def agent_kind(table: Mapping[str, Any]) -> str:
    """`single` or `search`.

    Raises:
        HarnessError: `bad_suite` for another.
    """
    kind = str(table.get("kind", "single"))
    if kind not in KINDS:
        raise HarnessError(
            "bad_suite",
            f"agent: unknown kind {kind!r}",
            next=f"choose one of: {', '.join(KINDS)}",
        )
    return kind
