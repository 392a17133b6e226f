"""MNIST files: where they are looked for, what is refused, and downloads from mirrors on the loopback interface."""

import gzip
import hashlib
import http.server
import threading
from pathlib import Path

import numpy as np
import pytest

from sqair.config import UserError
from sqair.data import mnist
from sqair.data.mnist import find_file, load_mnist, read_idx

IMAGES = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28]) + bytes(range(196)) * 8
LABELS = bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 3])
FILES = {
    f"{part}-{kind}.gz": gzip.compress(content, mtime=0)
    for part in ("train", "t10k")
    for kind, content in (("images-idx3-ubyte", IMAGES), ("labels-idx1-ubyte", LABELS))
}
CHECKSUMS = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
IMAGE_FILE = "train-images-idx3-ubyte"


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """An empty cache, no $SQAIR_DATA, no proxy between us and the loopback interface."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SQAIR_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(mnist, "SILENCE_S", 0.5)


@pytest.fixture
def mirror():
    """A function that starts a mirror which serves a dict of name -> bytes; `cut` promises more bytes than it sends."""
    servers = []

    def start(files: dict[str, bytes], cut: bool = False, silent: bool = False) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = files.get(self.path.lstrip("/"))
                if content is None:
                    return self.send_error(404)
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if silent:
                    done.wait(5)
                self.wfile.write(content[: len(content) // 2] if cut or silent else content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        done = threading.Event()
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append((server, done))
        return f"http://127.0.0.1:{server.server_address[1]}/"

    yield start
    for server, done in servers:
        done.set()
        server.shutdown()
        server.server_close()


DOWN = "http://127.0.0.1:9/"


def all_files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def refusal(call, *arguments, **keywords) -> str:
    """The one line of the error that `call` must raise."""
    with pytest.raises(UserError) as caught:
        call(*arguments, **keywords)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_download_once(mirror, tmp_path):
    """The first call downloads into the cache, the second finds it there with every mirror down."""
    images, labels = load_mnist("train", mirrors=[mirror(FILES)], checksums=CHECKSUMS)
    assert images.tobytes() == IMAGES[16:]
    assert labels.tolist() == [7, 3]
    folder = tmp_path / "cache/sqair/mnist"
    assert all_files(folder) == [f"{IMAGE_FILE}.gz", "train-labels-idx1-ubyte.gz"]
    assert (folder / f"{IMAGE_FILE}.gz").stat().st_mode & 0o444 == 0o444
    np.testing.assert_array_equal(load_mnist("train", mirrors=[DOWN], checksums=CHECKSUMS)[0], images)


@pytest.mark.parametrize("fault", ["down", "missing", "cut", "silent", "wrong"])
def test_second_mirror_helps(mirror, fault):
    """Whatever is wrong with the first mirror, the second serves."""
    first = {
        "down": lambda: DOWN,
        "missing": lambda: mirror({}),
        "cut": lambda: mirror(FILES, cut=True),
        "silent": lambda: mirror(FILES, silent=True),
        "wrong": lambda: mirror({name: content + b"x" for name, content in FILES.items()}),
    }[fault]()
    assert find_file(IMAGE_FILE, None, [first, mirror(FILES)], CHECKSUMS).read_bytes() == FILES[f"{IMAGE_FILE}.gz"]


@pytest.mark.parametrize("fault", ["down", "missing", "cut", "wrong"])
def test_all_mirrors_fail(mirror, tmp_path, fault):
    """One line that names --digits and strokes; nothing is written, not even a folder."""
    mirrors = {
        "down": lambda: [DOWN, DOWN],
        "missing": lambda: [mirror({})],
        "cut": lambda: [mirror(FILES, cut=True)],
        "wrong": lambda: [mirror({name: content[:-1] + b"?" for name, content in FILES.items()})],
    }[fault]()
    line = refusal(load_mnist, "train", mirrors=mirrors, checksums=CHECKSUMS)
    assert "--digits DIR" in line
    assert "strokes" in line
    assert ("checksum" in line) == (fault in ("wrong", "cut"))
    assert all_files(tmp_path) == []


def test_slow_or_endless_mirrors_are_given_up(mirror, monkeypatch):
    """A file beyond the largest size or the longest time is not waited for."""
    url = mirror(FILES)
    monkeypatch.setattr(mnist, "LARGEST", 10)
    assert "too large" in refusal(find_file, IMAGE_FILE, None, [url], CHECKSUMS)
    monkeypatch.setattr(mnist, "LARGEST", 2**20)
    monkeypatch.setattr(mnist, "LONGEST_S", -1.0)
    assert "too slow" in refusal(find_file, IMAGE_FILE, None, [url], CHECKSUMS)


def test_unwritable_cache(mirror, tmp_path):
    """A cache that cannot be made is the user's to mend."""
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert "cannot write" in refusal(find_file, IMAGE_FILE, None, [mirror(FILES)], CHECKSUMS)


def test_search_order(tmp_path, monkeypatch):
    """An explicit folder, then $SQAIR_DATA/mnist, then the cache; gzipped before plain; the home's cache by default."""
    name = "train-labels-idx1-ubyte"
    given, data, cache = tmp_path / "given", tmp_path / "data/mnist", tmp_path / "cache/sqair/mnist"
    for folder in (given, data, cache):
        folder.mkdir(parents=True)
        (folder / name).write_bytes(LABELS)
    assert find_file(name) == cache / name
    monkeypatch.setenv("SQAIR_DATA", str(tmp_path / "data"))
    assert find_file(name) == data / name
    (data / f"{name}.gz").write_bytes(FILES[f"{name}.gz"])
    assert find_file(name, checksums=CHECKSUMS) == data / f"{name}.gz"
    assert find_file(name, given) == given / name
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert mnist.cache_folder() == tmp_path / ".cache/sqair/mnist"


def test_checksum_of_kept_files(tmp_path, monkeypatch):
    """A .gz in $SQAIR_DATA must be the original; in a folder that the user names any well-formed file will do."""
    folder = tmp_path / "data/mnist"
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    monkeypatch.setenv("SQAIR_DATA", str(tmp_path / "data"))
    line = refusal(load_mnist, "train")
    assert f"{folder / IMAGE_FILE}.gz" in line
    assert "checksum" in line
    assert load_mnist("train", folder)[1].tolist() == [7, 3]
    assert all_files(folder) == sorted(FILES)


def zipped(content: bytes) -> bytes:
    """Without the time of day: all test workers must collect the same."""
    return gzip.compress(content, mtime=0)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (FILES[f"{IMAGE_FILE}.gz"][:-20], "truncated"),
        (FILES[f"{IMAGE_FILE}.gz"][:30] + b"\xff" * 9 + FILES[f"{IMAGE_FILE}.gz"][39:], "truncated"),
        (b"", "truncated or not|not an idx"),
        (b"<html>not found</html>", "not a gzip file"),
        (zipped(IMAGES[:-1]), "damaged"),
        (zipped(IMAGES + b"x"), "damaged"),
        (zipped(LABELS), "not an idx file of bytes with 3 axes"),
        (zipped(IMAGES[:3]), "not an idx file"),
        (zipped(IMAGES[:9]), "not an idx file"),
        (zipped(b"\0\0\x0d" + IMAGES[3:]), "not an idx file"),
        (zipped(IMAGES[:8] + bytes([0, 0, 0, 14, 0, 0, 0, 56]) + IMAGES[16:]), "28x28"),
        (zipped(IMAGES[:7] + b"\x01" + IMAGES[8 : 16 + 784]), "1 images but .* 2 labels"),
    ],
    ids=range(12),
)
def test_malformed_files(tmp_path, content, complaint):
    """Each way a file can be broken: one line that names the file, and the folder is left as it was."""
    (tmp_path / f"{IMAGE_FILE}.gz").write_bytes(content)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(LABELS)
    before = all_files(tmp_path)
    with pytest.raises(UserError, match=complaint) as caught:
        load_mnist("train", tmp_path)
    assert f"{IMAGE_FILE}.gz" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert all_files(tmp_path) == before


def test_labels_are_digits(tmp_path):
    """A label above 9 is refused."""
    (tmp_path / IMAGE_FILE).write_bytes(IMAGES)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(LABELS[:-1] + b"\x0a")
    assert "label 10" in refusal(load_mnist, "train", tmp_path)


def test_missing_file_in_folder(tmp_path):
    """A folder without the files is refused by the name of what is missing; nothing is downloaded instead."""
    assert f"no {IMAGE_FILE}" in refusal(load_mnist, "train", tmp_path)


def test_unreadable_file(tmp_path):
    """A folder where a file should be is no crash."""
    (tmp_path / "file").mkdir()
    assert "cannot read" in refusal(read_idx, tmp_path / "file", axes=1)


def test_the_four_official_files_are_known():
    """Names and checksums of the four files that we download, over https."""
    assert sorted(mnist.CHECKSUMS) == sorted(FILES)
    assert all(len(checksum) == 64 for checksum in mnist.CHECKSUMS.values())
    assert all(url.startswith("https://") and url.endswith("/") for url in mnist.MIRRORS)
