"""The package as a stranger gets it: the wheel, what an import costs, and papers that agree with each other."""

import importlib.metadata
import json
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import jaxtyping
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sqair.spatial_transformer import hat_weights

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
HEAVY = {"av", "equinox", "jax", "jaxlib", "matplotlib", "optax", "scipy"}


def run(*command: str | Path, cwd: Path) -> str:
    """The stdout of a command that must succeed."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"{command} gave {done.returncode}: {done.stderr or done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by the hatchling that runs these tests."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with the wheel in it.

    To save minutes its dependencies are those of the running environment, put behind its own by one .pth line. Python
    reads no .pth file of a folder added in this way, so the editable sqair over there stays out of reach.
    """
    folder = tmp_path_factory.mktemp("clean") / "env"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder.parent)
    return folder


def test_wheel_holds_the_whole_package(wheel: Path) -> None:
    files = [path for path in (SOURCE / "sqair").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    wanted = {path.relative_to(SOURCE).as_posix() for path in files}
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if name.startswith("sqair/")} == wanted
    assert "sqair/py.typed" in wanted
    assert {Path(name).name for name in names} >= {"LICENSE", "THIRD_PARTY_NOTICES.md", "METADATA"}


def test_wheel_runs_in_a_clean_environment(environment: Path, tmp_path: Path) -> None:
    where = run(environment / "bin/python", "-c", "import sqair; print(sqair.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(environment)
    version = importlib.metadata.version("sqair")
    assert version in run(environment / "bin/sqair", "--version", cwd=tmp_path)
    assert version in run(environment / "bin/python", "-m", "sqair", "--version", cwd=tmp_path)


def test_wheel_dreams_with_its_own_weights(environment: Path, tmp_path: Path) -> None:
    """The shipped model is found, read and run from where the wheel was installed."""
    words = "sample --model sqair-strokes --count 1 --frames 1 --out dream"
    run(environment / "bin/sqair", *words.split(), cwd=tmp_path)
    assert (tmp_path / "dream/samples.npz").is_file()


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["--version"]])
def test_help_imports_no_heavy_package(arguments: list[str], tmp_path: Path) -> None:
    program = f"""
import json, sys
sys.argv = ["sqair", *{arguments!r}]
try:
    from sqair.cli import main
    main()
except SystemExit as exit:
    assert not exit.code, exit.code
print()
print(json.dumps(sorted(sys.modules)))
"""
    modules = json.loads(run(sys.executable, "-c", program, cwd=tmp_path).splitlines()[-1])
    assert "sqair.cli" in modules
    assert not HEAVY.intersection(modules)


def test_import_is_light(tmp_path: Path) -> None:
    program = "import json, sys, sqair, sqair.config; print(json.dumps(sorted(sys.modules)))"
    modules = json.loads(run(sys.executable, "-c", program, cwd=tmp_path))
    assert "sqair.config" in modules
    assert not (HEAVY | {"numpy", "rich", "tyro"}).intersection(modules)


def test_shapes_are_checked_while_tests_run() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        hat_weights(jnp.ones(2), jnp.zeros(()), 3, 3)
    assert hat_weights(jnp.ones(()), jnp.zeros(()), 3, 3).shape == (3, 3)


def test_versions_agree() -> None:
    version = importlib.metadata.version("sqair")
    changes = re.search(r"^(?:## \[|To become )(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert changes is not None
    assert citation is not None
    assert changes[1] == citation[1] == version
    assert f'__version__ = "{version}"' in (SOURCE / "sqair/__init__.py").read_text()


def needed(package: str, found: set[str]) -> set[str]:
    """`found` and the packages that `package` needs at run time, however indirectly."""
    for line in importlib.metadata.requires(package) or []:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found = needed(name, found | {name})
    return found


def test_notices_name_every_package_that_is_needed() -> None:
    notices = re.findall(r"^\| ([a-z0-9-]+) \|", (ROOT / "THIRD_PARTY_NOTICES.md").read_text(), re.MULTILINE)
    assert needed("sqair", set()) <= set(notices)


def test_contributing_names_what_ci_runs() -> None:
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    documented = [line.removeprefix("$ ") for line in "".join(blocks).splitlines()]
    script = (ROOT / ".ci/run").read_text().splitlines()
    assert documented == [line for line in script if line.startswith("make ")]


def test_readme_tree_is_the_tree() -> None:
    tree = re.search(r"^```\n(src/sqair/\n.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert tree is not None
    lines = tree[1].splitlines()
    named = {"src/sqair/" + line.split()[0] if line.startswith("  ") else line.split()[0] for line in lines}
    assert [name for name in named if not (ROOT / name).exists()] == []
    code = [path for path in (SOURCE / "sqair").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    missing = {path.name for path in code if not path.name.startswith("__")} - {Path(name).name for name in named}
    assert missing == set()


def text_files() -> Iterator[Path]:
    """Every text file of the repository, found without git; folders of tools and results are left out."""
    tops = [top for top in ROOT.iterdir() if top.name not in {"build", "dist", "runs", "shared"}]
    for top in tops:
        if top.is_file() or not top.name.startswith(".") or top.name == ".ci":
            for path in [top] if top.is_file() else top.rglob("*"):
                if path.is_file() and path.suffix in {"", ".py", ".md", ".toml", ".txt", ".cff", ".json", ".html"}:
                    yield path


def test_no_file_names_a_machine() -> None:
    own_path = re.compile(r"(?<![\w.~-])/(root|home|Users|work)/")
    paths = list(text_files())
    assert ROOT / ".ci/run" in paths
    assert Path(__file__) in paths
    assert [path for path in paths if own_path.search(path.read_text())] == []


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-extras.txt"])
def test_constraints_are_hashed_and_name_no_host(name: str) -> None:
    text = (ROOT / name).read_text()
    pins = re.split(r"\n(?=\S)", text.strip())
    assert len(pins) > 30
    assert [pin for pin in pins if not re.match(r"[a-z0-9-]+==\S+ .*--hash=sha256:", pin, re.DOTALL)] == []
    assert not re.search(r"://|--index-url|--extra-index-url|--find-links|#", text)
