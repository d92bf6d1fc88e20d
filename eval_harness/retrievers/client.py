"""A retriever somewhere else, behind Search-R1's `/retrieve`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eval_harness.addresses import is_server, public_url
from eval_harness.errors import HarnessError
from eval_harness.retrievers.passages import Passage, RetrieverError

if TYPE_CHECKING:
    import httpx

ATTEMPTS = 4
TIMEOUT = 60.0
MOST = 256
"""Connections: as many as samples that are likely to be in flight."""
_PAUSE = 0.25
JSON = {"Content-Type": "application/json"}


class Client:
    """Asks a service at `url`; lives in one event loop.

    Args:
        url: of the service, without `/retrieve`.
        identity: what `service_identity` said.
    """

    def __init__(self, url: str, identity: Mapping[str, Any]) -> None:
        self._url, self._identity = url.rstrip("/"), dict(identity)
        self._shown = public_url(self._url)
        self._http: httpx.AsyncClient | None = None

    def identity(self) -> dict[str, Any]:
        """As given."""
        return dict(self._identity)

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        """One request. Scores are always asked for.

        Without them Search-R1's server fails, and mixes passages up when there are two queries.
        """
        body = {"queries": list(queries), "topk": topk, "return_scores": True}
        answer = await self._post(body)
        try:
            found = [[_passage(hit) for hit in hits] for hits in answer["result"]]
        except (KeyError, TypeError, ValueError) as error:
            raise RetrieverError(f"{self._shown}: no /retrieve answer: {error!r}") from error
        if len(found) != len(queries):
            raise RetrieverError(f"{self._shown}: {len(found)} results for {len(queries)} queries")
        return found

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def _post(self, body: Mapping[str, Any]) -> Any:
        import httpx

        if self._http is None:
            limits = httpx.Limits(max_connections=MOST, max_keepalive_connections=MOST)
            self._http = httpx.AsyncClient(timeout=TIMEOUT, limits=limits, trust_env=False)
        data = json.dumps(body).encode()  # ASCII: a model may write half a surrogate pair
        why = ""
        for attempt in range(ATTEMPTS):
            await asyncio.sleep(_PAUSE * (2**attempt - 1))
            try:
                response = await self._http.post(
                    f"{self._url}/retrieve", content=data, headers=JSON
                )
                if response.status_code == 200:
                    return response.json()
                why = f"HTTP {response.status_code}"
                if response.status_code < 500 and response.status_code != 429:
                    break
            except (httpx.HTTPError, ValueError, RecursionError) as error:
                why = f"{type(error).__name__}: {error}"
        raise RetrieverError(f"{self._shown}: {why}")


def service_identity(url: str) -> dict[str, Any]:
    """What the service at `url` says of itself at `/health`.

    Where it says nothing of its corpus, the corpus is named unknown, with the address: such runs
    compare with none elsewhere.

    Raises:
        HarnessError: `no_retriever` when nothing answers there.
    """
    import httpx

    url = url.rstrip("/")
    if not is_server(url):
        raise HarnessError(
            "no_retriever",
            "that is no address of a retriever",
            where=public_url(url),
            next="give it as --retriever-url http://HOST:PORT",
        )
    try:
        response = httpx.get(f"{url}/health", timeout=TIMEOUT, trust_env=False)
        said = response.json() if response.status_code == 200 else {}
    except (ValueError, RecursionError):
        said = {}
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise HarnessError(
            "no_retriever",
            f"no retriever answers: {type(error).__name__}",
            where=public_url(url),
            next="start it, or correct --retriever-url",
        ) from error
    identity = said.get("identity") if isinstance(said, dict) else None
    if isinstance(identity, dict) and identity.get("corpus_sha256"):
        return identity
    return {"name": "unknown", "corpus_sha256": f"unknown corpus at {public_url(url)}"}


def _passage(hit: Mapping[str, Any]) -> Passage:
    document = hit["document"]
    return Passage(str(document["id"]), str(document["contents"]), float(hit["score"]))
