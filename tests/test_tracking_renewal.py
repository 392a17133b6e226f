"""Second looks at a frame: who joins, who is replaced, and who keeps an identity."""

import dataclasses
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import TINY, build
from hypothesis import given, settings
from hypothesis import strategies as st

from sqair.config import ModelConfig
from sqair.image import ImageModel
from sqair.model import SQAIR, SequenceModel
from sqair.objects import Objects, State, initial_state
from sqair.tracking.filter import Settings, count_doubts
from sqair.tracking.joining import iou
from sqair.tracking.renewal import SETTLING, covering, first_look, going_on, joined, renewed, supported, worth

CONFIG = dataclasses.replace(TINY, image=(16, 16), max_objects=3, output_std=0.3)
LEFT, RIGHT, LOW, TALL, DEEP = [1.0, 1, 4, 4], [9.0, 1, 4, 4], [5.0, 10, 4, 4], [1.0, 1, 12, 4], [11.0, 10, 4, 4]
EVIDENCE = 20.0


@pytest.fixture(scope="module")
def image() -> ImageModel:
    """Every glimpse is white."""
    image = build(SQAIR, CONFIG).image
    last = image.decoder.mlp.layers[-1]  # type: ignore[union-attr]
    white = (jnp.zeros_like(last.weight), jnp.full_like(last.weight[:, 0], 9.0))
    return eqx.tree_at(lambda it: (it.decoder.mlp.layers[-1].weight, it.decoder.mlp.layers[-1].bias), image, white)


class Looker(SequenceModel):
    """Stands for a model whose first look at a frame is known: it depends on how many white pixels the frame has."""

    image: ImageModel
    looks: State
    """With a leading axis: for a frame of which little is white, and for others."""
    config: ModelConfig = eqx.field(static=True)

    def initial(self) -> State:
        return initial_state(CONFIG.max_objects, CONFIG.what_size, 2)

    def noise(self, key, length):
        return build(SQAIR, CONFIG).noise(key, length)

    def encode(self, frames):
        return jnp.zeros((len(frames), 1))

    def step(self, state, x, encoding, noise, restraint):
        return jax.tree.map(lambda leaf: leaf[(x.sum() > 24).astype(int)], self.looks), cast(Any, None)

    def dream_step(self, state, noise):
        raise NotImplementedError


def holding(image: ImageModel, *boxes: list[float], first: int = 0, hidden: float = 0.0) -> State:
    """A state with objects at these boxes, whose identities count from `first`."""
    state, count = initial_state(CONFIG.max_objects, CONFIG.what_size, 2), len(boxes)
    where = jnp.zeros((3, 4)).at[:count].set(image.transformer.where_of_boxes(jnp.array(boxes)) if boxes else 0.0)
    here = jnp.arange(3) < count
    objects = Objects(state.objects.what, where, here.astype(float), jnp.where(here, first + jnp.arange(3), -1))
    hidden_states = jnp.where(here[:, None], hidden + jnp.arange(3.0)[:, None] + jnp.zeros(2), 0.0)
    return state._replace(
        objects=objects, temporal=hidden_states, prior=-hidden_states, born=jnp.array(first + count), time=jnp.array(5)
    )


def looker(image: ImageModel, rest: State, whole: State) -> Looker:
    return Looker(image=image, looks=jax.tree.map(lambda *leaves: jnp.stack(leaves), rest, whole), config=CONFIG)


def frame(image: ImageModel, *boxes: list[float]):
    return image.canvas(holding(image, *boxes).objects)


def alive(state: State) -> list[int]:
    return state.objects.identity[state.objects.pres > 0].tolist()


def boxes_of(image: ImageModel, state: State) -> list[list[float]]:
    return (
        np.asarray(image.transformer.boxes(state.objects.where))[np.asarray(state.objects.pres) > 0].round(2).tolist()
    )


def test_an_object_is_worth_what_the_frame_loses_without_it(image):
    """White on white: sixteen pixels of error 1 with std 0.3; on black: the same against it; who is absent: nothing."""
    objects = holding(image, LEFT, RIGHT).objects
    pixels = float((jnp.square(frame(image, LEFT)) / (2 * 0.3**2)).sum())
    np.testing.assert_allclose(worth(image, frame(image, LEFT), objects), [pixels, -pixels, 0], rtol=1e-3, atol=1e-3)


class Clock(Looker):
    """Writes into the state's memory whether each step was allowed to discover, the newest first."""

    def step(self, state, x, encoding, noise, restraint):
        assert not noise.what.any()
        told = jnp.roll(state.temporal, 1, axis=1).at[:, 0].set(1 + restraint.discover)
        return state._replace(temporal=told, time=state.time + 1), cast(Any, None)


def test_discovery_looks_once_and_then_propagation(image):
    blank = looker(image, holding(image), holding(image))
    state = first_look(Clock(image=image, looks=blank.looks, config=CONFIG), frame(image))
    assert int(state.time) == 1 + SETTLING
    np.testing.assert_array_equal(state.temporal[0], [1, 1])
    assert SETTLING == 2


def test_what_is_left_of_a_frame_joins_after_the_certain_and_before_the_doubted(image):
    model = looker(image, holding(image, LOW, RIGHT, hidden=69.0), holding(image))
    known, x = holding(image, LEFT, TALL, first=4, hidden=10.0), frame(image, LEFT, RIGHT)
    known = known._replace(objects=known.objects._replace(pres=jnp.array([1.0, 0.0, 0.0])))
    state, doubted = joined(model, EVIDENCE, x, known, jnp.zeros(3, int), None)
    assert alive(state) == [4, 6], "what lies low is not in the frame"
    assert boxes_of(image, state) == [LEFT, RIGHT]
    np.testing.assert_array_equal(state.temporal[:2, 0], [10, 70])
    assert (int(state.born), int(state.time)) == (7, 5)
    assert not doubted.any()
    state, doubted = joined(model, EVIDENCE, x, known, jnp.array([2, 0, 0]), None)
    assert alive(state) == [6, 4]
    np.testing.assert_array_equal(doubted, [0, 2, 0])


def test_who_is_doubted_makes_room(image):
    """Three known ones fill all slots; one new object takes the place of the last that is doubted."""
    model = looker(image, holding(image, RIGHT), holding(image))
    known, x = holding(image, LEFT, LEFT, LOW, first=1), frame(image, LEFT, RIGHT)
    state, doubted = joined(model, EVIDENCE, x, known, jnp.array([0, 1, 2]), None)
    assert alive(state) == [1, 4, 2]
    np.testing.assert_array_equal(doubted, [0, 0, 1])
    full, _ = joined(model, EVIDENCE, x, known, jnp.zeros(3, int), None)
    assert alive(full) == [1, 2, 3]


def test_more_evidence_than_there_is_lets_nobody_in(image):
    model = looker(image, holding(image, RIGHT), holding(image))
    state, _ = joined(model, 1e4, frame(image, LEFT, RIGHT), holding(image, LEFT), jnp.zeros(3, int), None)
    assert alive(state) == [0]


def test_identity_goes_to_who_covers_it(image):
    """Two looks cover TALL, the better one goes on as it; DEEP is covered by neither and is gone; LOW is new."""
    known = holding(image, TALL, DEEP, first=3, hidden=10.0)
    look = holding(image, [2.0, 1, 10, 4], [1.0, 1, 3, 4], LOW, hidden=70.0)
    state = going_on(image, known, look)
    assert alive(state) == [3, 5, 6]
    np.testing.assert_array_equal(state.temporal[:, 0], [10, 71, 72])
    np.testing.assert_array_equal(state.prior[:, 0], [-10, -71, -72])
    assert (int(state.born), int(state.time)) == (7, 5)


def test_no_two_objects_have_one_identity(image):
    """Two that cover a known one alike: the first goes on as it. One that covers two alike: it is the first."""
    assert alive(going_on(image, holding(image, LEFT, first=3), holding(image, LEFT, LEFT, RIGHT))) == [3, 4, 5]
    assert alive(going_on(image, holding(image, LEFT, LEFT, first=3), holding(image, LEFT))) == [3]


def test_of_two_that_explain_one_thing_one_stays(image):
    """Each is worthless beside the other; absent ones and those on black go anyway."""
    twice = holding(image, LEFT, LEFT, LOW).objects
    kept = supported(image, frame(image, LEFT), twice, EVIDENCE)
    assert sorted(kept.tolist()) == [0, 0, 1]
    assert kept[2] == 0
    np.testing.assert_array_equal(supported(image, frame(image), twice, EVIDENCE), [0, 0, 0])
    doubted = count_doubts(
        image, frame(image, LEFT), Settings(evidence=EVIDENCE), twice, jnp.full(3, -1), jnp.zeros(3, int)
    )
    assert sorted(doubted[:2].tolist()) == [0, 1]


def test_of_two_looks_at_one_thing_one_joins(image):
    model = looker(image, holding(image, RIGHT, RIGHT), holding(image))
    state, _ = joined(model, EVIDENCE, frame(image, LEFT, RIGHT), holding(image, LEFT), jnp.zeros(3, int), None)
    assert boxes_of(image, state) == [LEFT, RIGHT]


def test_what_is_known_is_not_found_twice(image):
    """The known one is drawn half as bright as the thing is; the other half would make the frame more likely."""
    model, x = looker(image, holding(image, LEFT), holding(image)), 2 * frame(image, LEFT)
    state, _ = joined(model, EVIDENCE, x, holding(image, LEFT), jnp.zeros(3, int), None)
    assert alive(state) == [0]
    state, _ = joined(model, EVIDENCE, x, holding(image, LEFT), jnp.array([1, 0, 0]), None)
    assert alive(state) == [1, 0], "but what is doubted may be"
    near = [3.0, 3, 4, 4]  # an IoU of 1/7
    beside = looker(image, holding(image, near), holding(image))
    state, _ = joined(beside, EVIDENCE, frame(image, LEFT, near), holding(image, LEFT), jnp.zeros(3, int), None)
    assert alive(state) == [0, 1]


class Shown(Exception):
    """Carries the frame that a model was shown."""


def test_a_look_at_a_raw_frame_takes_what_is_behind_now(image):
    """The scene that comes along is that of the clip's beginning; a second look is shown the present one instead."""

    class Asked(Looker):
        def encode(self, frames):
            raise Shown(frames)

    raw = dataclasses.replace(CONFIG, background="running")
    model = Asked(image=build(SQAIR, raw).image, looks=looker(image, holding(image), holding(image)).looks, config=raw)
    x = jnp.concatenate([jnp.full((16, 16, 1), value) for value in (0.5, 0.1, *[0.0] * 4)], -1)
    behind = jnp.full((16, 16, 1), 0.4)
    with pytest.raises(Shown) as shown:
        renewed(model, EVIDENCE, x, holding(image), jnp.zeros(3, int), behind)
    (seen,) = shown.value.args[0]
    np.testing.assert_allclose(seen[..., 1], 0.4)


def test_one_object_over_two_things_is_replaced_by_two(image):
    model = looker(image, holding(image), holding(image, LEFT, RIGHT, hidden=70.0))
    x, known = frame(image, LEFT, RIGHT), holding(image, TALL, first=3, hidden=10.0)
    state, doubted = renewed(model, EVIDENCE, x, known, jnp.array([1, 0, 0]))
    assert boxes_of(image, state) == [LEFT, RIGHT]
    assert sorted(alive(state)) == [3, 4]
    assert not doubted.any()


def test_an_explanation_that_is_as_good_stays(image):
    """The look has the same two things, but in another order: nothing changes, hidden states included."""
    model = looker(image, holding(image), holding(image, RIGHT, LEFT, hidden=70.0))
    known = holding(image, LEFT, RIGHT, first=3, hidden=10.0)
    state, doubted = renewed(model, EVIDENCE, frame(image, LEFT, RIGHT), known, jnp.array([0, 1, 0]))
    jax.tree.map(np.testing.assert_array_equal, (state, doubted), (known, jnp.array([0, 1, 0])))


boxes = st.lists(
    st.tuples(*[st.floats(0, 50, width=32)] * 2, *[st.floats(1, 30, width=32)] * 2), min_size=2, max_size=2
)


@settings(max_examples=30, deadline=None)
@given(boxes, boxes)
def test_overlap_is_that_of_joining(a, b):
    a, b = np.array(a, np.float32), np.array(b, np.float32)
    np.testing.assert_allclose(covering(jnp.asarray(a), jnp.asarray(b)), iou(a, b), rtol=1e-4, atol=1e-5)
