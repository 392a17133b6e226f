"""Boxes of objects: around the pixels that are seen, and none where nothing is."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from sqair.commands.scenes import VISIBLE, load_objects, tight_boxes
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
