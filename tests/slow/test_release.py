"""What a stranger gets: a wheel, built from the source distribution, in an environment without a checkout."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import groupwise

ROOT = Path(__file__).parents[2]
SMALL = (
    "run.num_steps=1", "task.num_problems=40", "task.num_eval_problems=8", "grpo.prompts_per_step=2",
    "grpo.group_size=4", "sampling.max_tokens=48", "evaluation.num_problems=4", "evaluation.num_samples=1",
    "evaluation.test_problems=4", "evaluation.test_samples=1", "optimizer.warmup_steps=0",
)  # fmt: skip
BUILD = "import sys, setuptools.build_meta as backend; getattr(backend, 'build_' + sys.argv[1])(sys.argv[2])"


def build(source: Path, kind: str, target: Path) -> Path:
    """Build with setuptools, as pip would, in a folder that may be written to."""
    subprocess.run([sys.executable, "-c", BUILD, kind, str(target)], cwd=source, check=True, capture_output=True)
    (made,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("checkout") / "groupwise"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    return build(source, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return build(source, "wheel", tmp_path_factory.mktemp("wheel"))


def without_checkout() -> dict[str, str]:
    """The variables of this process, but for those by which Python, and so pip, would find a checkout's package."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that holds the wheel alone; its dependencies are those that are installed here."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [folder / "bin" / "python", "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel]
    subprocess.run(install, env=without_checkout(), check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # a line of a .pth file adds the folder, and does not read the .pth files in it: no editable install is there
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n{ROOT / 'lab'}\n")
    return folder


def say(environment: Path, cwd: Path, *words: str) -> str:
    """What the installed command prints, outside every checkout."""
    command = [environment / "bin" / "groupwise", *words]
    said = subprocess.run(
        command, cwd=cwd, env=without_checkout(), capture_output=True, text=True, timeout=300, check=False
    )
    assert said.returncode == 0, said
    return said.stdout


@pytest.mark.slow
def test_the_wheel_holds_what_the_package_reads(wheel: Path) -> None:
    files = {name.split("/", 1)[1] for name in zipfile.ZipFile(wheel).namelist() if name.startswith("groupwise/")}
    package = ROOT / "src" / "groupwise"
    walked = os.walk(package, followlinks=True)  # the recipes lie behind one
    here = {str(Path(folder, name).relative_to(package)) for folder, _, names in walked for name in names}
    assert {name for name in here if "__pycache__" not in name} == files


@pytest.mark.slow
def test_a_stranger_installs_it_and_runs_the_demo(environment: Path, tmp_path: Path) -> None:
    assert say(environment, tmp_path, "--version") == f"groupwise {groupwise.__version__}\n"
    assert "runs/arithmetic" in say(environment, tmp_path, "demo", "--help")
    said = say(environment, tmp_path, "demo", *(word for change in SMALL for word in ("--set", change)))
    assert "What is 23 × 17?" in said
    assert (tmp_path / "runs" / "arithmetic" / "report.html").is_file()
    assert "cold_start" in say(environment, tmp_path, "pipeline", "recipes/r1.toml", "--dry-run")


@pytest.mark.slow
def test_what_runs_there_is_the_wheel(environment: Path, tmp_path: Path) -> None:
    facts = json.loads(say(environment, tmp_path, "doctor", "--environment", "--json"))
    assert facts["versions"]["groupwise"] == groupwise.__version__
    assert facts["commit"] is None  # of a checkout
