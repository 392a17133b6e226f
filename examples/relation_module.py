"""A relation module of your own: each object sees the sum of messages from the objects before it."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from sqair.config import preset
from sqair.data import open_data
from sqair.model import SQAIR, no_restraint
from sqair.networks import MLP, encoder
from sqair.objective import batch_loss
from sqair.relation import Relation


class SumOfMessages(Relation):
    message: MLP
    combine: MLP

    def __init__(self, config, *, key):
        keys, what, width = jax.random.split(key), config.what_size, config.width
        self.message = encoder(what + 4, width, key=keys[0])
        self.combine = encoder(width + 2 * what + what + 4 + width, width, key=keys[1])

    def initial(self):
        return jnp.zeros(self.message.layers[-1].out_features)

    def __call__(self, related, glimpse, what, where, temporal):
        return self.combine(related, glimpse, what, where, temporal)

    def update(self, related, omega, what, where):
        return related + self.message(what, where)


def main(steps=100, seed=0):
    tiny, length = preset("tiny"), 4
    config = dataclasses.replace(tiny.train, batch=8, particles=3)
    source = open_data(dataclasses.replace(tiny.data, length=length), "train")  # stroke digits, nothing to download
    key_model, key_relation, key_steps = jax.random.split(jax.random.key(seed), 3)
    model = SQAIR(tiny.model, key=key_model)
    relation = SumOfMessages(tiny.model, key=key_relation)
    model = eqx.tree_at(lambda it: it.propagation.relation, model, relation)
    optimiser = optax.adam(1e-3)
    state = optimiser.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_jit
    def step(model, state, source, key):
        frames = source.batch(key, config.batch).frames[..., None]
        gradient = eqx.filter_value_and_grad(batch_loss, has_aux=True)
        (loss, _), grads = gradient(model, key, frames, no_restraint(length), jnp.array(length), config)
        updates, state = optimiser.update(grads, state)
        return eqx.apply_updates(model, updates), state, loss, optax.tree.norm(grads.propagation.relation)

    for number, key in enumerate(jax.random.split(key_steps, steps)):
        model, state, loss, norm = step(model, state, source, key)
        print(f"step {number}: loss {loss:.1f} nats per frame, gradient norm of the relation {norm:.2f}")
    return model


if __name__ == "__main__":
    main()
