"""Runs tasks with lm-eval, in the environment that holds it.

Stand-alone: executed by that environment's interpreter, which has no hubtools. The job comes as
one JSON line on stdin; `{"progress": …}`, `{"error": …}` and `{"result": …}` lines go to stdout.

lm-eval gives up a whole run for one failed request, and its own cache does not know the model. So
answers are kept here, in a file of this run alone, and a request that fails has an answer that is
told apart afterwards.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FAILED = "\x02no answer\x03"
NO_TEXT = "\x02no text\x03"

Told = Callable[[dict[str, Any]], Any]


def main() -> None:
    """Read the job, run the tasks, say how far they are."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # lm-eval prints to stdout; that is not our protocol
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_die_with_parent, daemon=True).start()
    os.environ["LMEVAL_MODEL_NONE_ANSWER_PLACEHOLDER"] = NO_TEXT  # read at import
    os.environ["OPENAI_API_KEY"] = "none"  # the real one is the proxy's business
    ending = 0
    try:
        out.write(json.dumps({"result": run(job, lambda event: out.write(_line(event)))}) + "\n")
    except _Refused as error:
        out.write(_line({"error": error.told()}))
        ending = 2
    out.flush()
    sys.stderr.flush()
    os._exit(ending)


class _Refused(Exception):
    def __init__(self, id: str, message: str, next: str) -> None:
        super().__init__(message)
        self._told = {"id": id, "message": message, "where": "", "next": next}

    def told(self) -> dict[str, Any]:
        return {**self._told, "detail": ["Nothing was evaluated."], "exit_code": 2}


def run(job: dict[str, Any], tell: Told) -> dict[str, Any]:
    """Answer what is missing; write `results.json` and `raw_samples.jsonl` into the folder."""
    from lm_eval.evaluator import simple_evaluate

    tasks, manager = _tasks(job)
    folder = Path(job["folder"])
    book = _Book(folder / "answers.jsonl", tell)
    merged: dict[str, Any] = {"tasks": {}}
    with (folder / "raw_samples.jsonl").open("w") as stream:
        for chat, names in _by_interface(tasks).items():
            told = simple_evaluate(
                model=_model(job, chat, book),
                tasks=names,
                task_manager=manager,
                samples={name: _drawn(tasks[name], job) for name in names},
                apply_chat_template=chat,
                gen_kwargs=job["gen_kwargs"] or None,
                log_samples=True,
                bootstrap_iters=0,
                random_seed=job["seed"],
                numpy_random_seed=job["seed"],
                torch_random_seed=job["seed"],
            )
            assert told is not None
            for name in names:
                for sample in told["samples"][name]:
                    stream.write(_line({"task": name, **sample}))
                merged["tasks"][name] = {
                    "version": told["versions"].get(name),
                    "config": told["configs"][name],
                    "n_shot": told["n-shot"].get(name, 0),
                    "higher_is_better": told["higher_is_better"].get(name, {}),
                    "interface": "chat/completions" if chat else "completions",
                    "asked": told["n-samples"][name],
                    "results": told["results"][name],
                }
    (folder / "results.json").write_text(_line(merged))
    return {}


def _tasks(job: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    from lm_eval.tasks import TaskManager

    include = job["include"] or None
    # Indexing the fourteen thousand tasks that lm-eval brings takes half a minute.
    for defaults in (False, True) if include else (True,):
        manager = TaskManager(include_path=include, include_defaults=defaults)
        unknown = [name for name in job["tasks"] if name not in manager.all_tasks]
        if not unknown:
            return dict(manager.load(job["tasks"])["tasks"]), manager
    raise _Refused(
        "HT452", f"lm-eval knows no task {', '.join(unknown)}", "lm_eval ls tasks, for those it has"
    )


def _by_interface(tasks: dict[str, Any]) -> dict[bool, list[str]]:
    """Chat or not → tasks: what is only written is asked in a chat, likelihoods cannot be."""
    groups: dict[bool, list[str]] = {}
    for name, task in tasks.items():
        groups.setdefault(task.OUTPUT_TYPE == "generate_until", []).append(name)
    return groups


def _drawn(task: Any, job: dict[str, Any]) -> list[int]:
    """Numbers of the documents that are asked."""
    everything = list(range(len(task.eval_docs)))
    if job["limit"] is None or job["limit"] >= len(everything):
        return everything
    draw = random.Random(f"{job['sample_seed']}/{task.config.task}")
    return sorted(draw.sample(everything, job["limit"]))


def _model(job: dict[str, Any], chat: bool, book: _Book) -> Any:
    from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI

    base = LocalChatCompletion if chat else LocalCompletionsAPI

    class Kept(base):  # type: ignore[misc, valid-type]
        async def amodel_call(
            self, session: Any, sem: Any, messages: Any, *, generate: bool = True, **more: Any
        ) -> Any:
            key = book.key(generate, messages, more.get("gen_kwargs"))
            known = book.known(key)
            if known is None:
                try:
                    known = await super().amodel_call(
                        session, sem, messages, generate=generate, **more
                    )
                except Exception as error:  # whatever it was: one request, not the run
                    book.failed(error)
                    return [FAILED if generate else (float("nan"), False)] * len(messages)
                book.keep(key, known)
            return [answer if generate else tuple(answer) for answer in known]

    return Kept(
        model=job["model"],
        base_url=f"{job['url']}/{'chat/completions' if chat else 'completions'}",
        tokenizer=job["tokenizer"] or None,
        tokenizer_backend=None if chat or not job["tokenizer"] else "huggingface",
        tokenized_requests=False if chat else bool(job["tokenizer"]),
        num_concurrent=max(2, job["concurrency"]),  # one alone takes another path
        max_retries=1,  # the proxy has tried often enough
        max_length=job["max_length"],
        seed=job["seed"],
        timeout=3600,
    )


class _Book:
    """Answers of this run: what was asked before is not asked again."""

    def __init__(self, path: Path, tell: Told) -> None:
        self._known: dict[str, list[Any]] = {}
        for key, answers in _whole_lines(path):
            self._known.setdefault(key, []).append(answers)
        self._stream = path.open("a")
        self._taken: Counter[str] = Counter()
        self._done = 0
        self._tell = tell

    def key(self, *asked: Any) -> str:
        return hashlib.sha256(_line(asked).encode()).hexdigest()

    def known(self, key: str) -> Any:
        """The answer to this request; where it is asked for several times, each has its own."""
        place = self._taken[key]
        self._taken[key] += 1
        answers = self._known.get(key, [])
        if place >= len(answers):
            return None
        self._count()
        return answers[place]

    def keep(self, key: str, answers: Any) -> None:
        self._stream.write(_line([key, answers]))
        self._stream.flush()
        self._count()

    def failed(self, error: Exception) -> None:
        sys.stderr.write(f"request failed: {type(error).__name__}: {error}\n")
        self._count()

    def _count(self) -> None:
        self._done += 1
        self._tell({"progress": ["lm-eval", self._done, None, "requests"]})


def _whole_lines(path: Path) -> Iterator[Any]:
    """Lines of a file; a last one that a kill cut off is taken out of it."""
    if not path.exists():
        return
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.truncate(path, len(whole))
    for line in whole.splitlines():
        yield json.loads(line)


def _line(value: Any) -> str:
    return json.dumps(value, default=str) + "\n"


def _die_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
