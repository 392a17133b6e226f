"""Boxes of objects: around the pixels that are seen, and none where nothing is."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sqair.commands.scenes import load_objects
from sqair.config import ModelConfig
from sqair.image import VISIBLE, ImageModel, tight_boxes
from sqair.objects import Objects

WHERE = jnp.array([[-1.0, 0.5, 0.1, -0.2], [0.0, 0.0, 0.0, 0.0], [-2.0, -2.0, 9.0, 9.0], [0.5, -1.0, 0.6, 0.0]])
PRES = jnp.array([1.0, 0.0, 1.0, 1.0])
"""One inside, one absent, one out of sight, one across the right edge; one in each frame."""


def test_boxes_are_tight(models: Path) -> None:
    model = load_objects(str(models / "tiny"))
    what = jax.random.normal(jax.random.key(1), (4, 1, 4))
    objects = Objects(what, WHERE[:, None], PRES[:, None], jnp.zeros((4, 1), int))
    boxes = np.asarray(tight_boxes(model.image, objects))[:, 0]
    assert np.isnan(boxes[1:3]).all()
    for t in (0, 3):
        seen = model.image.canvas(jax.tree.map(lambda leaf, t=t: leaf[t], objects))[..., 0]
        rows, columns = np.nonzero(np.asarray(seen > VISIBLE * model.image.glimpses(what[t]).max()))
        left, top, width, height = boxes[t]
        assert (left, top) == (columns.min(), rows.min())
        assert (width, height) == (np.ptp(columns) + 1, np.ptp(rows) + 1)
    assert boxes[3, 0] + boxes[3, 2] == 16


@pytest.mark.parametrize("level", [-1.0, 0.0, 0.5])
def test_what_is_not_brighter_than_black_has_no_box(level: float) -> None:
    """A decoder without a sigmoid may draw such glimpses."""
    config = ModelConfig(image=(16, 16), glimpse=(6, 6), what_size=4, width=8, glimpse_output="scaled")
    image = jax.tree.map(jnp.zeros_like, ImageModel(config, key=jax.random.key(0)))
    changes = jnp.ones(()), jnp.full(36, level)
    image = eqx.tree_at(lambda image: (image.output_scale, image.decoder.mlp.layers[-1].bias), image, changes)
    objects = Objects(jnp.zeros((1, 1, 4)), jnp.zeros((1, 1, 4)), jnp.ones((1, 1)), jnp.zeros((1, 1), int))
    assert bool(jnp.isnan(tight_boxes(image, objects)).all()) == (level <= 0)
