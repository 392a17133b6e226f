"""Nothing phones home: one module opens connections, the one that downloads MNIST when it is asked to."""

import ast
from pathlib import Path

import sqair

NETWORK = {"aiohttp", "asyncio", "ftplib", "http", "httpx", "requests", "smtplib", "socket", "ssl", "urllib", "urllib3"}
ALLOWED = {"data/mnist.py"}


def imported(path: Path) -> set[str]:
    """The packages that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_one_module_uses_the_network() -> None:
    root = Path(sqair.__file__).parent
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") if imported(path) & NETWORK}
    assert found == ALLOWED
