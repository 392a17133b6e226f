"""The help of every command, as golden files, and what it costs. SQAIR_WRITE_GOLDEN=1 writes the files anew."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"
HEAVY = {"PIL", "av", "equinox", "jax", "jaxlib", "matplotlib", "numpy", "optax", "safetensors", "scipy"}
COMMANDS = (
    "demo",
    "data",
    "train",
    "fit",
    "track",
    "predict",
    "evaluate",
    "table",
    "figures",
    "ablate",
    "sample",
    "report",
    "bench",
)


def agrees(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("SQAIR_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("words", [(), *((command,) for command in COMMANDS), ("train", "sqair-conv")])
def test_help(words: tuple[str, ...], sqair) -> None:
    done = sqair(*words, "--help")
    assert done.code == 0
    assert done.err == ""
    agrees("-".join(["help", *words]), done.out)


def test_the_short_flag_and_no_command(sqair) -> None:
    assert sqair("-h").out == sqair("--help").out
    assert sqair("demo", "-h").out == sqair("demo", "--help").out
    nothing = sqair()
    assert nothing == (2, "", sqair("--help").out)


def test_help_of_a_preset_shows_its_values(sqair) -> None:
    assert "(default: 128)" in sqair("train", "sqair-conv", "--help").out
    assert "(default: 2000000)" in sqair("train", "tiny", "--recipe", "paper", "--help").out
    assert "(default: 2000000)" not in sqair("train", "tiny", "--help").out
    for words, shown in (("--switches", "paper"), "absolute"), (("--switches=authors",), "gated"), ((), "residual"):
        text = " ".join(sqair("train", "tiny", *words, "--help").out.split())
        assert f"gated mixture. (default: {shown})" in text


def test_every_help_has_a_sentence_and_two_examples() -> None:
    overview = (GOLDEN / "help.txt").read_text()
    for command in COMMANDS:
        text = (GOLDEN / f"help-{command}.txt").read_text()
        assert text.count(f"\n  sqair {command} ") + text.count(f"\n  sqair {command}\n") == 2
        assert f"  {command:8}  {text.splitlines()[2]}\n" in overview


def test_unknown_flag_suggests(sqair) -> None:
    for flag in ("--widht", "--model.widht", "--model.widht=8"):
        done = sqair("train", "tiny", flag, "8")
        said = f"sqair train: unknown flag {flag.partition('=')[0]}; did you mean --model.width?\n"
        assert done == (2, "", said)
    assert sqair("demo", "--sed=1").err == "sqair demo: unknown flag --sed; did you mean --seed?\n"
    assert sqair("demo", "--zzz").err == "sqair demo: unknown flag --zzz; see `sqair demo --help`\n"
    assert sqair("demo", "all") == (2, "", "sqair demo: unexpected 'all'; see `sqair demo --help`\n")


def test_unknown_key_in_a_file_suggests_as_a_flag_does(sqair, here: Path) -> None:
    (here / "settings.toml").write_text("[model]\nwidht = 8\n")
    done = sqair("train", "tiny", "--config", "settings.toml")
    assert done == (2, "", "sqair train: unknown flag --model.widht; did you mean --model.width?\n")


def test_no_help_imports_a_heavy_package(tmp_path: Path) -> None:
    program = f"""
import json, sys
from sqair.cli import main
codes = [main([*words, "--help"]) for words in {[[], *([c] for c in COMMANDS), ["train", "tiny"]]!r}]
codes += [main(["--version"]), main(["train", "tiny", "--print-config"])]
print()
print(json.dumps([codes, sorted(sys.modules)]))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    codes, modules = json.loads(done.stdout.splitlines()[-1])
    assert set(codes) == {0}
    assert "sqair.commands.train" in modules
    assert HEAVY.intersection(modules) == set()


def test_version(sqair) -> None:
    import sqair as package

    assert sqair("--version") == (0, f"sqair {package.__version__}\n", "")
