"""Files of tracks: round trips, streams, and 10,000 strangers' files."""

import contextlib
import csv
import io
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqair.config import ModelConfig, Preset, UserError
from sqair.settings import check, from_dict, to_dict
from sqair.tracks import TrackFiles, Tracks, read_truth, text
from sqair.tracks.text import FIELDS, parse_csv, parse_json, parse_mot

floats = st.floats(-1e4, 1e4, width=32)
sizes = st.floats(2**-10, 2**14, width=32)
boxes = st.tuples(floats, floats, sizes, sizes)
unseen = st.just((float("nan"),) * 4)
rows = st.tuples(
    st.integers(0, 30), st.integers(0, 5), boxes | unseen, boxes | unseen, st.floats(0, 1, width=32), sizes
)


@st.composite
def tables(draw: st.DrawFn) -> Tracks:
    """Any tracks."""
    found = draw(st.lists(rows, max_size=8, unique_by=lambda row: row[:2]))
    frame, id, box, where, presence, spread = zip(*found, strict=True) if found else ((),) * 6
    box, where = (np.array(values, np.float32).reshape(-1, 4) for values in (box, where))
    frames = max(frame, default=-1) + 1 + draw(st.integers(0, 2))
    clip = {"frames": frames, "size": draw(st.none() | st.just((20, 30))), "rate": draw(st.none() | st.just(29.97))}
    columns = {"where": where, "presence": np.array(presence), "spread": np.array(spread)}
    return Tracks.make(
        np.array(frame, int), np.array(id, int), box, **columns, **clip, source=draw(st.text(max_size=9))
    )


def files(folder: Path) -> list[Path]:
    return [folder / f"tracks.{suffix}" for suffix in ("txt", "csv", "json")]


def hold(tracks: Tracks, folder: Path, pieces: int) -> None:
    """Write tracks in pieces, as a tracker would."""
    edges = np.linspace(0, tracks.frames, pieces + 1).astype(int)
    with TrackFiles(files(folder), size=tracks.size, rate=tracks.rate, source=tracks.source) as out:
        for start, stop in itertools.pairwise(edges.tolist()):
            out.add(tracks.between(start, stop))
        assert out.frames == tracks.frames


@settings(max_examples=30)
@given(tables(), st.integers(1, 4))
def test_round_trips(tmp_path_factory: pytest.TempPathFactory, tracks: Tracks, pieces: int) -> None:
    folder = tmp_path_factory.mktemp("round")
    hold(tracks, folder, pieces)
    mot, table, full = files(folder)
    assert Tracks.read(full) == tracks, "JSON holds everything"
    clip = {"frames": tracks.frames, "size": tracks.size, "rate": tracks.rate, "source": tracks.source}
    assert Tracks.read(table, **clip) == tracks, "CSV holds every row"
    back, seen = Tracks.read(mot, **clip), tracks.select(tracks.in_sight)
    assert (back.frame.tolist(), back.id.tolist()) == (seen.frame.tolist(), seen.id.tolist())
    np.testing.assert_allclose(back.box, seen.box, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(back.presence, seen.presence)
    for path in files(folder):
        once = path.read_bytes()
        tracks.write(path)
        assert path.read_bytes() == once, "in pieces or at once"


def test_motchallenge_counts_from_one(tmp_path: Path) -> None:
    Tracks.make(
        [0, 0, 1], [0, 3, 3], [[0, 2.5, 3, 4], [np.nan] * 4, [0.1, 1, 1, 1]], frames=2, presence=[1, 1, 0.75]
    ).write(tmp_path / "t.txt")
    lines = "1,1,1.0,3.5,3.0,4.0,1.0,-1,-1,-1\n2,4,1.1,2.0,1.0,1.0,0.75,-1,-1,-1\n"
    assert (tmp_path / "t.txt").read_text() == lines


def test_other_programs_read_the_files(tmp_path: Path) -> None:
    tracks = Tracks.make([0, 1], [0, 0], [[1, 2, 3, 4], [np.nan] * 4], frames=9, rate=30.0, source='<b>"')
    hold(tracks, tmp_path, 2)
    _, table, full = files(tmp_path)
    found = list(csv.DictReader(io.StringIO(table.read_text())))
    assert [row["left"] for row in found] == ["1.0", ""]
    content = json.loads(full.read_text())
    assert (content["frames"], content["source"], content["rate"], content["size"]) == (9, '<b>"', 30.0, None)
    assert content["columns"] == list(FIELDS)
    assert content["rows"][1] == [1, 0] + [None] * 10


def test_a_stream_that_fails_leaves_nothing(tmp_path: Path) -> None:
    tracks = Tracks.make([3], [0], [[1, 2, 3, 4]], frames=4)

    def write(*pieces: Tracks | None) -> None:
        with TrackFiles(files(tmp_path)) as out:
            for piece in pieces:
                out.add(piece)  # type: ignore[arg-type]

    with pytest.raises((TypeError, AttributeError, jaxtyping.TypeCheckError)):
        write(tracks, None)
    with pytest.raises(ValueError, match="frame 3 cannot follow frame 3"):
        write(tracks, tracks)
    (tmp_path / "tracks.json").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        write(tracks)
    assert not list(tmp_path.glob(".*"))
    with pytest.raises(UserError, match="must end in"):
        TrackFiles(["tracks.xml"])


def test_truth_of_a_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "gt.txt"
    path.write_text(
        "2,1,5,5,4,4,1,1,0.2\n1,1,5,5,4,4,1,1,0.9\n1,2,5,5,4,4,0,8,1\n\n1, 3, 5, 5, 4, 4\n3,1,5,5,4,4,1,-1,-1,-1\n"
    )
    tracks, ignored = read_truth(path, frames=7, size=(9, 9))
    assert (tracks.frames, tracks.size) == (7, (9, 9))
    assert list(zip(tracks.frame.tolist(), tracks.id.tolist(), ignored.tolist(), strict=True)) == [
        (0, 0, False),
        (0, 1, True),
        (0, 2, False),
        (1, 0, True),
        (2, 0, False),
    ]
    hold(tracks, tmp_path, 1)
    assert not read_truth(tmp_path / "tracks.json").ignored.any()


HEADER = ",".join(FIELDS)
JSON = {"format_version": 1, "columns": list(FIELDS), "frames": 2}


def as_json(**changes: Any) -> str:
    return json.dumps(JSON | {"rows": []} | changes)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "1,1,2,3,4,5\n1,1,2,3,4\n", "a.txt, line 2: frame,id,left,top,width,height are needed"),
        ("a.txt", "hello", "a.txt, line 1: frame,id"),
        ("a.txt", "1,1,2,3,x,5", "line 1: 'x' is not a number"),
        ("a.txt", "1,1,2,3,nan,5", "line 1: 'nan' is not a finite number"),
        ("a.txt", "0,1,2,3,4,5", "line 1: frame and id must be whole numbers from 1"),
        ("a.txt", "1,-1,2,3,4,5", "line 1: frame and id must be whole numbers from 1"),
        ("a.txt", "1.5,1,2,3,4,5", "line 1: frame and id must be whole"),
        ("a.txt", "1e9,1,2,3,4,5", "line 1: frame and id must be whole"),
        ("a.txt", "1,1,2,3,0,5", "line 1: box needs .* positive width"),
        ("a.txt", "1,1,1e300,3,4,5", "line 1: box needs four finite"),
        ("a.txt", "2,1,2,3,4,5\n1,1,2,3,4,5\n\n2,1,2,3,4,5", "line 4: .* already, on line 1"),
        ("a.csv", "", "line 1: there is no column 'frame'"),
        ("a.csv", "frame,id,left,top,width\n", "line 1: there is no column 'height'"),
        ("a.csv", f"{HEADER}\n0,0\n", "line 2: it has 2 fields, the header 12"),
        ("a.csv", "frame,id,left,top,width,height\n0,0,1,1,1,\n", "line 2: box needs four finite numbers"),
        ("a.csv", "frame,id,left,top,width,height\n,0,1,1,1,1\n", "line 2: frame and id must be whole numbers from 0"),
        ("a.csv", f"{HEADER}\n0,0,1,1,1,1,,,,,2,\n", "line 2: presence must be between"),
        ("a.csv", f"{HEADER}\n{'9' * 200_000}", "line 2: it is not CSV"),
        ("a.json", "{", "a.json, line 1: it is not intact JSON"),
        ("a.json", "[" * 100_000, "not intact JSON"),
        ("a.json", "[]", "is no file of tracks"),
        ("a.json", as_json(format_version=2), "format_version 2, this program reads 1"),
        ("a.json", as_json(rows={}), "`rows` must be a list"),
        ("a.json", as_json(rows=[[0] * 11]), "row 0: it must be a list of 12 numbers"),
        ("a.json", as_json(rows=[[0] * 11 + ["1"]]), "row 0: it may hold only numbers and null"),
        ("a.json", as_json(rows=[[0] * 11 + [True]]), "row 0: it may hold only numbers and null"),
        ("a.json", as_json(rows=[[10**400] + [0] * 11]), "row 0: a number is too large"),
        ("a.json", as_json(rows=[[2, 0, *[None] * 10]]), "row 0: the frame lies outside the clip"),
        ("a.json", as_json(rows=[[0, 0, *[float("nan")] * 10]]), "not intact JSON"),
        ("a.json", as_json(frames=10**30), "a.json: `frames` of tracks must be .* not a huge number"),
        ("a.json", as_json(frames=True), "`frames` of tracks must be"),
        ("a.json", as_json(size=[1]), "`size` of tracks must be"),
        ("a.json", as_json(size=["1", [2]]), "`size` of tracks must be"),
        ("a.json", as_json(rate="x" * 999), "`rate` of tracks must be"),
        ("a.json", as_json(source=3), "`source` of tracks must be text"),
        ("a.xml", "", "is no file of tracks: its name must end in"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        Tracks.read(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_files_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="does not exist"):
        Tracks.read(tmp_path / "no.txt")
    (tmp_path / "d.txt").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        Tracks.read(tmp_path / "d.txt")
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="is not text"):
        Tracks.read(tmp_path / "b.txt")
    with pytest.raises(UserError, match=r"cannot read|does not exist"):
        Tracks.read("zero\0.txt")
    (tmp_path / "c.txt").write_text("1,1,1,1,1,1\n" * 9)
    monkeypatch.setattr(text, "MOST_BYTES", 50)
    with pytest.raises(UserError, match="larger than"):
        Tracks.read(tmp_path / "c.txt")


def test_a_mark_of_windows_and_an_empty_file_are_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("\ufeff1,1,2,3,4,5\r\n".encode())
    assert Tracks.read(tmp_path / "a.txt").box.tolist() == [[1, 2, 4, 5]]
    (tmp_path / "b.txt").write_text("")
    assert Tracks.read(tmp_path / "b.txt", frames=4).counts.tolist() == [0] * 4


# --- 10,000 strangers' files


PARTS = ("0", "1", "2", "-1", "3.5", "1e9", "1e400", "nan", "inf", "", " ", "x", "\0", '"', "1_0", "٣", "NaN", "true")
field = st.sampled_from(PARTS) | st.floats().map(str) | st.text(max_size=3)
line = st.lists(field, max_size=13).map(",".join)
lines = st.lists(line | st.just("1,1,2,3,4,5"), max_size=4).map("\n".join)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just(10**400)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
json_row = st.lists(st.integers(0, 1) | st.none() | values, min_size=11, max_size=13) | st.just(
    [0, 0] + [1.5] * 9 + [0]
)
json_files = st.fixed_dictionaries(
    {
        "columns": st.just(list(FIELDS)),
        "format_version": st.just(1) | values,
        "rows": st.lists(json_row, max_size=2) | values,
    },
    optional={"frames": st.just(5) | values, "size": st.just([4, 5]) | values, "rate": values, "source": values},
)


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """All may go well, or be refused in one line."""
    said = ""
    try:
        yield
    except UserError as error:
        said = str(error)
    assert not re.search(r"[\n\r]", said)


# With the other two tests these are more than 10,000 inputs, since some are given to several readers.


@settings(max_examples=1300, database=None)
@given(lines | st.text())
def test_any_text(content: str) -> None:
    for parse in (parse_mot, parse_csv, parse_json):
        with one_line():
            parse(content, "x", {})


@settings(max_examples=1000, database=None)
@given(st.tuples(st.sampled_from((HEADER, ",".join(FIELDS[:6]))) | line, lines).map("\n".join))
def test_any_csv_file(content: str) -> None:
    with one_line():
        parse_csv(content, "x", {})


@pytest.mark.parametrize("rate", [25, 25.0])
def test_rate_of_a_json_file_may_be_whole(rate: float) -> None:
    content = {"format_version": 1, "columns": list(FIELDS), "rows": [], "rate": rate}
    found = parse_json(json.dumps(content), "x", {}).rate
    assert isinstance(found, float)
    assert found == 25


def test_rate_beyond_all_numbers() -> None:
    content = {"format_version": 1, "columns": list(FIELDS), "rows": [], "rate": 10**400}
    with pytest.raises(UserError, match="`rate` of tracks must be a positive number"):
        parse_json(json.dumps(content), "x", {})


@settings(max_examples=1500, database=None)
@given((json_files | values).map(json.dumps))
def test_any_json_file(content: str) -> None:
    with one_line():
        parse_json(content, "x", {})


@settings(max_examples=500, database=None)
@given(content=st.binary())
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    for suffix in ("txt", "csv", "json"):
        path = tmp_path_factory.getbasetemp() / f"any.{suffix}"
        path.write_bytes(content)
        with one_line():
            Tracks.read(path)


def paths(table: dict[str, Any], prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Where every value of nested tables is."""
    inner = ((key, paths(value, (*prefix, key)) if isinstance(value, dict) else []) for key, value in table.items())
    return [path for key, below in inner for path in ((*prefix, key), *below)]


@settings(max_examples=800, database=None)
@given(st.lists(st.tuples(st.sampled_from(paths(to_dict(Preset(model=ModelConfig())))), values), max_size=3), values)
def test_any_config(changes: list[tuple[tuple[str, ...], Any]], other: Any) -> None:
    """Settings with some values replaced by anything, and anything instead of settings."""
    table = to_dict(Preset(model=ModelConfig()))
    for path, value in changes:
        inner = table
        for key in path[:-1]:
            inner = inner.get(key) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner[path[-1]] = value
    for content in (table, other):
        with one_line():
            check(from_dict(Preset, content))


@settings(max_examples=500, database=None)
@given(content=st.binary() | values.map(lambda value: json.dumps({"format_version": 1, "model": value}).encode()))
def test_any_card(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """The config.json of a model."""
    from sqair.training.checkpoint import read_card

    folder = tmp_path_factory.getbasetemp()
    (folder / "config.json").write_bytes(content)
    with one_line():
        check(from_dict(ModelConfig, read_card(folder)["model"], "model."), "model.")
