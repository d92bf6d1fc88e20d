"""A server to ask: one that we start for a checkpoint, or one that somebody else runs.

One server answers all suites of a checkpoint. Whatever is asked of it afterwards, we know what it
serves: what it says is compared with what was meant before the first question.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_harness.addresses import Credentials, is_server, public_url, split_user
from hubtools.errors import AuthError, CheckError, EnvironmentFailure, UsageError
from hubtools.evaluation import vllm_server
from hubtools.evaluation.engine_environment import check_environment, engine_python, engine_versions
from hubtools.evaluation.engine_process import first_word, free_port, running, wait_until_ready
from hubtools.evaluation.scrub import scrub
from hubtools.evaluation.spec import Engine, Target
from hubtools.progress import Progress, silent

__all__ = ["Server", "engine_versions", "serving"]

_SERVE = "from transformers.cli.transformers import main; main()"
START = 1800.0
"""Seconds that a server may take to load its weights."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server with the OpenAI API.

    Args:
        url: up to and including `/v1`.
        served_name: the model to ask for.
        root: what the server says it serves, a path for vLLM; empty when it does not say.
        max_model_len: tokens of prompt and answer together; None when it does not say.
        describe: for the record: engine, versions, settings; JSON values, no paths, no secrets.
    """

    url: str
    served_name: str
    root: str
    max_model_len: int | None
    describe: Mapping[str, Any]


@contextlib.contextmanager
def serving(
    target: Target,
    engine: Engine,
    *,
    log: Path,
    progress: Progress = silent,
    timeout: float = START,
) -> Iterator[Server]:
    """A server that answers as `target`; one that we started is gone when the block is left.

    Args:
        target: its digest was checked by the caller; that the server serves this folder is
            checked here.
        engine: `vllm` and `transformers` are started, an `endpoint` is only looked at.
        log: what a started server says is appended.
        progress: told how long the start has taken.
        timeout: seconds for the start.

    Raises:
        EnvironmentFailure: HT404 the endpoint does not answer, HT435 no vLLM, HT436 packages that
            do not fit, HT437 it did not start (with the log's reasons).
        AuthError: HT405 the endpoint refuses the key.
        CheckError: HT438 something else is served.
        UsageError: HT439 this engine cannot serve this target.
    """
    if engine.kind == "endpoint":
        yield _endpoint(target, engine)
        return
    if target.model is None:
        raise UsageError(
            "HT439",
            f"the engine {engine.kind} needs a checkpoint folder",
            next="name the folder, or ask a running server with --endpoint URL",
        )
    start = _vllm if engine.kind == "vllm" else _transformers
    with start(target, engine, log, progress, timeout) as server:
        yield server


def require_servable(target: Target, engine: Engine) -> None:
    """Known without a start: whether a harness that asks an address can be given one.

    Raises:
        UsageError: HT439.
    """
    if engine.kind == "transformers" and target.adapter is not None:
        raise UsageError(
            "HT439",
            "transformers serves whole checkpoints, not adapters, and this suite asks a server",
            where=str(target.adapter),
            detail=("Nothing was started.",),
            next='use --engine vllm (in a manifest: [evaluation] engine = "vllm"), or merge it'
            " first: hubtools merge --help",
        )


@contextlib.contextmanager
def _vllm(
    target: Target, engine: Engine, log: Path, progress: Progress, timeout: float
) -> Iterator[Server]:
    python = engine_python(engine.python)
    versions = check_environment(python, engine.device)
    name = engine.served_name or target.member
    port = free_port()
    argv = vllm_server.command(python, target, engine, name, port)
    url = f"http://127.0.0.1:{port}/v1"
    since = log.stat().st_size if log.is_file() else 0
    env = vllm_server.environment(target, engine)
    with running(argv, {**env, **_chosen(env)}, log) as guard:
        wait_until_ready(
            guard,
            f"http://127.0.0.1:{port}/health",
            log=log,
            since=since,
            timeout=timeout,
            what=f"start vllm for {target.member}",
            progress=progress,
        )
        models = _models(url, Credentials(url, ""), trust_env=False)
        length = _checked(models, target, name, url)
        word = first_word(url, name, log, since)
        told = {"max_model_len": length, "system_fingerprint": word["system_fingerprint"]}
        described = vllm_server.described(target, engine, versions, told)
        yield Server(url, name, _root(models[name]), length, described)


@contextlib.contextmanager
def _transformers(
    target: Target, engine: Engine, log: Path, progress: Progress, timeout: float
) -> Iterator[Server]:
    """`transformers serve`, for harnesses that need an address."""
    assert target.model is not None
    require_servable(target, engine)
    port = free_port()
    argv = [sys.executable, "-c", _SERVE, "serve", "model", "--host", "127.0.0.1"]
    argv += ["--port", str(port), "--dtype", engine.dtype, "--device", engine.device]
    env = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    since = log.stat().st_size if log.is_file() else 0
    with tempfile.TemporaryDirectory(prefix="hubtools-") as folder:
        # It answers to the name of the folder alone, and no record should hold the user's paths.
        Path(folder, "model").symlink_to(target.model.resolve(), target_is_directory=True)
        with running([*argv, *engine.options], env, log, cwd=Path(folder)) as guard:
            wait_until_ready(
                guard,
                f"http://127.0.0.1:{port}/health",
                log=log,
                since=since,
                timeout=timeout,
                what=f"start transformers serve for {target.member}",
                progress=progress,
            )
            url = f"http://127.0.0.1:{port}/v1"
            first_word(url, "model", log, since)
            described = {
                "engine": "transformers serve",
                "versions": engine_versions(Path(sys.executable)),
                "dtype": engine.dtype,
                "device": engine.device,
                "served_as": "model",
                "options": list(engine.options),
            }
            yield Server(url, "model", str(target.model), None, described)


def _endpoint(target: Target, engine: Engine) -> Server:
    """What a running server says about itself; a service need not say much."""
    url = engine.url.rstrip("/")
    credentials = _checked_address(url, engine.api_key_env)
    models = _models(url, credentials, trust_env=True)
    name = engine.served_name or (next(iter(models)) if len(models) == 1 else "")
    if not name:
        raise UsageError(
            "HT439",
            "which of the server's models is meant?",
            where=public_url(url),
            detail=(f"It lists: {', '.join(sorted(models)[:20]) or 'none'}.",),
            next="name one with --model NAME",
        )
    length = None
    if any(_root(entry) for entry in models.values()):  # it lists what it serves: vLLM, SGLang
        length = _checked(models, target, name, url)
    entry = models.get(name, {})
    described = {
        "engine": "endpoint",
        "listed": name in models,
        "owned_by": scrub(entry.get("owned_by")),
        "root": "stated" if _root(entry) else "unknown",
        "max_model_len": length,
        **_version(url, credentials),
    }
    return Server(url, name, _root(entry), length, described)


def _checked_address(url: str, key_env: str) -> Credentials:
    """What is to be sent along.

    Raises:
        EnvironmentFailure: HT404: nothing can be asked at this address.
        AuthError: HT405: the key cannot be sent.
    """
    if not is_server(url):
        raise EnvironmentFailure(
            "HT404",
            "that is no address of a server",
            where=public_url(url),
            detail=("Nothing was asked. A password may not hold / ? # @: write them as %2F …",),
            next="give it as --endpoint http://HOST:PORT/v1",
        )
    credentials = Credentials(url, key_env)
    if not credentials.sendable:
        raise AuthError(
            "HT405",
            f"the key in {key_env} has characters that no header can hold",
            where=public_url(url),
            detail=("Nothing was asked.",),
            next=f"set {key_env} to the key alone, without line breaks",
        )
    return credentials


def _checked(
    models: Mapping[str, Mapping[str, Any]], target: Target, name: str, url: str
) -> int | None:
    """The context length of `name`, once it is known to be the folder that was meant.

    Raises:
        CheckError: HT438.
    """
    if name not in models:
        raise _other(f"the server does not serve {name!r}", url, f"It lists: {', '.join(models)}.")
    entry = models[name]
    meant = target.adapter or target.model
    if meant is not None and not _same_folder(_root(entry), meant):
        raise _other(f"the server serves {_root(entry)!r} as {name!r}", url, f"Meant was {meant}.")
    base = models.get(str(entry.get("parent")), entry)
    if target.adapter is not None:
        assert target.model is not None
        if base is entry or not _same_folder(_root(base), target.model):
            raise _other(
                f"the server's adapter {name!r} lies on {_root(base)!r}",
                url,
                f"Meant was {target.model}.",
            )
    length = base.get("max_model_len")
    return length if isinstance(length, int) else None


def _same_folder(root: str, meant: Path) -> bool:
    return bool(root) and Path(root).resolve() == meant.resolve()


def _other(message: str, url: str, detail: str) -> CheckError:
    return CheckError(
        "HT438",
        message,
        where=public_url(url),
        detail=(detail, "Nothing was asked."),
        next="name what the server serves, or let hubtools start one: --engine vllm",
    )


def _root(entry: Mapping[str, Any]) -> str:
    root = entry.get("root")
    return root if isinstance(root, str) else ""


def _models(url: str, credentials: Credentials, *, trust_env: bool) -> dict[str, dict[str, Any]]:
    """Name → entry of `/models`, without credentials; empty where a server has no such page.

    Raises:
        EnvironmentFailure: HT404.
        AuthError: HT405.
    """
    import httpx

    page, headers = f"{split_user(url)[0]}/models", credentials.headers()
    try:
        response = httpx.get(page, headers=headers, timeout=30, trust_env=trust_env)
    except (httpx.RequestError, httpx.InvalidURL) as error:
        raise EnvironmentFailure(
            "HT404",
            f"the server does not answer: {type(error).__name__}",
            where=public_url(url),
            next="start the server (or mend the address), then run the same command again",
        ) from error
    if response.status_code in (401, 403):
        raise AuthError(
            "HT405",
            f"the server refuses the key: HTTP {response.status_code}",
            where=public_url(url),
            next="set the variable that --api-key-env names",
        )
    try:
        entries = credentials.clean(response.raise_for_status().json()["data"])
        return {entry["id"]: entry for entry in entries if isinstance(entry["id"], str)}
    except (httpx.HTTPStatusError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def _version(url: str, credentials: Credentials) -> dict[str, str]:
    """`{"version": …}` of a vLLM server; nothing from others."""
    import httpx

    page = f"{split_user(url)[0].removesuffix('/v1')}/version"
    unknown = (httpx.HTTPError, ValueError, KeyError, TypeError, RecursionError)
    with contextlib.suppress(*unknown):
        response = httpx.get(page, headers=credentials.headers(), timeout=30).raise_for_status()
        return {"version": scrub(credentials.clean(str(response.json()["version"])))}
    return {}


def _chosen(env: Mapping[str, str]) -> dict[str, str]:
    """What the user set on purpose."""
    mine = "VLLM_CPU_KVCACHE_SPACE"
    return {mine: os.environ[mine]} if mine in env and mine in os.environ else {}
