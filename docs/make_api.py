"""Makes docs/api/sqair.md from the docstrings of the names in sqair.__all__: `python docs/make_api.py`.

It reads the source, not the objects, so that signatures look as they were written, whatever the version of Python.
"""

import ast
import importlib
import inspect
import itertools
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import sqair

PAGE = Path(__file__).parent / "api" / "sqair.md"
HEAD = """\
# sqair in Python

Every public name, with what its docstring says; made by `python docs/make_api.py`. Shapes are written as
[jaxtyping](https://docs.kidger.site/jaxtyping/) does: `Float[ndarray, "T N 4"]` is an array of floats with three axes.

"""
Named = ast.FunctionDef | ast.ClassDef


def page() -> str:
    """The whole page: functions, then classes."""
    found = {name: definition(name) for name in sqair.__all__}
    functions = [name for name, node in found.items() if isinstance(node, ast.FunctionDef)]
    classes = [name for name in found if name not in functions]
    places = anchors([*functions, *classes])
    contents = "".join(
        f"{title}: {', '.join(f'[`{name}`](#{places[name]})' for name in names)}\n\n"
        for title, names in (("Functions", functions), ("Classes", classes))
    )
    return HEAD + contents + "".join(section(name, found[name]) for name in places).rstrip("\n") + "\n"


def anchors(names: list[str]) -> dict[str, str]:
    """Where the sections are, in their order: names that differ in capitals only are numbered."""
    places: dict[str, str] = {}
    for name in names:
        place = f"sqair{name.lower()}"
        places[name] = f"{place}-1" if place in places.values() else place
    return places


class Values(ast.NodeTransformer):
    """Puts the numbers of a module in place of their names: a reader of the page cannot look them up."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A name in capitals becomes its value."""
        value = getattr(self.module, node.id, None) if node.id.isupper() else None
        return ast.Constant(value) if isinstance(value, int | float) else node


def definition(name: str) -> Named:
    """Where a public name is defined, as syntax."""
    thing = getattr(sqair, name)
    module = importlib.import_module(thing.__module__)
    tree = Values(module).visit(ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")))
    return next(node for node in tree.body if isinstance(node, Named) and node.name == thing.__name__)


def section(name: str, node: Named) -> str:
    """What the page says about one name."""
    text = f"## `sqair.{name}`\n\n"
    if isinstance(node, ast.FunctionDef):
        return text + code(signature(name, node)) + prose(node)
    methods = {each.name: each for each in functions_of(node)}
    if "__init__" in methods:
        text += code(signature(name, methods.pop("__init__")).removesuffix(" -> None"))
    if bases := [f"`{base}`" for base in map(written, node.bases) if base in sqair.__all__]:
        text += f"Has all that {' and '.join(bases)} has.\n\n"
    fields = "".join(f"- `{field}`{': ' * bool(says)}{says}\n" for field, says in fields_of(node))
    text += prose(node) + (f"{fields}\n" if fields else "")
    return text + "".join(method(each) for each in methods.values() if not each.name.startswith("_"))


def functions_of(node: ast.AST) -> Iterator[ast.FunctionDef]:
    """The functions in the body of a class."""
    return (each for each in getattr(node, "body", ()) if isinstance(each, ast.FunctionDef))


def fields_of(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The fields of a class, as declared, each with the text below it."""
    body = [*getattr(node, "body", ()), None]
    for each, below in itertools.pairwise(body):
        if isinstance(each, ast.AnnAssign):
            is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            yield written(each), one_line(below.value.value) if is_text else ""  # type: ignore[union-attr]


def method(node: ast.FunctionDef) -> str:
    """A method or property of a class."""
    kinds = {written(each) for each in node.decorator_list}
    if "property" in kinds:
        shown = f"{node.name} -> {written(node.returns)}" if node.returns else node.name
    else:
        shown = signature(node.name, node, skip_first=True)
    kind = " (class method)" if "classmethod" in kinds else ""
    return f"**`{node.name}`**{kind}\n\n" + code(shown) + prose(node)


def signature(name: str, node: ast.FunctionDef, skip_first: bool = False) -> str:
    """A function's name, arguments and result; one argument a line where they are many."""
    arguments = names(node)[1:] if skip_first or node.name == "__init__" else names(node)
    returns = f" -> {written(node.returns)}" if node.returns else ""
    short = f"{name}({', '.join(arguments)}){returns}"
    if len(short) <= 100:
        return short
    return f"{name}(\n" + "".join(f"    {argument},\n" for argument in arguments) + f"){returns}"


def names(node: ast.FunctionDef) -> list[str]:
    """The arguments of a function as they are written."""
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
    shown = [argument(each, default) for each, default in zip(positional, defaults, strict=True)]
    if given.vararg:
        shown.append("*" + argument(given.vararg, None))
    elif given.kwonlyargs:
        shown.append("*")
    return shown + [argument(*each) for each in zip(given.kwonlyargs, given.kw_defaults, strict=True)]


def argument(node: ast.arg, default: ast.expr | None) -> str:
    """One argument with its type and default."""
    typed = f"{node.arg}: {written(node.annotation)}" if node.annotation else node.arg
    return typed if default is None else f"{typed} = {written(default)}"


def written(node: ast.AST) -> str:
    """Syntax as text, with the quotes that the source has."""
    return ast.unparse(node).replace("'", '"')


def prose(node: Named) -> str:
    """A docstring as paragraphs."""
    return f"{inspect.cleandoc(ast.get_docstring(node) or '')}\n\n"


def one_line(text: str) -> str:
    """Text without line breaks."""
    return " ".join(text.split())


def code(text: str) -> str:
    """A block of Python."""
    return f"```python\n{text}\n```\n\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
