"""docs/paper_map.md is complete and true: every equation and algorithm has one home, every name on the page exists."""

import ast
import dataclasses
import re
from pathlib import Path

import pytest

from sqair.cli import COMMANDS
from sqair.config import AUTHORS_SWITCHES, PRESETS, ModelConfig, TrainConfig
from sqair.data import MOTIONS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "sqair"
DOCS = ROOT / "docs"
MAP = (DOCS / "paper_map.md").read_text()
TREES = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}

EQUATIONS = {
    1: "air_gen",
    2: "air_posterior",
    3: "full_joint",
    4: "full_q",
    5: "iwae",
    6: "the set encoding l_t",
    7: "disc_prior",
    8: "disc_step_prior",
    9: "prop_prior",
    10: "prop_pres_prior",
    11: "q_prop",
    12: "q_prop_obj",
    13: "q_prop_presence",
    14: "propagation_state",
    15: "temporal_state",
}
"""The paper's labels; the sixth equation has none."""
ALGORITHMS = {1: ("air_decoding", 6), 2: ("sqair_prop", 16), 3: ("sqair_disc", 13)}
"""Labels and numbers of lines."""
SYMBOLS = [
    "x_t",
    "z_t^what, z_t^where, z_t^pres",
    "z_t^i",
    "P_t (set), z_t^{P_t}",
    "D_t (set), z_t^{D_t}",
    "O_t",
    "P_t, D_t (numbers)",
    "n",
    "N",
    "T, t",
    "h^T",
    "h^R",
    "h^D",
    "h_{t-1} of p^P",
    "omega^R, omega^T, omega^D",
    "R^T, R^R, R^D",
    "j",
    "f^1",
    "ĝ, g",
    "ê_t^i, e_t^i",
    "e_t",
    "l_t",
    "h^enc, h^glimpse",
    "h^dec",
    "f^dec",
    "y^att, y_t",
    "ST, ST^-1",
    "sigma_x",
    "theta of Geom",
    "p_theta(P_t)",
    "f_theta (eq. 10)",
    "f_phi (eq. 13)",
    "delta_1(z_{t-1}^pres)",
    "q^P, q^D",
    "p^P, p^D",
    "K",
    "w_k",
    "theta, phi",
]
"""What the paper calls by a letter: all of it, in the order of the page."""


def homes(kind: str) -> list[tuple[int, str, Path]]:
    """All 'Home of KIND N (label)' in module docstrings, which may be broken over lines."""
    found = []
    for path, tree in TREES.items():
        text = " ".join((ast.get_docstring(tree) or "").split())
        found += [(int(n), label, path) for n, label in re.findall(rf"Home of {kind} (\d+)(?: \((.*?)\))?", text)]
    return found


def section(title: str) -> str:
    """The text below a heading, up to the next of the same or a higher level."""
    match = re.search(rf"^(#+) {re.escape(title)}.*?$(.*?)(?=^#{{2,}} |\Z)", MAP, re.MULTILINE | re.DOTALL)
    assert match is not None, f"no section {title!r}"
    return match[2]


def rows(text: str) -> list[list[str]]:
    """The cells of a table's rows, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def linked(text: str) -> list[Path]:
    return [(DOCS / target).resolve() for target in re.findall(r"\]\(([^)#]+)\)", text)]


def members(tree: ast.AST) -> set[str]:
    """Names of a module's functions, classes and constants, nested functions too, and Class.member."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{name}" for item in node.body for name in bound(item)}
    for item in getattr(tree, "body", []):
        names |= set(bound(item))
    return names


def bound(item: ast.stmt) -> list[str]:
    """The names that a statement gives a meaning."""
    if isinstance(item, ast.FunctionDef | ast.ClassDef):
        return [item.name]
    targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


DEFINED = {path: members(tree) for path, tree in TREES.items()}
EVERYWHERE = set().union(*DEFINED.values())
MODEL_FILES = [PACKAGE / name for name in ("objects.py", "image.py", "discovery.py", "propagation.py", "model.py")]
VARIABLES = {
    name
    for path in MODEL_FILES
    for node in ast.walk(TREES[path])
    for name in ([node.arg] if isinstance(node, ast.arg) else [node.id] if isinstance(node, ast.Name) else [])
}


@pytest.mark.parametrize(("number", "label"), EQUATIONS.items())
def test_every_equation_has_one_home(number: int, label: str) -> None:
    claims = [(name, path) for n, name, path in homes("eq.") if n == number]
    assert [name for name, _ in claims] == [label], f"eq. {number} needs exactly one 'Home of eq. {number} ({label})'"
    (_, home), *_ = claims
    (row,) = [row for row in rows(section("Equations")) if row[0] == str(number)]
    assert row[1].removesuffix(" (no label)") == label
    assert linked(row[3]) == [home.resolve()]
    assert set(quoted(row[4])) & DEFINED[home], "nothing in the row is defined in its home"
    assert re.search(rf"# eq\. {number}$", home.read_text(), re.MULTILINE), f"no line is tagged '# eq. {number}'"


def test_no_equation_is_made_up() -> None:
    assert [row[0] for row in rows(section("Equations"))] == [str(number) for number in EQUATIONS]
    assert {n for n, _, _ in homes("eq.")} == set(EQUATIONS)
    tags = {int(n) for path in TREES for n in re.findall(r"# eq\. (\d+)", path.read_text())}
    assert tags == set(EQUATIONS)


@pytest.mark.parametrize("number", ALGORITHMS)
def test_every_algorithm_has_one_home_and_all_its_lines(number: int) -> None:
    label, count = ALGORITHMS[number]
    (home,) = [path for n, _, path in homes("Algorithm") if n == number]
    heading = next(line for line in MAP.splitlines() if line.startswith(f"### Algorithm {number}:"))
    assert heading.endswith(f"({label})")
    text = section(f"Algorithm {number}")
    assert linked(text)[0] == home.resolve()
    lines = []
    for row in rows(text):
        first, _, last = row[0].partition("-")
        lines += range(int(first), int(last or first) + 1)
    assert lines == list(range(1, count + 1))


def test_every_symbol_is_there() -> None:
    assert [row[0] for row in rows(section("Symbols"))] == SYMBOLS


def test_links_lead_somewhere() -> None:
    for page in DOCS.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert "://" in target or (DOCS / target).exists(), f"{page.name} links to {target}, which is not there"
    for text, target in re.findall(r"\[`([^`]+)`\]\(([^)]+)\)", MAP):
        assert target.endswith(text), f"{text} is linked to {target}"
    anchors = {re.sub(r"[^a-z -]", "", line[3:].lower()).replace(" ", "-") for line in re.findall("^## .*", MAP, re.M)}
    assert set(re.findall(r"\]\(#([^)]+)\)", MAP)) == anchors


def test_every_name_exists() -> None:
    """Dotted names and capitals must be defined somewhere in the package, small words at least be used in the model.

    Commands, files and values are looked at by the tests around this one.
    """
    other = re.compile(r"sqair .*|.*\.py|# eq\. \d+|'.*'|\(.*\)|-?[\d.]+|True|False")
    names = {name for name in quoted(MAP) if not other.fullmatch(name)}
    assert not names - EVERYWHERE - VARIABLES - set(PRESETS) - set(MOTIONS)


def test_the_check_of_names_can_fail() -> None:
    assert not {"ImageModel.paint", "ModelConfig.colour", "Teleporter", "teleport"} & (EVERYWHERE | VARIABLES)


def test_commands() -> None:
    """A command on the page exists; one that is planned does not, and is to be updated when it does."""
    commands = re.findall(r"`sqair (\w+)([^`]*)`( \(planned\))?", MAP)
    assert commands
    for command, arguments, planned in commands:
        assert (command in COMMANDS) != bool(planned), f"sqair {command}: planned or not?"
        if not planned:
            words = arguments.replace("MODEL", "some-model").split()
            COMMANDS[command].parse(words)


def test_switches() -> None:
    """Every switch, with the value of the authors' program and ours as they stand in config.py."""
    table = {row[0]: row for row in rows(section("Switches"))}
    assert list(table) == [f"`ModelConfig.{name}`" for name in AUTHORS_SWITCHES]
    ours = ModelConfig()
    for name, value in AUTHORS_SWITCHES.items():
        row = table[f"`ModelConfig.{name}`"]
        assert quoted(row[2])[0] == repr(value)
        assert quoted(row[3])[0] == repr(getattr(ours, name))
    assert TrainConfig().estimator == "vimco"


def test_every_field_of_the_model_is_on_the_page() -> None:
    missing = [field.name for field in dataclasses.fields(ModelConfig) if f"`ModelConfig.{field.name}`" not in MAP]
    assert not missing


def test_all_errata_are_there() -> None:
    errata = rows(section("Errata"))
    assert [row[0] for row in errata] == [str(number) for number in range(1, 11)]
    for number, _, ours in errata:
        assert quoted(ours) or "planned" in ours, f"erratum {number} does not say where"
