"""`sqair fit`: what is proposed for a clip, one tiny fit from end to end, and clips that no model can be made of."""

import dataclasses
import json
import os
import re
import shlex
import shutil
import signal
import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest

from sqair.commands import Data, Train
from sqair.commands.common import flags_of
from sqair.commands.fit import Background, Fit, given_names
from sqair.commands.fit_proposal import Wishes, propose, table
from sqair.commands.fit_run import Label
from sqair.config import ModelConfig, TrainConfig
from sqair.data import Camera as MadeCamera
from sqair.data import Subtraction, load_sequences, save_frames
from sqair.data.camera import Camera, Sizes, camera_of
from sqair.data.survey import Survey, survey
from sqair.training.checkpoint import build, load_model, read_card, save_pretrained
from sqair.training.loop import Run
from sqair.training.resume import newest

SUBTRACTION = Subtraction(look="mixed")
OBJECTS = Sizes((18.0, 20.0, 24.0), (46.0, 52.0, 60.0))
SEEN = Survey(
    name="clip",
    size=(480, 640),
    part=(0, 500),
    frames=500,
    cuts=0,
    shake=0.0,
    drift=0.0,
    noise=1.0,
    foreground=0.02,
    brightness=0.8,
    busy=1.0,
    counts=(1.0, 3.0, 5.0),
    motion=(0.05, 0.1, 0.2),
    objects=OBJECTS,
)
# As in test_cli_end_to_end.py, to the last number, so that what is compiled there serves here.
TINY = ["--crop", "16", "16", "--length=3", "--sequences=20", "--model.glimpse", "6", "6", "--model.max-objects=2"]
TINY += ["--model.what-size=4", "--model.width=8", "--model.output-std=0.3", "--model.scale-limits", "0.02", "1.0"]
TINY += ["--model.where-prior-mean", "-0.5", "-0.5", "0", "0", "--model.where-prior-std", "0.5", "0.5", "0.5", "0.5"]
TINY += ["--train.batch=2", "--train.particles=2", "--train.validation-sequences=2", "--train.evaluate-every=2"]
TINY += ["--train.stage=1", "--train.discovery-cost=50", "--steps=2"]


def proposed(seen: Survey = SEEN, *, on_cpu: bool = False, **wishes):
    return propose(seen, SUBTRACTION, Wishes(**wishes), on_cpu=on_cpu)


# --- proposals


def test_the_usual_thing_becomes_as_large_as_a_digit():
    made = proposed()
    evidence = made.camera.evidence
    assert made.camera == Camera(SUBTRACTION, 240, (480, 640), (64, 64), 1, OBJECTS, evidence=evidence)
    model = made.model
    assert (model.image, model.glimpse, model.max_objects) == ((64, 64), (28, 12), 3)
    assert model.output_std == 0.3
    assert made.length == 10
    limits, sides = (model.width_limits, model.scale_limits), ((9, 10, 12), (23, 26, 30))
    for (low, high), mean, (small, usual, large) in zip(limits, model.where_prior_mean[:2], sides, strict=True):
        assert low + (high - low) / (1 + np.exp(-mean)) == pytest.approx(1.15 * usual / 64, rel=0.02)
        assert low < 0.7 * small / 64
        assert 1.2 * large / 64 < high < 2 * large / 64
    assert made.train.patience > 0
    assert made.train.discovery_dropout < TrainConfig().discovery_dropout, "things come and go"


def test_proposals_follow_the_size_of_things():
    """On a made camera the proposed height times the size of walkers is the same, up to 15%."""
    products = []
    for scale in (0.5, 1.0, 2.0):
        made = MadeCamera(frames=100, size=(200, 264), scale=scale, objects=3)
        products.append(scale * proposed(survey(made.clip(), SUBTRACTION)).camera.height)
    assert max(products) <= 1.15 * min(products)


def sized(width: float, height: float, **changes) -> Survey:
    """A clip with things of one size."""
    return dataclasses.replace(SEEN, objects=Sizes((width, width, width), (height, height, height)), **changes)


def test_windows_smaller_than_things_have_limits_all_the_same():
    made = proposed(SEEN, height=240, crop=(12, 4))
    for low, high in (made.model.width_limits, made.model.scale_limits):
        assert 0 < low < high <= 1


def test_frames_are_never_scaled_up():
    """Where things are smaller than digits, the window and the glimpse are smaller instead."""
    made = proposed(sized(8.0, 6.0))
    assert made.camera.height == 480
    assert made.model.image == (20, 20)
    assert made.model.glimpse == (8, 8)


def test_a_small_frame_is_seen_as_a_whole():
    made = proposed(sized(160.0, 213.0, counts=(1.0, 2.0, 4.0)))
    assert made.model.image == (59, 79)
    assert made.model.max_objects == 4
    assert proposed(sized(160.0, 213.0, counts=(9.0, 9.0, 9.0))).model.max_objects == 6
    (row,) = (row for row in table(sized(160.0, 213.0), made, Wishes()) if row.what == "window")
    assert row.why == "the whole frame, in sequences up to 25% beyond its edges"
    assert made.beyond == 0.25
    assert made._replace(model=dataclasses.replace(made.model, background="running")).beyond == 0
    assert proposed(sized(140.0, 186.0)).model.image == (64, 64)  # 46% larger than a window


def test_before_a_background_presence_is_learnt_late():
    """An object that is drawn badly hides the background, so all of them would be given up before they are learnt."""
    seen, raw = sized(30.0, 40.0), Wishes(background="running")
    made = propose(seen, SUBTRACTION, raw, on_cpu=False)
    assert made.recipe(4000, raw).presence_delay == 500
    assert made.recipe(400, raw).presence_delay == 100
    told = dataclasses.replace(raw, train=TrainConfig(presence_delay=7), given=("train.presence_delay",))
    assert made.recipe(4000, told).presence_delay == 7
    assert proposed(seen).recipe(4000, Wishes()).presence_delay == 0


def test_a_price_on_objects_too_many_needs_blobs_that_tell_their_number():
    seen = sized(30.0, 40.0)
    assert proposed(seen).train.surplus_cost > 0
    assert proposed(seen, background="running").train.surplus_cost == 0
    assert proposed(seen, train=TrainConfig(bound="fivo"), given=("train.bound",)).train.surplus_cost == 0


def test_sequences_of_whole_frames_are_moved(here: Path, monkeypatch: pytest.MonkeyPatch):
    """Otherwise all of them would show the same place."""
    asked = []

    def cut(clip, subtraction, cutting):
        asked.append(cutting)
        raise KeyboardInterrupt

    monkeypatch.setattr("sqair.data.cut_sequences", cut)
    save_frames(here / "clip.npz", MadeCamera("street", 60, scale=2.0).clip())
    with pytest.raises(KeyboardInterrupt):
        Fit.parse([str(here / "clip.npz"), "--steps=2", "--height=53", "--crop", "0", "0"]).run()
    assert asked[0].beyond == 0.25


def test_windows_have_slots_for_those_whom_they_hold():
    made = proposed(dataclasses.replace(SEEN, counts=(9.0, 9.0, 9.0)))
    assert (made.model.image, made.model.max_objects, made.beyond) == ((64, 64), 3, 0)
    crowded = proposed(sized(150.0, 40.0, counts=(6.0, 7.0, 8.0)))  # 64x64 of 83x111 pixels, 44% of the frame
    assert (crowded.model.image, crowded.camera.height, crowded.model.max_objects) == ((64, 64), 83, 4)


def test_windows_that_hardly_differ_are_moved_beyond_the_frame():
    """A frame of 69x92 holds less than two of them, one of 83x111 more."""
    seen = sized(180.0, 40.0)
    assert (proposed(seen).model.image, proposed(seen).camera.height, proposed(seen).beyond) == ((64, 64), 69, 0.25)
    (said,) = [row.why for row in table(seen, proposed(seen), Wishes()) if row.what == "window"]
    assert said == "a part of the frame of 92x69, in sequences up to 25% beyond its edges"
    assert proposed(seen, background="running").beyond == 0
    assert proposed(sized(150.0, 40.0)).beyond == 0


@pytest.mark.parametrize(
    ("motion", "frames", "stride", "length"),
    [
        ((0.1, 0.3, 0.6), 500, 1, 5),
        ((0.1, 0.13, 0.2), 500, 1, 8),
        ((0.01, 0.01, 0.02), 500, 5, 10),
        ((0.01, 0.01, 0.2), 500, 2, 10),
        ((0.1, 0.1, 0.1), 24, 1, 6),
        ((0.0, 0.0, 0.0), 500, 1, 10),
    ],
)
def test_stride_and_length_follow_motion(motion, frames, stride, length):
    made = proposed(dataclasses.replace(SEEN, motion=motion, part=(0, frames)))
    assert (made.camera.stride, made.length) == (stride, length)


def test_dark_foreground_has_a_smaller_output_std():
    assert proposed(dataclasses.replace(SEEN, brightness=0.6)).model.output_std == pytest.approx(0.375 * 0.6, abs=0.006)
    assert proposed(dataclasses.replace(SEEN, brightness=0.1)).model.output_std == 0.2


def test_discovery_costs_a_share_of_what_a_thing_is_worth():
    """Of a thing that fills half of its box of 10x26 scaled pixels."""
    half = dataclasses.replace(SEEN, foreground=3 * 0.5 * 20 * 52 / (480 * 640))
    worth = 0.5 * 10 * 26 * 0.8**2 / (2 * 0.3**2)
    assert proposed(half).train.discovery_cost == pytest.approx(0.03 * worth, abs=0.6)
    assert proposed(half).camera.evidence == pytest.approx(0.1 * worth, abs=0.6)
    assert proposed(half).train.surplus_cost == pytest.approx(0.5 * worth, abs=0.6)
    full = proposed(dataclasses.replace(SEEN, foreground=0.9))
    assert full.train.discovery_cost == pytest.approx(0.06 * worth, abs=0.6)
    assert full.camera.evidence == pytest.approx(0.2 * worth, abs=0.6)
    assert proposed(dataclasses.replace(SEEN, brightness=0.02)).camera.evidence == 1, "0 would mean: not known"
    wishes = Wishes(train=TrainConfig(discovery_cost=7.0), given=("train.discovery_cost",))
    made = propose(half, SUBTRACTION, wishes, on_cpu=True)
    assert made.recipe(100, wishes).discovery_cost == 7
    told = {row.what: row for row in table(half, made, wishes)}
    assert told["discovery cost"][1:] == ("7 nats", "as you said")


@pytest.mark.parametrize("kind", ["running", "learned"])
def test_raw_frames_have_an_output_std_by_their_contrast(kind):
    seen = dataclasses.replace(SEEN, contrast=0.24)
    made = proposed(seen, background=kind)
    assert made.model.background == kind
    assert made.model.background_size == ((240, 320) if kind == "learned" else (0, 0))
    assert made.model.output_std == pytest.approx(0.375 * 0.24, abs=0.001)
    assert 0 < made.train.discovery_cost == pytest.approx(proposed(seen).train.discovery_cost, rel=0.3)
    told = {row.what: row for row in table(seen, made, Wishes(background=kind))}
    assert told["background"][1:] == (f"{kind}, in the model", "things differ from it by 0.24")
    assert "background" not in dataclasses.asdict(made.camera)


def test_wishes_come_first_and_the_rest_follows():
    given = ("model.output_std", "model.conv.decoder_maps", "train.batch", "train.warm_up")
    conv = dataclasses.replace(ModelConfig().conv, decoder_maps=7, decoder_hidden=9)
    model = ModelConfig(output_std=0.1, conv=conv, width=3)
    train = TrainConfig(batch=5, warm_up=77, particles=9)
    wishes = Wishes(120, (40, 0), 4, 2, "conv", model, train, given)
    made = propose(SEEN, SUBTRACTION, wishes, on_cpu=False)
    assert (made.camera.height, made.camera.crop, made.camera.stride, made.length) == (120, (40, 160), 2, 4)
    assert made.model.glimpse == (16, 8)
    assert (made.model.networks, made.model.output_std, made.model.width) == ("conv", 0.1, 128)
    assert (made.model.conv.decoder_maps, made.model.conv.decoder_hidden) == (7, 128)
    recipe = made.recipe(10_000, wishes)
    assert (recipe.steps, recipe.batch, recipe.warm_up, recipe.particles) == (10_000, 5, 77, 5)
    steps = Wishes(train=TrainConfig(steps=2000), given=("train.steps",))
    assert propose(SEEN, SUBTRACTION, steps, on_cpu=False).recipe(2000, steps) == proposed().recipe(2000, Wishes())
    assert made.preset("x.npz", recipe).data.size == made.model.image


def test_a_cpu_gets_a_smaller_model_and_the_table_tells_all():
    small, large = proposed(on_cpu=True), proposed()
    assert small.model.width < large.model.width
    assert small.train.batch < large.train.batch
    rows = table(SEEN, large, Wishes(crop=(64, 64), given=["model.glimpse"]))
    told = {row.what: row.value for row in rows}
    assert [row.what for row in rows if row.why == "as you said"] == ["window", "glimpse"]
    assert told["frame height"] == "240"
    assert told["window"] == "64x64"
    assert told["glimpse"] == "12x28"
    assert told["sequences"] == "3 to 10 frames"
    assert told["surplus cost"] == f"{large.train.surplus_cost:g} nats"


# --- flags


def test_the_flags_of_the_background_are_those_of_the_subtraction():
    flags = {item.name: item.default for item in dataclasses.fields(Background)}
    assert flags == {item.name: item.default for item in dataclasses.fields(Subtraction)} | {"look": "mixed"}
    assert Background().subtraction() == SUBTRACTION


def test_what_was_given_is_known():
    words = ["clip.mp4", "--model.max-objects", "4", "--train.no-restart-collapsed", "--model.conv.strides=1", "--crop"]
    given = given_names(words)
    assert {"model.max_objects", "train.restart_collapsed", "model.conv.strides"} <= set(given)
    assert not any("crop" in name for name in given)


def test_printed_settings_are_what_was_given(sqair, here: Path) -> None:
    words = ("fit", "clip.mp4", "--height=90", "--model.max-objects=4", "--subtraction.shadow=1", "--train.batch=8")
    done = sqair(*words, "--print-config")
    told = tomllib.loads(done.out)
    assert (told["height"], told["model"], told["train"]) == (90, {"max-objects": 4}, {"batch": 8})
    assert told["subtraction"]["shadow"] == 1
    (here / "fit.toml").write_text(done.out)
    again = sqair("fit", "clip.mp4", "--config", "fit.toml", "--print-config")
    assert tomllib.loads(again.out) == told
    assert "model" not in tomllib.loads(sqair("fit", "clip.mp4", "--print-config").out)


def test_wrong_usage(refused) -> None:
    assert "name a clip" in refused(2, "fit")
    assert "exclude each other" in refused(2, "fit", "a.mp4", "--steps=2", "--minutes=1")
    assert "exclude each other" in refused(2, "fit", "a.mp4", "--resume", "--overwrite")
    assert "keeps all its settings" in refused(2, "fit", "a.mp4", "--resume", "--height=3")
    assert "kind sqair" in refused(2, "fit", "a.mp4", "--model.kind=vrnn")
    assert "are for generated digits" in refused(2, "fit", "a.mp4", "--train.first-scale-steps=3")
    assert "is --background" in refused(2, "fit", "a.mp4", "--model.background=running")
    assert "--composed must be at least 0 and less than 1" in refused(1, "fit", "a.mp4", "--composed=1")
    assert "only what is subtracted" in refused(2, "fit", "a.mp4", "--composed=0.2", "--background=running")
    assert "--height must be at least 1" in refused(1, "fit", "a.mp4", "--height=-3")
    assert "--minutes must be more than 0" in refused(1, "fit", "a.mp4", "--minutes=0")
    assert "a.mp4 does not exist" in refused(1, "fit", "a.mp4")
    assert "there is no run runs/fit/a to resume" in refused(1, "fit", "a.mp4", "--resume")


# --- clips


def squares(frames: int = 60) -> np.ndarray:
    """Two dark things of 6x6 pixels cross a textured scene."""
    rng = np.random.default_rng(0)
    film = np.tile(rng.integers(130, 170, (40, 48), np.uint8), (frames, 1, 1))
    for t in range(frames):
        for top, start in ((6, 0), (24, 25)):
            left = (start + t) % 42
            film[t, top : top + 6, left : left + 6] = 20
    return film


def turning(frames: int = 40) -> np.ndarray:
    wide = np.random.default_rng(0).integers(60, 200, (48, 160)).astype(np.uint8)
    return np.stack([wide[:, 2 * t : 2 * t + 64] for t in range(frames)])


@pytest.mark.parametrize(
    ("film", "complaint"),
    [
        (np.tile(squares()[:1], (40, 1, 1)), "nothing moves in clip.npy"),
        (turning(), "clip.npy does not look like a fixed camera"),
        (squares(2), "clip.npy has 2 frames, and to learn a camera takes 10"),
    ],
    ids=["still", "turning", "two frames"],
)
def test_clips_that_no_model_can_be_made_of(film, complaint, refused, here: Path) -> None:
    np.save(here / "clip.npy", film)
    assert complaint in refused(1, "fit", "clip.npy")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with clip.npy and a run fitted to it."""
    from sqair.cli import main

    folder = tmp_path_factory.mktemp("fitted")
    np.save(folder / "clip.npy", squares())
    assert main(["fit", str(folder / "clip.npy"), "--out", str(folder / "run"), *TINY, "--quiet"]) == 0
    return folder


def test_a_fit_is_a_model_with_a_camera(fitted: Path) -> None:
    run = fitted / "run"
    assert load_model(run).config.image == (16, 16)
    for folder in (run, run / "best"):
        card = read_card(folder)
        camera = camera_of(card)
        assert camera is not None
        assert (camera.height, camera.size, camera.crop, camera.stride) == (40, (40, 48), (16, 16), 1)
        assert camera.subtraction == SUBTRACTION
        assert camera.objects.width[1] == pytest.approx(6, abs=1)
        assert "typical" in card["training"]
    sequences = load_sequences(run / "sequences.npz")
    assert sequences.frames.shape == (20, 3, 16, 16)
    assert sequences.counts is None
    assert sequences.most_objects is not None
    assert sequences.most_objects.min() >= 0, "the two squares are never together"
    assert read_card(run)["training"]["train"]["surplus_cost"] > 0
    told = json.loads((run / "fit.json").read_text())
    assert Camera.from_card(told["camera"]) == camera
    assert told["survey"]["part"] == [0, 60]


def test_every_member_of_a_population_knows_the_camera(tmp_path: Path) -> None:
    model = build(ModelConfig(image=(8, 8), glimpse=(4, 4), max_objects=1, what_size=2, width=4), jax.random.key(0))
    camera = Camera(SUBTRACTION, 240, (480, 640), (8, 8), 1, OBJECTS, evidence=7.0)
    folders = [tmp_path, tmp_path / "best", tmp_path / "members" / "0", tmp_path / "members" / "1"]
    for folder in folders:
        save_pretrained(model, folder)
    Label(camera).write(tmp_path)
    assert [camera_of(read_card(folder)) for folder in folders] == [camera] * 4
    load_model(folders[-1])


def test_a_fit_with_a_learned_background_can_track(fitted: Path, sqair, here: Path) -> None:
    """Raw windows, their scenes and places are trained on; the picture of the camera begins as its scene."""
    given = ("fit", fitted / "clip.npy", "--background=learned", "--out", "raw", *TINY, "--quiet")
    assert sqair(*given).code == 0
    sequences = load_sequences(here / "raw" / "sequences.npz")
    assert sequences.scene is not None
    assert np.median(np.abs(np.asarray(sequences.frames[:, 0], float) - sequences.scene)) < 3
    model = load_model(here / "raw")
    assert (model.config.background, model.config.background_size) == ("learned", (40, 48))
    scene = np.median(np.load(fitted / "clip.npy"), 0) / 255
    picture = np.asarray(model.background.picture)[..., 0]  # type: ignore[attr-defined]
    assert np.median(np.abs(picture - scene)) < 0.02
    done = sqair("track", fitted / "clip.npy", "--model", "raw", "--out", "tracked")
    assert done.code == 0, done.err
    assert json.loads((here / "tracked" / "summary.json").read_text())["frames"] == 60


def test_stopped_and_resumed_it_ends_with_the_same_weights(
    fitted: Path, sqair, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the clip is not: only the run's folder is needed."""
    save = fitted / "frames.npz"
    from sqair.data.video import open_clips

    (clip,) = open_clips(fitted / "clip.npy")
    save_frames(save, clip)
    shutil.copy(save, here / "clip.npz")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "notify", lambda self, lines: os.kill(os.getpid(), signal.SIGTERM))
        stopped = sqair("fit", "clip.npz", "--out", "run", *TINY)
    assert (stopped.code, stopped.out) == (143, "")
    assert "frame height" in stopped.err
    assert stopped.err.splitlines()[-1] == "sqair fit: stopped; continue with --resume --out run"
    assert newest(here / "run").notes.step == 1
    os.remove("clip.npz")
    assert sqair("fit", "--resume", "--out", "run", "--quiet") == (0, "Results saved to run\n", "")
    weights = [(folder / "model.safetensors").read_bytes() for folder in (here / "run", fitted / "run")]
    assert weights[0] == weights[1]
    assert camera_of(read_card(here / "run")) == camera_of(read_card(fitted / "run"))


def test_another_run_is_not_written_over(fitted: Path, refused) -> None:
    line = refused(2, "fit", fitted / "clip.npy", "--out", fitted / "run", *TINY)
    assert "is not empty; continue it with --resume or replace it with --overwrite" in line
    (fitted / "other").mkdir(exist_ok=True)
    (fitted / "other" / "note.txt").write_text("mine")
    assert "keeps all its settings" in refused(2, "fit", "--resume", "--out", fitted / "run", "--composed=0.1")
    assert "holds no run of `sqair fit`" in refused(1, "fit", "--resume", "--out", fitted / "other")


def test_the_time_decides_the_steps(fitted: Path, sqair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --steps they are counted, by the budget of a CPU, and a small number is remarked upon."""
    from sqair.commands import fit_run, speed

    asked = []

    def steps_within(preset, recipe, seconds, mesh):
        asked.append(seconds)
        return recipe(2).steps

    monkeypatch.setattr(speed, "steps_within", steps_within)
    monkeypatch.setattr(fit_run, "train_fitted", lambda fitted, folder, **_: asked.append(fitted.preset.train.steps))
    done = sqair("fit", fitted / "clip.npy", *TINY[:-1], "--out", "timed")
    assert done.code == 0, done.err
    assert asked == [900, 2]
    assert "training will take about 15 minutes, which are 2 steps" in done.err
    assert "that is little" in done.err


def test_how_long_it_takes_is_told_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step compiles; ten steps of 3 s after it leave 489 of 500, at 3 s each."""
    from sqair.commands import fit_run
    from sqair.training.loop import Progress

    clock = iter([100.0, 103.0, 130.0, 160.0])
    monkeypatch.setattr(fit_run.time, "perf_counter", lambda: next(clock))
    estimate = fit_run.Estimate(500)
    model = load_model("sqair-strokes")
    for step in (1, 2, 11, 21):
        estimate(Progress(step, model, None, [], Path()))
    assert capsys.readouterr().err == "training will take about 25 minutes, more as sequences grow longer\n"


def test_the_guide_can_be_typed(sqair) -> None:
    """Its commands parse, and its flags exist."""
    guide = (Path(__file__).parents[2] / "docs" / "cameras.md").read_text()
    commands = re.findall(r"^\$ sqair (.+)$", guide, re.MULTILINE)
    assert len(commands) == 12
    for command in commands:
        assert sqair(*shlex.split(command), "--print-config").code == 0
    known = {flag for command in (Data, Fit, Train) for flag in flags_of(command)}
    flags = set(re.findall(r"`(--[a-z.-]+)", guide)) - {"--train.", "--subtraction."}
    assert flags
    assert flags <= known
