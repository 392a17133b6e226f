"""Files of sequences and the sources that training and evaluation draw from."""

import io
import os
import zipfile
from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqair.config import DataConfig, UserError
from sqair.data import (
    FileSource,
    GeneratedSource,
    Sequences,
    Split,
    collect,
    load_sequences,
    open_data,
    save_sequences,
    to_bytes,
)

SMALL = DataConfig(digits="strokes", length=2, size=(24, 30), max_digits=1, digit_scale=0.5)


def some_sequences(seed=0, count=12, length=3, objects=2, colour=False, truth=True) -> Sequences:
    """Random bytes with a random truth of the right form."""
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 256, (count, length, 4, 5) + (3,) * colour).astype(np.uint8)
    if not truth:
        return Sequences(frames)
    ids = rng.integers(-1, 3, (count, length, objects)).astype(np.int32)
    boxes = rng.normal(size=(count, length, objects, 4)).astype(np.float32)
    boxes[ids < 0] = np.nan
    labels = rng.integers(-1, 10, (count, objects)).astype(np.int32)
    visible = rng.random((count, length, objects)).astype(np.float32)
    return Sequences(frames, (ids >= 0).sum(axis=2).astype(np.int32), boxes, ids, labels, visible)


def assert_equal(first: Sequences, second: Sequences) -> None:
    for name, a, b in zip(Sequences._fields, first, second, strict=True):
        if a is None or b is None:
            assert a is b, name
        else:
            assert a.dtype == b.dtype, name
            np.testing.assert_array_equal(a, b, err_msg=name)


@given(st.integers(0, 99), st.integers(1, 4), st.integers(1, 3), st.integers(0, 3), st.booleans(), st.booleans())
def test_round_trip(tmp_path_factory, seed, count, length, objects, colour, truth):
    """What is saved is loaded: grey or colour, with or without truth, any number of objects, none included."""
    path = tmp_path_factory.mktemp("npz") / "x.npz"
    sequences = some_sequences(seed, count, length, objects, colour, truth)
    save_sequences(path, sequences)
    assert_equal(load_sequences(path), sequences)
    assert os.listdir(path.parent) == ["x.npz"]


def test_floats_are_saved_as_bytes(tmp_path):
    """Frames in [0, 1] become the nearest byte; the same sequences give the same file."""
    frames = some_sequences(truth=False).frames
    for name in ("a.npz", "b.npz"):
        save_sequences(tmp_path / name, Sequences(frames.astype(np.float32) / 255))
    np.testing.assert_array_equal(load_sequences(tmp_path / "a.npz").frames, frames)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def npz(**arrays) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def npy(array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def zipped(name: str) -> bytes:
    """A zip file with a letter in it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, "not an array")
    return buffer.getvalue()


def damaged(content: bytes) -> bytes:
    """An .npz with some bytes in the middle of its first array overwritten."""
    middle = len(content) // 3
    return content[:middle] + bytes(8) + content[middle + 8 :]


FRAMES = some_sequences(truth=False).frames
GOOD = npz(**some_sequences()._asdict())


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "intact"),
        (b"not a zip file at all", "intact"),
        (GOOD[: len(GOOD) // 2], "intact"),
        (GOOD[:-1], "intact"),
        (damaged(GOOD), "intact"),
        (npy(FRAMES), "intact"),
        (zipped("letter.txt"), "no array `frames`"),
        (zipped("frames"), "not an array"),
        (zipped("frames.npy"), "not an array"),
        (npz(images=FRAMES), "no array `frames`"),
        (npz(frames=np.array([{"a": 1}], object)), "intact"),
        (npz(frames=FRAMES, format_version=np.int32(99)), "format 99"),
        (npz(frames=FRAMES, format_version=np.zeros(3)), "format"),
        (npz(frames=FRAMES.astype(np.float32)), "must be uint8"),
        (npz(frames=FRAMES[0]), "must be uint8"),
        (npz(frames=FRAMES[..., None]), "last axis of 3"),
        (npz(frames=FRAMES[:0]), "no sequences"),
        (npz(frames=FRAMES[:, :0]), "no sequences"),
        (npz(frames=FRAMES, counts=np.zeros((12, 4), int)), r"`counts` .* must be \(12, 3\)"),
        (npz(frames=FRAMES, counts=np.zeros((12, 3))), "must be integers"),
        (npz(frames=FRAMES, visible=np.zeros((12, 3, 1), int)), "must be floats"),
        (npz(frames=FRAMES, boxes=np.zeros((12, 3, 2, 5))), "`boxes`"),
        (npz(frames=FRAMES, ids=np.zeros((12, 3), int)), "`ids`"),
        (npz(frames=FRAMES, most_objects=np.zeros((12, 4), int)), "`most_objects`"),
        (npz(frames=FRAMES, most_objects=np.zeros((12, 3))), "must be integers"),
        (npz(frames=FRAMES, ids=np.zeros((12, 3, 2), int), labels=np.zeros((12, 3), int)), "`labels`"),
    ],
)
def test_malformed_files(tmp_path, content, complaint):
    """Each way a file can be wrong: one line that names the file, and the file is left as it was."""
    path = tmp_path / "x.npz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=complaint) as caught:
        load_sequences(path)
    assert "x.npz" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == ["x.npz"]
    assert path.read_bytes() == content


def test_missing_file_and_folder(tmp_path):
    """No file, or a folder in its place."""
    with pytest.raises(UserError, match="does not exist"):
        load_sequences(tmp_path / "x.npz")
    with pytest.raises(UserError, match="is a folder"):
        load_sequences(tmp_path)


def test_failed_writes_leave_nothing(tmp_path, monkeypatch):
    """Wrong arrays, a disk that fills up, or an interrupt: the old file stays and no other appears."""
    path = tmp_path / "x.npz"
    path.write_bytes(b"old")
    with pytest.raises(UserError, match="no sequences"):
        save_sequences(path, Sequences(FRAMES[:0]))
    with pytest.raises(UserError, match="`counts`"):
        save_sequences(path, Sequences(FRAMES, np.zeros((1, 1), np.int32)))
    for error, expected in (
        (OSError(28, "No space left on device"), UserError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ):

        def fail(file, error=error, **arrays):
            file.write(b"half")
            raise error

        monkeypatch.setattr(np, "savez_compressed", fail)
        with pytest.raises(expected):
            save_sequences(path, Sequences(FRAMES))
        assert os.listdir(tmp_path) == ["x.npz"]
        assert path.read_bytes() == b"old"


def test_unwritable_place(tmp_path):
    """A file where a folder should be is the user's to mend."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        save_sequences(tmp_path / "file" / "x.npz", Sequences(FRAMES))


# --- sources


@pytest.fixture(scope="module")
def generated() -> GeneratedSource:
    source = open_data(SMALL, "validation")
    assert isinstance(source, GeneratedSource)
    return source


@pytest.fixture
def file(tmp_path) -> DataConfig:
    """A file of 23 sequences of three frames, and its config."""
    path = tmp_path / "x.npz"
    save_sequences(path, some_sequences(count=23))
    return DataConfig(name=str(path), length=3, size=(4, 5))


def test_generated_batches_in_a_compiled_step(generated):
    """A source passes through a compiled function as an argument; its digits are scaled; keys make the difference."""
    batch = eqx.filter_jit(lambda source, key: source.batch(key, 7))
    first, again, other = (jax.tree.map(np.asarray, batch(generated, jax.random.key(k))) for k in (0, 0, 1))
    assert first.frames.shape == (7, 2, 24, 30)
    assert_equal(first, again)
    assert not np.array_equal(first.frames, other.frames)
    sizes = np.stack([batch(generated, jax.random.key(k)).boxes[..., 2:] for k in range(5)])
    assert 8 <= np.nanmax(sizes) <= 10


def test_fixed_list_does_not_depend_on_how_it_is_asked(generated):
    """Sequence i is the same alone, among few and among many; seeds differ."""
    many = generated.fixed(230)
    assert many.frames.shape[0] == 230
    assert_equal(jax.tree.map(lambda values: values[:5], many), generated.fixed(5))
    assert_equal(jax.tree.map(lambda values: values[95:215], many), generated.fixed(120, seed=1, start=95))
    assert not np.array_equal(generated.fixed(5, seed=2).frames, many.frames[:5])


def test_collect_is_the_fixed_list_in_bytes(generated, tmp_path):
    """Collected in pieces, saved and opened again, the list is the same to a byte."""
    collected = collect(generated, 130)
    assert collected.frames.dtype == np.uint8
    assert_equal(collected, jax.tree.map(np.asarray, to_bytes(generated.fixed(130))))
    path = tmp_path / "x.npz"
    save_sequences(path, collected)
    opened = open_data(replace(SMALL, name=str(path)), "test").fixed(130)
    assert_equal(jax.tree.map(np.asarray, opened), jax.tree.map(np.asarray, generated.fixed(130)))


def test_file_splits(file):
    """The last tenth, rounded up, is for validation, the rest for training, and a test uses all."""
    whole = load_sequences(file.name).frames
    parts: dict[Split, slice] = {"train": slice(20), "validation": slice(20, 23), "test": slice(23)}
    for split, part in parts.items():
        source = open_data(file, split)
        expected = whole[part]
        np.testing.assert_array_equal(to_bytes(source.fixed(len(expected))).frames, expected)
        with pytest.raises(UserError, match=f"only {len(expected)} sequences"):
            source.fixed(len(expected) + 1)


def test_some_of_a_file(file):
    """Batches are of the first three, by the program that serves for others; validation is the same."""
    programs = []

    @eqx.filter_jit
    def draw(source):
        programs.append(source)
        return source.batch(jax.random.key(0), 200).frames

    whole = [frames.tobytes() for frames in load_sequences(file.name).frames]
    for count in (3, 7):
        drawn = to_bytes(Sequences(draw(open_data(replace(file, sequences=count), "train")))).frames
        assert {whole.index(frames.tobytes()) for frames in drawn} == set(range(count))
    assert len(programs) == 1
    three = open_data(replace(file, sequences=3), "train")
    assert isinstance(three, FileSource)
    assert len(three) == 3
    with pytest.raises(UserError, match="only 3 sequences"):
        three.fixed(4)
    assert_equal(open_data(replace(file, sequences=3), "validation").fixed(3), open_data(file, "validation").fixed(3))
    with pytest.raises(UserError, match=r"20 sequences for training; set data\.sequences to no more, not 999"):
        open_data(replace(file, sequences=999), "train")
    with pytest.raises(UserError, match=r"data\.sequences is for files"):
        open_data(DataConfig(sequences=3), "train")


def test_file_batches(file):
    """Random rows of the file with their truth, in a compiled function; in time all of them."""
    source = open_data(replace(file, length=2), "train")
    assert isinstance(source, FileSource)
    batch = eqx.filter_jit(lambda source, key: source.batch(key, 200))(source, jax.random.key(0))
    whole = load_sequences(file.name)
    rows = {sequence[:2].tobytes(): i for i, sequence in enumerate(whole.frames)}
    drawn = [rows[sequence.tobytes()] for sequence in np.asarray(to_bytes(batch).frames)]
    assert set(drawn) == set(range(20))
    for name, values in batch._asdict().items():
        if name != "frames" and values is not None:
            expected = getattr(whole, name)[drawn]
            np.testing.assert_array_equal(values, expected if name == "labels" else expected[:, :2])


def test_file_fixed(file):
    """The file's order, whatever the seed."""
    source = open_data(file, "test")
    assert_equal(source.fixed(5, seed=1), source.fixed(5, seed=9))
    np.testing.assert_array_equal(to_bytes(source.fixed(4, start=3)).frames, load_sequences(file.name).frames[3:7])


def test_file_without_truth_in_colour(tmp_path):
    """A user's own clip: colour, no truth."""
    path = tmp_path / "x.npz"
    save_sequences(path, some_sequences(colour=True, truth=False))
    batch = open_data(DataConfig(name=str(path), length=3, size=(4, 5)), "train").batch(jax.random.key(0), 2)
    assert batch.frames.shape == (2, 3, 4, 5, 3)
    assert set(batch[1:]) == {None}


@pytest.mark.parametrize("count", [0, -3])
def test_zero_sequences(generated, file, count):
    """Both kinds of source refuse to give no sequences."""
    for call in (generated.fixed, open_data(file, "test").fixed, lambda n: collect(generated, n)):
        with pytest.raises(UserError, match="at least 1"):
            call(count)


def test_what_is_known_of_frames_goes_with_them(tmp_path):
    """Into a file, out of it, into its splits and into batches."""
    frames = np.arange(12, dtype=np.uint8)[:, None, None, None] + np.zeros((1, 3, 4, 5), np.uint8)
    most = np.arange(12, dtype=np.int32)[:, None] + 100 * np.arange(3, dtype=np.int32)
    save_sequences(tmp_path / "most.npz", Sequences(frames, most_objects=most))
    source = open_data(DataConfig(name=str(tmp_path / "most.npz"), length=2, size=(4, 5)), "train")
    for drawn in (source.batch(jax.random.key(0), 40), source.fixed(5, 0)):
        assert drawn.most_objects is not None
        numbers = np.asarray(to_bytes(jax.tree.map(np.asarray, drawn)).frames)[:, 0, 0, 0].astype(int)
        np.testing.assert_array_equal(drawn.most_objects, numbers[:, None] + np.array([0, 100]))


def test_refused_files(file, tmp_path):
    """Sequences that are too short, frames of another size, and one sequence to train on."""
    with pytest.raises(UserError, match="set length to 3 or less, not 4"):
        open_data(replace(file, length=4), "train")
    with pytest.raises(UserError, match="frames of 4x5; set size to that, not 50x50"):
        open_data(replace(file, size=(50, 50)), "train")
    save_sequences(tmp_path / "one.npz", some_sequences(count=1))
    one = replace(file, name=str(tmp_path / "one.npz"))
    assert len(open_data(one, "test").fixed(1).frames) == 1
    with pytest.raises(UserError, match="one sequence"):
        open_data(one, "train")


def test_unknown_data():
    """A misspelt name suggests the nearest and says what a file is called."""
    with pytest.raises(UserError, match=r"did you mean 'moving-mnist-free'\?.*\.npz"):
        open_data(replace(SMALL, name="moving-mnist-fre"), "train")
    with pytest.raises(UserError, match="may not hold"):
        open_data(replace(SMALL, max_digits=9), "validation")
