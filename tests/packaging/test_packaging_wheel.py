"""The wheel carries its data and works without the checkout; an editable install reads the tree."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the tree by the declared backend (no downloads)."""
    source = tmp_path_factory.mktemp("source") / "tree"
    keep = ["hubtools", "eval_harness", "templates", "pyproject.toml", "README.md", "LICENSE"]
    source.mkdir()
    for name in keep:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(ROOT / name, source / name)
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source],
        check=True,
        capture_output=True,
    )
    (built,) = out.glob("*.whl")
    return built


def data_files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_wheel_holds_exactly_the_packages_and_their_data(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {f"hubtools/{name}" for name in data_files(ROOT / "hubtools")}
    expected |= {f"eval_harness/{name}" for name in data_files(ROOT / "eval_harness")}
    expected |= {f"hubtools/_data/templates/{name}" for name in data_files(ROOT / "templates")}
    assert any(name.endswith(".j2") for name in expected)
    assert "eval_harness/suites/short_qa/items.jsonl" in expected
    assert {name for name in names if ".dist-info/" not in name} == expected


def test_metadata_names_the_distribution_its_licence_and_its_command(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    info = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    metadata = message_from_string(archive.read(info).decode())
    assert metadata["Name"] == "hf-hubtools"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert set(metadata.get_all("Provides-Extra", [])) >= {"hub", "merge", "eval", "demo", "dev"}
    folder = info.removesuffix("METADATA")
    assert folder + "licenses/LICENSE" in archive.namelist()
    commands = archive.read(folder + "entry_points.txt").decode()
    assert "hubtools = hubtools.cli.main:main" in commands


@dataclass(frozen=True)
class Installed:
    """An environment that has the wheel and sees our dependencies, but not the checkout."""

    python: Path
    elsewhere: Path

    def run(self, *argv: str) -> str:
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        done = subprocess.run(
            [self.python.parent / argv[0], *argv[1:]],
            cwd=self.elsewhere,
            env=env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in a fresh environment.

    A path file lends it our installed libraries; `.pth` files found that way are not read, so the
    editable install of the checkout stays out of sight.
    """
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", wheel], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return Installed(python, tmp_path_factory.mktemp("elsewhere"))


TEMPLATES = (
    "from hubtools import resources\n"
    "print(resources.__file__)\n"
    "print(resources.bundled_templates())\n"
)


def test_an_installed_wheel_runs_and_finds_its_own_templates(installed: Installed) -> None:
    assert "Commands:" in installed.run("hubtools", "--help")
    module, templates = installed.run("python", "-c", TEMPLATES).splitlines()
    assert Path(module).is_relative_to(installed.python.parents[1])
    assert Path(templates) == Path(module).parent / "_data" / "templates"
    assert data_files(Path(templates)) == data_files(ROOT / "templates")


def test_an_installed_wheel_loads_its_evaluation_suite(installed: Installed) -> None:
    code = (
        "import eval_harness\n"
        "from eval_harness.suite import load_suite\n"
        "suite = load_suite('short_qa')\n"
        "print(eval_harness.__file__)\n"
        "print(len(suite.items))\n"
    )
    module, count = installed.run("python", "-c", code).splitlines()
    assert Path(module).is_relative_to(installed.python.parents[1])
    assert int(count) >= 50


def test_an_editable_install_reads_the_tree(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TEMPLATES], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    module, templates = done.stdout.splitlines()
    assert Path(module) == ROOT / "hubtools" / "resources.py"
    assert Path(templates) == ROOT / "templates"
    assert not (ROOT / "hubtools" / "_data").exists()
