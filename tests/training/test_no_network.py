"""Nothing phones home: two modules open connections, when they are asked to: to download MNIST, to find a cluster."""

import ast
from pathlib import Path

import sqair

NETWORK = {"aiohttp", "asyncio", "ftplib", "http", "httpx", "requests", "smtplib", "socket", "ssl", "urllib", "urllib3"}
ALLOWED = {"data/mnist.py", "cluster.py"}


def imported(path: Path) -> set[str]:
    """The packages that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_two_modules_use_the_network() -> None:
    root = Path(sqair.__file__).parent
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") if imported(path) & NETWORK}
    assert found == ALLOWED
