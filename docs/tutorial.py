# %% [markdown]
# # From data to tracks
#
# SQAIR looks at frames and finds objects: how many there are, where each one is, what it looks like, and which one of
# the last frame it was. Nobody tells it. This page goes from data to tracks, predictions and numbers, and then trains a
# model of its own. It runs as it is, `python docs/tutorial.py`, and in any editor that knows `# %%` cells; it needs no
# GPU and downloads nothing.

# %%
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import sqair
from sqair.model import no_restraint
from sqair.objective import batch_loss

# %% [markdown]
# ## Data
#
# A config names data, and `open_data` opens them: here up to two digits that move about a frame of 50 x 50 pixels. The
# digits are drawn with strokes; with `digits="mnist"` they would be the paper's. `fixed` gives always the same
# sequences, with the truth about them: `counts`, `boxes`, `ids`. A model never sees the truth.

# %%
source = sqair.open_data(sqair.DataConfig(digits="strokes"), "test")
sequences = source.fixed(4)
print("frames", sequences.frames.shape, "of numbers from", sequences.frames.min(), "to", sequences.frames.max())
print("digits in the first frame of each:", sequences.counts[:, 0])

# %% [markdown]
# ## Objects, as arrays
#
# A trained model comes with the package. `observe` infers the objects of one sequence. There is no batch axis:
# `jax.vmap` adds one. What comes back is the state after the last frame, with which `observe` could go on, and an
# `Info` whose arrays all begin with time. Objects live in three slots, of which those with `pres` 1 are in use.

# %%
model = sqair.load("sqair-strokes")
clip = jnp.asarray(sequences.frames[int(np.argmax(sequences.counts[:, 0]))])
state, info = eqx.filter_jit(lambda model, key, frames: model.observe(key, frames))(model, jax.random.key(0), clip)
print("what", info.objects.what.shape, "where", info.objects.where.shape)
print("objects in each frame:", info.objects.pres.sum(-1).astype(int))
print("discovered in each frame:", info.discovered.astype(int), "and propagated:", info.propagated.astype(int))

# %% [markdown]
# `where` is four unbounded numbers; the model's spatial transformer reads them as boxes in pixels (left, top, width,
# height). `canvas` is the frame as the model explains it, and `log_weight` adds up to one sample of the evidence lower
# bound of the sequence.

# %%
boxes = model.image.transformer.boxes(info.objects.where)
print("the first object in the first frame:", np.round(np.asarray(boxes[0, 0]), 1))
print("mean squared error of the canvas:", float(jnp.square(info.canvas[..., 0] - clip).mean()))
print("nats per frame:", float(info.log_weight.mean()))

# %% [markdown]
# ## Tracks
#
# `track` takes a file, a folder of images, a camera or an array, and gives a table: a row for each object and frame. It
# writes what tracking tools read (`tracks.write("tracks.txt")`), and needs no jax from here on.

# %%
film = np.round(255 * np.asarray(clip)).astype(np.uint8)
tracks = sqair.track(model, film, invert="no")
for identity in tracks.ids:
    seen = tracks.frame[tracks.id == identity]
    print(f"object {identity}: frames {seen.min()} to {seen.max()}")

# %% [markdown]
# ## Prediction
#
# The model is also a simulator. It observes three frames and dreams how they go on; each future is another one.

# %%
prediction = sqair.predict(model, film, observe=3, frames=4, futures=2, invert="no")
print("objects in each frame of each future:", [future.counts.tolist() for future in prediction.futures])
print("error in each predicted frame:", np.round(prediction.pixel_error.mean(0), 4))

# %% [markdown]
# ## Evaluation
#
# Bounds with K particles, counting, tracking. `sqair evaluate` prints the same from the command line; for numbers worth
# reporting take hundreds of sequences and particles.

# %%
found = sqair.evaluate(model, source, sequences=4, particles=2, seed=0)
for name in ("log_p", "kl", "counting"):
    print(name, found[name])

# %% [markdown]
# ## A model of your own, and a training step by hand
#
# Everything that can be chosen is a field of a config. Here is a small model, of one slot, in which one thing is
# changed: the standard deviation of its likelihood is learned. `sqair ablate learned-std` asks what that does to the
# whole model, and [relation_module.md](relation_module.md) shows how to go further and put a part of your own in.

# %%
tiny = sqair.preset("tiny")
config = dataclasses.replace(tiny.model, learn_output_std=True, image=(50, 50), max_objects=1, width=16)
pupil = eqx.filter_jit(lambda key: sqair.SQAIR(config, key=key))(jax.random.key(1))

# %% [markdown]
# `batch_loss` is what training minimises: minus the bound, as a surrogate whose gradient also holds the score terms of
# presence. Any optimiser will do. `sqair.train` and `sqair train` add what makes it work well: a curriculum, restraint
# on discovery, validation, checkpoints, an alarm for runs that collapse.

# %%
length, training = 2, dataclasses.replace(tiny.train, particles=2)
frames = jnp.asarray(sequences.frames)[:, :length, ..., None]
optimiser = optax.adam(1e-3)
memory = optimiser.init(eqx.filter(pupil, eqx.is_array))


@eqx.filter_jit
def step(pupil, memory, key):
    gradient = eqx.filter_value_and_grad(batch_loss, has_aux=True)
    (loss, _), grads = gradient(pupil, key, frames, no_restraint(length), jnp.array(length), training)
    updates, memory = optimiser.update(grads, memory)
    return eqx.apply_updates(pupil, updates), memory, loss


losses = []
for _ in range(5):
    pupil, memory, loss = step(pupil, memory, jax.random.key(2))
    losses.append(float(loss))
print("loss of one batch in nats per frame, step by step:", np.round(losses, 1))
print("standard deviation, which began at 0.3:", float(pupil.image.pixels.std))
