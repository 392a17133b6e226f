"""A background inside the model: what is painted before it, how it follows the light, and where it comes from."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sqair.background import DRIFT, LearnedBackground, RunningBackground, compared, scene_of
from sqair.config import DataConfig, ModelConfig, Preset, UserError
from sqair.data import Cutting, Subtraction, cut_sequences, load_sequences, save_sequences
from sqair.data.backdrops import place_of, surroundings, whole_scene, with_surroundings
from sqair.data.cameras import Camera as MadeCamera
from sqair.data.sequences import FileSource, file_source
from sqair.image import ImageModel, tight_boxes
from sqair.model import SQAIR, Info
from sqair.objects import Objects
from sqair.settings import check
from sqair.training.population import known_scene, with_scene

FRAME = (8, 6)
RUNNING = ModelConfig(image=FRAME, glimpse=(4, 3), max_objects=2, what_size=2, width=5, background="running")
LEARNED = dataclasses.replace(RUNNING, background="learned", background_size=(10, 12))
RNG = np.random.default_rng(0)


def pixels(*shape: int) -> jnp.ndarray:
    return jnp.asarray(RNG.random(shape, np.float32))


# --- objects before a background


class Plain(eqx.Module):
    """A decoder of glimpses of one colour: what holds the logits of the look and of the mask."""

    def __call__(self, what):
        return jnp.tile(what, (4, 3, 1))


def drawn(looks: list[float], masks: list[float], background: jnp.ndarray):
    """The middle of the canvas, and how much of it is hidden, by objects that fill the frame."""
    image = eqx.tree_at(lambda it: it.decoder, ImageModel(RUNNING, key=jax.random.key(0)), Plain())
    what = jnp.stack([jax.scipy.special.logit(jnp.array(looks)), jax.scipy.special.logit(jnp.array(masks)) + 2], 1)
    whole = jnp.tile(jnp.array([9.0, 9.0, 0.0, 0.0]), (2, 1))
    objects = Objects(what, whole, jnp.ones(2), jnp.arange(2))
    canvas, covered = image.painted(objects, background)
    np.testing.assert_array_equal(image.canvas(objects, background), canvas)
    return image, objects, canvas[2:-2, 2:-2], covered[2:-2, 2:-2]


@pytest.mark.parametrize("masks", [(0.3, 0.5), (0.9, 0.6)], ids=["side by side", "shared"])
def test_a_frame_is_a_mixture_of_the_background_and_the_looks(masks):
    """By the formula of background.py, for things that are darker and brighter than what they hide."""
    background, looks = pixels(*FRAME, 1), (0.1, 0.8)
    _, _, canvas, covered = drawn(list(looks), list(masks), background)
    total = sum(masks)
    paint = sum(m * a for m, a in zip(masks, looks, strict=True)) / max(1, total)
    np.testing.assert_allclose(covered, min(1, total), rtol=1e-4)
    np.testing.assert_allclose(canvas, (1 - min(1, total)) * background[2:-2, 2:-2] + paint, rtol=1e-3)


def test_absent_objects_hide_nothing_and_boxes_follow_masks():
    background = pixels(*FRAME, 1)
    image, objects, *_ = drawn([0.001, 0.9], [0.95, 0.9], background)
    nobody = objects._replace(pres=jnp.zeros(2))
    canvas, covered = image.painted(nobody, background)
    np.testing.assert_array_equal(canvas, background)
    assert not covered.any()
    boxes = tight_boxes(image, jax.tree.map(lambda leaf: leaf[None], objects))
    assert np.isfinite(boxes).all()  # also of the black one: its mask is there


AROUND = surroundings(np.full((1, *FRAME, 1), 90, np.uint8), np.array([[2, 1]]))


@eqx.filter_jit
def observe(model: SQAIR, frames: jnp.ndarray) -> tuple[Info, jnp.ndarray]:
    """Of frames that bring a scene along; and what is behind them."""
    info = model.observe(jax.random.key(2), with_surroundings(frames[None], AROUND)[0])[1]
    assert info.background is not None
    return info, info.background


def test_the_likelihood_is_that_of_the_raw_frame():
    """The density of x around the mixture, in closed form, at every frame."""
    frames = pixels(3, *FRAME, 1)
    info, behind = observe(SQAIR(RUNNING, key=jax.random.key(1)), frames)
    squared = np.square(np.asarray(frames - info.canvas)).sum((1, 2, 3))
    std, count = RUNNING.output_std, math.prod(FRAME)
    wanted = -squared / (2 * std**2) - count * (math.log(std) + 0.5 * math.log(2 * math.pi))
    np.testing.assert_allclose(info.log_likelihood, wanted, rtol=1e-5)
    np.testing.assert_allclose(behind[0], 90 / 255, rtol=1e-6)


@pytest.mark.parametrize("config", [RUNNING, LEARNED], ids=["running", "learned"])
def test_what_is_behind_a_frame_does_not_depend_on_it(config):
    """So that p(x_t | z_t, x_<t) is a density: another last frame leaves b_t; another frame before does not."""
    model, frames = SQAIR(config, key=jax.random.key(1)), pixels(3, *FRAME, 1)
    behind = [observe(model, frames.at[t].multiply(0.5))[1] for t in range(3)]
    same = observe(model, frames)[1]
    np.testing.assert_array_equal(behind[2], same)
    np.testing.assert_array_equal(behind[0][0], same[0])
    assert np.abs(behind[0][1] - same[1]).max() > 1e-4
    assert np.abs(behind[1][2] - same[2]).max() > 1e-4


def test_dreams_go_on_before_the_same_background():
    """The one that the last frame left; what is dreamt teaches it nothing."""
    model = SQAIR(RUNNING, key=jax.random.key(1))
    first = RunningBackground(RUNNING).begin(model.initial().backdrop, pixels(*FRAME, 1), jnp.array(True))
    state = model.initial()._replace(backdrop=first)
    after, info = eqx.filter_jit(lambda state: model.imagine(jax.random.key(2), 3, state=state))(state)
    assert info.background is not None
    for t in range(3):
        np.testing.assert_array_equal(info.background[t], first.picture)
    np.testing.assert_array_equal(after.backdrop.picture, first.picture)


def test_without_a_background_nothing_is_carried():
    """Neither in the state nor in parameters: old models are what they were."""
    model = SQAIR(dataclasses.replace(RUNNING, background="none"), key=jax.random.key(1))
    assert model.background is None
    assert model.initial().backdrop is None
    assert model.image.decoder.shape == (4, 3, 1)  # type: ignore[union-attr]


# --- running


def test_the_running_average():
    """b + a (1 - c) (x - b); at first, the scene that a frame brings along."""
    background = RunningBackground(RUNNING)
    scene, x = pixels(*FRAME, 1), pixels(*FRAME, 1)
    covered = pixels(*FRAME, 1)
    frame = jnp.concatenate([x, scene, jnp.zeros((*FRAME, 4))], -1)
    known = background.begin(background.initial(), frame, jnp.array(True))
    np.testing.assert_array_equal(background.behind(known), scene)
    after = background.follow(known, x, covered)
    np.testing.assert_allclose(background.behind(after), scene + 0.02 * (1 - covered) * (x - scene), rtol=1e-5)
    again = background.begin(after, frame, jnp.array(False))
    np.testing.assert_array_equal(background.behind(again), background.behind(after))


def test_the_running_average_follows_the_light_of_a_camera():
    """Of a made camera whose light drifts: where nobody is, it ends nearer to the scene than what it began with."""
    film = MadeCamera("street", frames=300, size=(24, 32), objects=1)
    config = dataclasses.replace(RUNNING, image=film.size, background_rate=0.1)
    background = RunningBackground(config)
    follow = jax.jit(background.follow)
    frames = [jnp.asarray(film.frame(t), jnp.float32)[..., None] / 255 for t in range(0, 300, 2)]
    known = first = background.begin(background.initial(), frames[0], jnp.array(True))
    errors = []
    for t, x in enumerate(frames):
        covered = np.zeros((*film.size, 1), np.float32)
        for left, top, width, height in film.boxes(2 * t).boxes.astype(int):
            covered[max(0, top - 1) : top + height + 2, max(0, left - 1) : left + width + 2] = 1
        free = covered < 1
        errors.append([float(np.abs(x - background.behind(of))[free].mean()) for of in (known, first)])
        known = follow(known, x, jnp.asarray(covered))
    running, stale = np.array(errors)[50:].mean(0)
    noise = 2.5 / 255 * math.sqrt(2 / math.pi)
    assert running < 1.5 * noise
    assert stale > 2 * running


# --- learned


def test_the_light_is_found_by_least_squares_and_drifts():
    background = with_scene(SQAIR(LEARNED, key=jax.random.key(0)), np.asarray(pixels(10, 12, 1))).background
    assert isinstance(background, LearnedBackground)
    piece = background.picture[1:9, 2:8]
    around = surroundings(np.asarray(jnp.round(255 * 0.6 * piece), np.uint8)[None], np.array([[2, 1]]))
    frame = with_surroundings(pixels(1, 1, *FRAME, 1), around)[0, 0]
    known = background.begin(background.initial(), frame, jnp.array(True))
    assert known.place.tolist() == [2, 1]
    assert float(known.light) == pytest.approx(0.6, abs=0.01)
    np.testing.assert_allclose(background.behind(known), known.light * piece, rtol=1e-5)
    covered = jnp.zeros((*FRAME, 1)).at[:3].set(1.0)
    brighter = (0.9 * piece).at[:3].set(0.0)  # what is hidden says nothing
    after = background.follow(known, brighter, covered)
    assert float(after.light) == pytest.approx(float(known.light + DRIFT * (0.9 - known.light)), rel=1e-4)
    assert background.begin(after, frame, jnp.array(False)).light == after.light


def test_the_learned_picture_has_the_gradient_of_its_piece():
    """Of log N(x | g B, std^2) in closed form, and none elsewhere."""
    model = SQAIR(LEARNED, key=jax.random.key(0))
    around = surroundings(np.full((1, *FRAME, 1), 100, np.uint8), np.array([[3, 2]]))
    frame = with_surroundings(pixels(1, 1, *FRAME, 1), around)[0, 0]
    nobody = model.initial().objects

    def likelihood(background: LearnedBackground) -> jnp.ndarray:
        known = background.begin(background.initial(), frame, jnp.array(True))
        return model.image.log_prob(frame[..., :1], model.image.canvas(nobody, background.behind(known)))

    assert isinstance(model.background, LearnedBackground)
    gradient = eqx.filter_grad(likelihood)(model.background).picture
    light = (100 / 255) / 0.5
    wanted = light * (frame[..., :1] - 100 / 255) / LEARNED.output_std**2
    np.testing.assert_allclose(gradient[2:10, 3:9], wanted, rtol=2e-3, atol=1e-3)
    assert np.abs(gradient).sum() == pytest.approx(np.abs(wanted).sum(), rel=1e-3)


def test_q_sees_the_picture_and_its_difference():
    picture, behind = pixels(*FRAME, 1), pixels(*FRAME, 1)
    seen = compared(picture, behind)
    np.testing.assert_array_equal(seen[..., :1], picture)
    np.testing.assert_allclose(seen[..., 1:], 4 * (picture - behind), rtol=1e-6)
    np.testing.assert_array_equal(scene_of(picture, 1), picture)


# --- frames that bring their scene along


@pytest.mark.parametrize("channels", [1, 3])
def test_places_and_scenes_survive_as_bytes(channels):
    scenes = RNG.integers(0, 256, (2, *FRAME, channels)).astype(np.uint8)
    corners = np.array([[3, 700], [65_535, 256]])
    frames = with_surroundings(pixels(2, 4, *FRAME, channels), surroundings(scenes, corners))
    as_bytes = jnp.round(255 * frames).astype(jnp.uint8).astype(jnp.float32) / 255
    for s in range(2):
        assert place_of(as_bytes[s, 3]).tolist() == corners[s].tolist()
        np.testing.assert_allclose(scene_of(frames[s, 1], channels), scenes[s] / 255, atol=1e-6)


def test_the_whole_scene_of_its_pieces():
    whole = RNG.integers(0, 256, (10, 12, 1)).astype(np.uint8)
    corners = np.array([[0, 0], [4, 2], [4, 0]])
    scenes = np.stack([whole[top : top + 8, left : left + 6] for left, top in corners])
    found = whole_scene(scenes, corners, (10, 12))
    np.testing.assert_allclose(found[:8, :6], whole[:8, :6] / 255, atol=1e-6)
    np.testing.assert_allclose(found[2:10, 4:10], whole[2:10, 4:10] / 255, atol=1e-6)
    assert found[9, 0] == found[0, 11] == pytest.approx(scenes.mean() / 255, rel=0.1)


@pytest.fixture(scope="module")
def raw(tmp_path_factory) -> FileSource:
    """Raw windows of a made camera, through a file."""
    film = MadeCamera("street", frames=40, size=(48, 64), seed=1)
    cutting = Cutting(height=0, crop=(16, 20), length=3, sequences=30, raw=True, empty=0.5)
    path = tmp_path_factory.mktemp("raw") / "raw.npz"
    save_sequences(path, cut_sequences(film.clip(), Subtraction(), cutting).sequences)
    return file_source(load_sequences(path), DataConfig(str(path), length=3, size=(16, 20)), "train")


def test_raw_windows_come_with_the_scene_behind_them(raw):
    """Most pixels are the scene's, in its light; the corners tell where they lie in the camera's picture."""
    frames, scene, corners = (
        np.asarray(values) for values in (raw.sequences.frames, raw.sequences.scene, raw.sequences.corners)
    )
    assert frames.shape[1:] == (3, 16, 20)
    difference = np.abs(frames[:, 0].astype(float) - scene)
    assert np.median(difference) < 4
    assert (difference > 20).mean() > 0.02  # walkers
    film = MadeCamera("street", frames=40, size=(48, 64), seed=1).frame(20).astype(float)
    for (left, top), piece in zip(corners, scene, strict=True):
        assert np.median(np.abs(film[top : top + 16, left : left + 20] - piece)) < 15
    batch = raw.batch(jax.random.key(0), 2)
    assert batch.frames.shape == (2, 3, 16, 20, 6)
    assert batch.scene is None


def test_a_learned_background_begins_as_the_scene_of_the_data(raw):
    config = dataclasses.replace(LEARNED, image=(16, 20), background_size=(48, 64))
    scene = known_scene(raw, config)
    assert scene is not None
    film = MadeCamera("street", frames=40, size=(48, 64), seed=1).frame(20) / 255
    assert np.median(np.abs(scene[..., 0] - film)) < 0.04
    assert known_scene(raw, RUNNING) is None


# --- refusals


def test_what_does_not_go_together_is_refused(tmp_path):
    with pytest.raises(UserError, match="background goes with the kind sqair"):
        check(Preset(model=dataclasses.replace(RUNNING, kind="air")))
    with pytest.raises(UserError, match=r"without model\.mean_image"):
        check(Preset(model=dataclasses.replace(RUNNING, mean_image=True)))
    with pytest.raises(UserError, match="windows cannot move"):
        Cutting(raw=True, moving=True)
    frames = np.zeros((2, 3, 8, 6), np.uint8)
    for odd in (
        {"scene": frames[:, 0]},
        {"corners": np.zeros((2, 2), int)},
        {"scene": frames[:, 0, :4], "corners": np.zeros((2, 2), int)},
    ):
        np.savez(tmp_path / "odd.npz", frames=frames, **odd)  # type: ignore[arg-type]
        with pytest.raises(UserError, match="must have both `corners` and `scene`"):
            load_sequences(tmp_path / "odd.npz")
