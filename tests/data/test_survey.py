"""What is seen in a clip before a model is made for it: sizes, numbers, motion, and cameras that do not stand still."""

import dataclasses
import functools

import numpy as np
import pytest

from sqair.config import UserError
from sqair.data import Camera as MadeCamera
from sqair.data import Subtraction
from sqair.data.camera import Camera, Sizes, camera_of, scene_of
from sqair.data.scenery import smooth_noise
from sqair.data.stillness import Stillness, is_cut, shift_of
from sqair.data.survey import Life, Survey, check_survey, remarks, sizes_of, survey, weighted_quantiles
from sqair.data.video import Clip
from sqair.data.video_images import clip_of_array

SIZE = (72, 96)
MARGIN = 24
SUBTRACTION = Subtraction(look="mixed")


@functools.cache
def ground(seed: int = 0) -> np.ndarray:
    """A textured scene, larger than the frame on all sides."""
    rng = np.random.default_rng(seed)
    full = (SIZE[0] + 2 * MARGIN, SIZE[1] + 2 * MARGIN)
    return np.clip(140 + 15 * smooth_noise(rng, full, 3.0) + 15 * smooth_noise(rng, full, 12.0), 60, 220)


def film(frames: int = 60, *, path=None, things: int = 2, speed: int = 2, seed: int = 0) -> np.ndarray:
    """Dark things of 8x14 pixels cross a scene at so many pixels per frame; `path` tells where the camera looks."""
    rng = np.random.default_rng(seed + 1)
    shown = []
    for t in range(frames):
        scene = ground(seed).copy()
        for thing in range(things):
            left, top = (20 + 37 * thing + speed * t) % (SIZE[1] + 10) - 10 + MARGIN, MARGIN + 8 + 30 * thing
            scene[top : top + 14, max(left, 0) : left + 8] = 20
        x, y = (0, 0) if path is None else path[t]
        window = scene[MARGIN + y : MARGIN + y + SIZE[0], MARGIN + x : MARGIN + x + SIZE[1]]
        shown.append(np.clip(window + rng.normal(0, 1.5, SIZE), 0, 255).astype(np.uint8))
    return np.stack(shown)


def look(frames: np.ndarray, **options: int) -> Survey:
    return survey(clip_of_array(frames, "film", 10.0), SUBTRACTION, **options)


@pytest.fixture(scope="module")
def seen() -> Survey:
    return look(film())


# --- what moves


def test_sizes_numbers_and_motion(seen):
    assert (seen.size, seen.part, seen.frames, seen.cuts) == (SIZE, (0, 60), 60, 0)
    assert seen.objects is not None
    assert seen.objects.width[1] == pytest.approx(8, abs=1)
    assert seen.objects.height[1] == pytest.approx(14, abs=1)
    assert seen.counts[1:] == (2, 2)
    assert seen.motion[1] == pytest.approx(2 / np.sqrt(8 * 14), rel=0.15)
    assert seen.busy > 0.9
    assert seen.noise == pytest.approx(1.5, rel=0.2)
    assert seen.foreground == pytest.approx(2 * 8 * 14 / 96 / 72, rel=0.3)
    assert seen.brightness == pytest.approx(0.5 + 0.5 * (1 - 20 / 255), abs=0.05)
    assert remarks(seen) == []
    check_survey(seen)


@pytest.mark.parametrize("scene", ["street", "crossings"])
@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_the_sizes_of_walkers_are_found(scene, scale):
    """Within 15% of the truth, be they small or large, in pieces, in groups or without a head."""
    made = MadeCamera(scene, frames=100, size=(120, 160), scale=scale)
    boxes = np.concatenate([found.boxes[found.visible > 0.99] for found in map(made.boxes, range(0, 100, 4))])
    objects = survey(made.clip(), SUBTRACTION).objects
    assert objects is not None
    width, height = np.median(boxes[:, 2:], axis=0)
    assert objects.height[1] == pytest.approx(height, rel=0.15)
    assert objects.width[1] == pytest.approx(width, rel=0.15, abs=1.5)


def test_what_is_lost_now_and_then_is_made_good():
    """A thing of 8x20 pixels loses its head in three frames of four: it is 20 long, and no wider."""
    box = np.array([0.0, 0.0, 8.0, 16.0], np.float32)
    sides = [(8.0 + (t % 3 == 0), 20.0 if t % 4 == 0 else 16.0) for t in range(40)]
    life = Life(box, box + np.array([40, 0, 0, 0], np.float32), 40, sides)
    assert sizes_of([life]) == Sizes((8.0, 8.0, 9.0), (20.0, 20.0, 20.0))


def test_what_flickers_in_its_place_does_not_move():
    frames = film(things=0)
    frames[::2, 20:30, 20:30] = 20
    seen = look(frames)
    assert seen.objects is None
    with pytest.raises(UserError, match="nothing moves in film; give a longer clip, or lower"):
        check_survey(seen)


def test_a_part_of_the_clip_is_looked_at():
    frames = film(80)
    frames[:20] = film(20, things=0)
    seen = look(frames, start=20, stop=70)
    assert (seen.part, seen.frames) == ((20, 70), 50)
    assert seen.busy > 0.9


def test_things_before_an_empty_background_are_no_moving_camera():
    frames = np.full((50, 64, 64), 0, np.uint8)
    for t in range(50):
        frames[t, 12:20, t % 54 : t % 54 + 8] = frames[t, 40:48, t % 54 : t % 54 + 8] = 200
    seen = look(frames)
    assert seen.shake == 0
    check_survey(seen)
    assert seen.objects == Sizes((8.0, 8.0, 8.0), (8.0, 8.0, 8.0))


# --- odd clips


@pytest.mark.parametrize("frames", [1, 2, 9])
def test_too_few_frames(frames):
    with pytest.raises(
        UserError, match=rf"film has {frames} frames?, and to learn a camera takes 10 at the very least"
    ):
        look(film(frames))


def test_nothing_moves():
    for frames in (film(40, things=0), np.full((40, 64, 64), 150, np.uint8)):
        with pytest.raises(UserError, match="nothing moves in film"):
            check_survey(look(frames))


def there_and_back(t: int) -> tuple[int, int]:
    return (abs(3 * t % 80 - 40) - 20, 0)


@pytest.mark.parametrize(
    "way",
    [lambda t: (t // 2 - 20, 0), lambda t: (0, t // 3 - 12), there_and_back],
    ids=["turns", "tilts", "there and back"],
)
def test_a_moving_camera_is_refused(way):
    seen = look(film(path=[way(t) for t in range(60)]))
    with pytest.raises(UserError, match="film does not look like a fixed camera"):
        check_survey(seen)


def test_a_slow_turn_is_measured():
    """An eighth of a pixel per frame is too little to see from one frame to the next."""
    seen = look(film(80, path=[(t // 8, 0) for t in range(80)]))
    assert seen.drift == pytest.approx(10, abs=3)
    assert seen.shake < 0.3
    (remark,) = remarks(seen)
    assert remark.startswith("the camera seems to wander by about")


def test_a_camera_that_shakes_is_remarked_upon():
    path = np.random.default_rng(0).integers(-1, 2, (60, 2)).tolist()
    seen = look(film(path=path))
    jumps = np.median(np.hypot(*np.diff(path, axis=0).T))
    assert seen.shake == pytest.approx(jumps, rel=0.2)
    (remark,) = remarks(seen)
    assert remark.startswith("the camera shakes by about 1.")
    check_survey(seen)
    assert seen.objects is not None
    assert seen.objects.height[1] == pytest.approx(14, abs=3)


def test_of_a_clip_with_a_cut_the_longest_part_is_used():
    seen = look(np.concatenate([film(25), film(50, seed=5)]))
    assert (seen.part, seen.cuts, seen.frames) == ((25, 75), 1, 75)
    assert remarks(seen) == ["there is a cut; only frames 25 to 74 are used"]
    check_survey(seen)
    assert seen.objects is not None
    assert seen.objects.height[1] == pytest.approx(14, abs=1)


def test_a_clip_of_many_cuts_is_refused():
    seen = look(np.concatenate([film(12, seed=seed) for seed in range(6)]))
    assert seen.cuts == 5
    with pytest.raises(UserError, match="5 cuts"):
        check_survey(seen)


def test_a_change_of_light_is_no_cut():
    frames = film(40).astype(float)
    frames[20:] *= 0.6
    seen = look(frames.astype(np.uint8))
    assert seen.cuts == 0
    assert seen.drift == 0


def test_noise_without_a_scene_is_refused():
    frames = np.random.default_rng(0).integers(0, 256, (40, 48, 48)).astype(np.uint8)
    with pytest.raises(UserError):
        check_survey(look(frames))


def test_a_flood_of_foreground_is_refused(seen):
    with pytest.raises(UserError, match="does not look like a fixed camera"):
        check_survey(dataclasses.replace(seen, foreground=0.6))


# --- parts


def test_shifts_are_measured():
    def view(x: int = 0, y: int = 0, seed: int = 0) -> np.ndarray:
        return ground(seed)[10 + y : 110 + y, 10 + x : 130 + x].astype(np.float32)

    for x, y in ((0, 0), (3, 0), (-2, 4)):
        found = shift_of(view(), view(x, y))
        assert found.shift == pytest.approx((-x, -y), abs=0.4)
        assert found.agreed > 0.8
    for odd in range(24, 160):
        picture = np.resize(view(), (odd, 160 + 24 - odd))
        assert np.abs(shift_of(picture, picture).shift).max() < 1e-3
    assert shift_of(view(), view(seed=5)).agreed < 0.4
    assert is_cut(view(), view(seed=5))
    assert not is_cut(view(), view())


def test_watching_passes_frames_on():
    frames = film(5)
    stillness = Stillness(SIZE)
    assert (np.stack(list(stillness.watch(iter(frames)))) == frames).all()
    assert stillness.longest_part() == (0, 5)


def test_quantiles_by_weight():
    values = np.array([3.0, 1.0, 2.0])
    assert weighted_quantiles(values, np.ones(3)) == (1, 2, 3)
    assert weighted_quantiles(values, np.array([1.0, 98.0, 1.0])) == (1, 1, 1)
    assert weighted_quantiles(values, np.array([30.0, 11.0, 59.0])) == (1, 2, 3)
    assert weighted_quantiles(values, np.array([98.0, 1.0, 1.0])) == (3, 3, 3)


def test_a_live_stream_cannot_be_read_twice():
    clip = Clip("live", SIZE, 10.0, None, lambda notes: iter(()), live=True)
    with pytest.raises(UserError, match="live is a live stream"):
        survey(clip, SUBTRACTION)


# --- the card


CAMERA = Camera(SUBTRACTION, 130, (240, 320), (64, 48), 2, Sizes((8.0, 10.0, 12.0), (20.0, 24.0, 30.0)))


def test_a_camera_goes_into_a_card_and_back():
    values = CAMERA.to_card()
    assert values == {
        "subtraction": dataclasses.asdict(SUBTRACTION),
        "height": 130,
        "size": [240, 320],
        "crop": [64, 48],
        "stride": 2,
        "objects": {"width": [8.0, 10.0, 12.0], "height": [20.0, 24.0, 30.0]},
        "scene": [],
        "evidence": 0.0,
    }
    assert Camera.from_card(values) == CAMERA
    assert Camera.from_card({key: value for key, value in values.items() if key != "scene"}) == CAMERA
    assert camera_of({"training": {"camera": values}}) == CAMERA
    assert camera_of({"training": {}}) is camera_of({}) is camera_of({"training": None}) is None


def test_a_scene_is_known_again_in_any_light(seen):
    street, square = [MadeCamera(scene, frames=3, size=(60, 80), seed=1).frame(0) for scene in ("street", "crossings")]
    darker = (0.7 * street).astype(np.uint8)
    known = dataclasses.replace(CAMERA, scene=scene_of(street), size=street.shape)
    assert known.remarks(street.shape, darker) == []
    (remark,) = known.remarks(street.shape, square)
    assert "another background" in remark
    assert known.remarks((30, 40), square) == [remark]
    assert dataclasses.replace(known, scene=()).remarks(street.shape, square) == []
    assert len(seen.scene) == 48
    assert 100 < np.median(seen.scene) < 180


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (7, "no table at camera;"),
        ({"objects": 7}, "no table at camera.objects"),
        ({"objects": {"width": [1.0, 2.0, 3.0]}}, "lacks camera.objects.height"),
        ({"objects": {"width": [1.0, 2.0, 3.0], "height": [3.0, 2.0, 1.0]}}, "objects.height must be three rising"),
        ({"height": 0}, "camera.height must be at least 1"),
        ({"crop": [64]}, "camera.crop must have 2 numbers"),
        ({"stride": "2"}, "camera.stride must be int"),
        ({"surplus": 1}, "unknown key 'camera.surplus'"),
        ({"subtraction": {"look": "pretty"}}, "camera.subtraction.look must be one of"),
    ],
)
def test_a_strangers_card_is_refused(change, complaint):
    values = CAMERA.to_card() | change if isinstance(change, dict) else change
    with pytest.raises(UserError, match=complaint):
        Camera.from_card(values)
