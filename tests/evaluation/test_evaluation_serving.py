"""Servers are started, checked and ended; nothing of them outlives us."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from scripted_vllm import VERSIONS, ScriptedVllm, wait_for

from hubtools.errors import HubtoolsError
from hubtools.evaluation.engine_environment import engine_python, engine_versions
from hubtools.evaluation.serving import Server, serving
from hubtools.evaluation.spec import Engine, Target

linux = pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks into /proc")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    shape = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}
    (folder / "config.json").write_text(json.dumps({**shape, "max_position_embeddings": 512}))
    return folder


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    folder = tmp_path / "adapter"
    folder.mkdir()
    fields = {"r": 4, "rank_pattern": {"q_proj": 12}}
    (folder / "adapter_config.json").write_text(json.dumps(fields))
    return folder


def engine(vllm: ScriptedVllm, **more: Any) -> Engine:
    return Engine("vllm", python=vllm.python, **more)


def started(target: Target, engine: Engine, log: Path, timeout: float = 20) -> Server:
    with serving(target, engine, log=log, timeout=timeout) as server:
        return server


def refusal(target: Target, engine: Engine, log: Path, timeout: float = 20) -> HubtoolsError:
    with (
        pytest.raises(HubtoolsError) as caught,
        serving(target, engine, log=log, timeout=timeout),
    ):
        pytest.fail("served")
    return caught.value


def test_a_checkpoint_is_served_and_the_record_says_how(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_abc")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abc")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "3")
    vllm = ScriptedVllm(tmp_path)
    asked = engine(vllm, dtype="bfloat16", max_model_len=512, options=("--seed", "1"))
    server = started(Target("a/s4", model=model), asked, tmp_path / "log")
    assert server.served_name == "a/s4"
    assert (server.root, server.max_model_len) == (str(model), 512)
    assert server.describe == {
        "engine": "vllm",
        "versions": VERSIONS,
        "dtype": "bfloat16",
        "device": "cpu",
        "served_as": "model",
        "max_num_seqs": 8,
        "eager": True,
        "options": ["--seed", "1"],
        "max_model_len": 512,
        "system_fingerprint": "fp-7",
    }
    argv = vllm.calls[-1]
    assert argv[:2] == ["-m", "vllm.entrypoints.openai.api_server"]
    for pair in (
        ("--host", "127.0.0.1"),
        ("--generation-config", "vllm"),  # the request alone decides how is sampled
        ("--max-model-len", "512"),
        ("--dtype", "bfloat16"),
        ("--seed", "1"),
    ):
        assert argv[argv.index(pair[0]) + 1] == pair[1]
    assert not {"HF_TOKEN", "OPENAI_API_KEY"} & vllm.environment.keys()
    assert vllm.environment["VLLM_CPU_KVCACHE_SPACE"] == "3"
    assert vllm.all_gone()


def test_an_adapter_is_served_as_lora(tmp_path: Path, model: Path, adapter: Path) -> None:
    vllm = ScriptedVllm(tmp_path)
    target = Target("s4", model=model, adapter=adapter)
    server = started(target, engine(vllm), tmp_path / "log")
    assert (server.served_name, server.root) == ("s4", str(adapter))
    assert server.describe["served_as"] == "lora"
    assert server.describe["lora_rank"] == 12
    argv = vllm.calls[-1]
    assert argv[argv.index("--max-lora-rank") + 1] == "16"
    assert argv[argv.index("--served-model-name") + 1] == "s4-base"
    assert "--tokenizer" not in argv
    assert vllm.environment["VLLM_CPU_KVCACHE_SPACE"] == "1"


def test_an_adapters_own_tokenizer_is_used(tmp_path: Path, model: Path, adapter: Path) -> None:
    (adapter / "tokenizer_config.json").write_text("{}")
    vllm = ScriptedVllm(tmp_path)
    started(Target("s4", model=model, adapter=adapter), engine(vllm), tmp_path / "log")
    argv = vllm.calls[-1]
    assert argv[argv.index("--tokenizer") + 1] == str(adapter)


def test_the_cause_of_a_failed_start_is_told(tmp_path: Path, model: Path) -> None:
    vllm = ScriptedVllm(tmp_path, dies=True)
    log = tmp_path / "log"
    log.write_text("OldError: of an earlier start\n")
    error = refusal(Target("s", model=model), engine(vllm), log)
    assert error.id == "HT437"
    assert error.detail[:2] == (
        "ValueError: 7 heads cannot be split",
        "RuntimeError: engine core failed",
    )
    assert vllm.all_gone()


def test_a_server_that_is_never_ready_is_ended(tmp_path: Path, model: Path) -> None:
    vllm = ScriptedVllm(tmp_path, never=True)
    error = refusal(Target("s", model=model), engine(vllm), tmp_path / "log", timeout=1)
    assert error.id == "HT437"
    assert "not ready after 1 s" in error.message
    assert vllm.all_gone()


def test_a_server_that_is_up_but_mute(tmp_path: Path, model: Path) -> None:
    vllm = ScriptedVllm(tmp_path, mute=True)
    error = refusal(Target("s", model=model), engine(vllm), tmp_path / "log")
    assert error.id == "HT437"
    assert "cannot write a token" in error.message
    assert vllm.all_gone()


@pytest.mark.parametrize("models", [{"root": "/elsewhere"}, {"root": None}, {"id": "another"}])
def test_something_else_is_served(tmp_path: Path, model: Path, models: dict[str, Any]) -> None:
    vllm = ScriptedVllm(tmp_path, models=models)
    assert refusal(Target("s", model=model), engine(vllm), tmp_path / "log").id == "HT438"
    assert vllm.all_gone()


def test_an_adapter_on_another_base(tmp_path: Path, model: Path, adapter: Path) -> None:
    vllm = ScriptedVllm(tmp_path, models={"root": str(adapter)})
    target = Target("s", model=model, adapter=adapter)
    error = refusal(target, engine(vllm), tmp_path / "log")
    assert (error.id, "lies on" in error.message) == ("HT438", True)


PARENT = """
import sys, time
from pathlib import Path
from hubtools.evaluation.serving import serving
from hubtools.evaluation.spec import Engine, Target
with serving(Target("s", model=Path(sys.argv[2])), Engine("vllm", python=Path(sys.argv[1])),
             log=Path(sys.argv[3])):
    print("ready", flush=True)
    time.sleep(60)
"""


@linux
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_outlives_a_killed_parent(tmp_path: Path, model: Path, how: signal.Signals) -> None:
    vllm = ScriptedVllm(tmp_path)
    argv = [sys.executable, "-c", PARENT, str(vllm.python), str(model), str(tmp_path / "log")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        parent.send_signal(how)
        assert vllm.all_gone()


@linux
def test_a_server_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    vllm = ScriptedVllm(tmp_path, ignores_sigterm=True)
    argv = [str(vllm.python), "-m", "vllm", "--served-model-name", "s", "--model", "m"]
    guard = "import sys; from hubtools.evaluation import guard; guard.GRACE = 0.2;"
    with subprocess.Popen(
        [sys.executable, "-c", f"{guard} guard.main(sys.argv[1:])", *argv, "--port", "0"],
        stdin=subprocess.PIPE,
    ) as process:
        vllm.pids()
        assert process.stdin is not None
        process.stdin.close()
        assert vllm.all_gone()


@pytest.mark.parametrize(
    ("versions", "device", "id", "fix"),
    [
        ({"torch": "2.13.0"}, "cpu", "HT435", "make vllm-env"),
        ({**VERSIONS, "torchvision": "0.28.0"}, "cpu", "HT436", "uninstall --yes torchvision"),
        (VERSIONS, "cuda", "HT436", "--device cpu"),
        ({"vllm": "0.32.0", "torch": "2.13.0"}, "cpu", "HT436", "--device cuda"),
    ],
)
def test_an_environment_that_cannot_work(
    tmp_path: Path, model: Path, versions: dict[str, str], device: str, id: str, fix: str
) -> None:
    vllm = ScriptedVllm(tmp_path, versions)
    error = refusal(Target("s", model=model), engine(vllm, device=device), tmp_path / "log")
    assert error.id == id
    assert fix in error.next
    assert not (tmp_path / "pids").exists()


def test_a_cpu_build_of_torchvision_fits(tmp_path: Path, model: Path) -> None:
    vllm = ScriptedVllm(tmp_path, {**VERSIONS, "torchvision": "0.28.0+cpu"})
    started(Target("s", model=model), engine(vllm), tmp_path / "log")


def test_options_that_are_ours(tmp_path: Path, model: Path) -> None:
    vllm = ScriptedVllm(tmp_path)
    asked = engine(vllm, options=("--port=1",))
    assert refusal(Target("s", model=model), asked, tmp_path / "log").id == "HT001"


def test_which_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    named, variable = ScriptedVllm(tmp_path / "a"), ScriptedVllm(tmp_path)
    monkeypatch.setenv("HUBTOOLS_ENGINE_PYTHON", str(variable.python))
    assert engine_python(named.python) == named.python
    assert engine_python() == variable.python
    with pytest.raises(HubtoolsError, match="HT435"):
        engine_python(tmp_path / "none")
    monkeypatch.delenv("HUBTOOLS_ENGINE_PYTHON")
    (tmp_path / ".venv-vllm" / "bin").mkdir(parents=True)
    (tmp_path / ".venv-vllm" / "bin" / "python").touch()
    monkeypatch.chdir(tmp_path)
    assert engine_python() == tmp_path / ".venv-vllm" / "bin" / "python"


def test_versions_are_asked_once_until_packages_change(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    vllm = ScriptedVllm(tmp_path / "bin")
    # Python itself computes nothing: another one makes no other protocol.
    decides = {name: text for name, text in VERSIONS.items() if name != "python"}
    assert engine_versions(vllm.python) == engine_versions(vllm.python) == decides
    assert len(vllm.calls) == 1
    os.utime(site, (1, 1))
    engine_versions(vllm.python)
    assert len(vllm.calls) == 2


def test_an_interpreter_that_cannot_be_asked(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("not a program")
    with pytest.raises(HubtoolsError, match="HT435"):
        engine_versions(tmp_path / "python")


@contextmanager
def listing(status: int, body: Any, encoding: str = "") -> Iterator[str]:
    """A scripted server that has `/v1/models` alone."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = json.dumps(body).encode()
            self.send_response(status if self.path == "/v1/models" else 404)
            self.send_header("content-length", str(len(data)))
            if encoding:
                self.send_header("content-encoding", encoding)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_an_endpoint_that_says_what_it_serves(tmp_path: Path) -> None:
    entry = {"id": "m", "root": "/models/m", "max_model_len": 4096, "owned_by": "vllm"}
    with listing(200, {"data": [entry]}) as url:
        server = started(Target("s"), Engine("endpoint", url=url), tmp_path / "log")
        assert (server.served_name, server.root, server.max_model_len) == ("m", "/models/m", 4096)
        assert server.describe["root"] == "stated"
        for name in ("other", "m"):  # a name that is not served, a folder that is not it
            asked = Engine("endpoint", url=url, served_name=name)
            assert refusal(Target("s", model=tmp_path), asked, tmp_path / "log").id == "HT438"


@pytest.mark.parametrize("body", [{"data": [{"id": "a"}, {"id": "b"}]}, {"data": []}, [], "no"])
def test_an_endpoint_that_says_little(tmp_path: Path, body: Any) -> None:
    with listing(200, body) as url:
        asked = Engine("endpoint", url=f"{url}/", served_name="c")
        server = started(Target("s"), asked, tmp_path / "log")
        assert (server.url, server.root) == (url, "")
        assert server.describe["root"] == "unknown"
        assert server.describe["listed"] is False
        error = refusal(Target("s"), Engine("endpoint", url=url), tmp_path / "log")
        assert error.id == "HT439"


@pytest.mark.parametrize(("status", "id"), [(401, "HT405"), (403, "HT405")])
def test_an_endpoint_that_refuses_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, id: str
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret")
    with listing(status, "sk-secret is wrong") as url:
        asked = Engine("endpoint", url=url, api_key_env="MY_KEY")
        error = refusal(Target("s"), asked, tmp_path / "log")
    assert error.id == id
    assert "sk-secret" not in json.dumps(error.to_json())


def test_an_endpoint_that_is_not_there(tmp_path: Path) -> None:
    with listing(200, {}) as url:
        pass
    asked = Engine("endpoint", url=url.replace("//", "//user:pass@"), served_name="m")
    error = refusal(Target("s"), asked, tmp_path / "log")
    assert error.id == "HT404"
    assert "pass" not in error.where


def test_what_an_endpoint_repeats_of_credentials_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "k3y-secret")
    owner = "k3y-secret, p4ssword, http://a:b@host"
    with listing(200, {"data": [{"id": "m", "owned_by": owner}, {"id": 7}, {"id": "n"}]}) as url:
        address = url.replace("//", "//me:p4ssword@")
        asked = Engine("endpoint", url=address, api_key_env="MY_KEY", served_name="m")
        server = started(Target("s"), asked, tmp_path / "log")
        unnamed = Engine("endpoint", url=address, api_key_env="MY_KEY")
        error = refusal(Target("s"), unnamed, tmp_path / "log")
    assert server.describe["owned_by"] == "***, ***, http://***@host"
    assert (error.id, error.next) == ("HT439", "name one with --model NAME")
    assert "p4ssword" not in json.dumps(error.to_json())


@pytest.mark.parametrize(
    "url", ["u:S3CRET@h/v1", "http://u:S3CRET@[::1/v1", "http://u:S3/CRET@h/v1", "h:1/v1"]
)
def test_an_address_that_is_none(tmp_path: Path, url: str) -> None:
    error = refusal(Target("s"), Engine("endpoint", url=url), tmp_path / "log")
    assert (error.id, error.message) == ("HT404", "that is no address of a server")
    assert "CRET" not in json.dumps(error.to_json())


@pytest.mark.parametrize("key", ["schl\u00fcssel", "a\nb"])
def test_a_key_that_cannot_be_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("MY_KEY", key)
    asked = Engine("endpoint", url="http://127.0.0.1:9/v1", api_key_env="MY_KEY")
    error = refusal(Target("s"), asked, tmp_path / "log")
    assert error.id == "HT405"
    assert "the key in MY_KEY has characters" in error.message


def test_a_page_of_models_that_cannot_be_unpacked(tmp_path: Path) -> None:
    with listing(200, {}, encoding="gzip") as url:
        error = refusal(Target("s"), Engine("endpoint", url=url), tmp_path / "log")
    assert (error.id, error.message) == ("HT404", "the server does not answer: DecodingError")


def test_what_transformers_cannot_serve(tmp_path: Path, model: Path, adapter: Path) -> None:
    target = Target("s", model=model, adapter=adapter)
    assert refusal(target, Engine("transformers"), tmp_path / "log").id == "HT439"
    assert refusal(Target("s"), Engine("vllm"), tmp_path / "log").id == "HT439"


def test_waiting_has_an_end() -> None:
    assert not wait_for(lambda: False, 0.05)
