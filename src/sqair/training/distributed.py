"""Many devices: the same training, its batch, particles or members shared out over a mesh, on one host or on many.

Each device infers its share of the sequences and particles, with the noise that one device would have given them, and
gradients are averaged: one sum of a single vector over all devices is all that a step sends, besides the log-weights
of particles where those are shared out. Members send nothing. All else in the loop sees arrays of one device.

Axes: B sequences, T frames, K particles, Y, X, C frame.
"""

import math
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from sqair.config import TrainConfig, UsageError
from sqair.model import Noise, Restraint, SequenceModel
from sqair.objective import Baseline, Diagnostics, Moments, Surplus, draw_batch, drawn_loss
from sqair.particles import Summary

T = TypeVar("T")

MEMBERS, BATCH, PARTICLES = AXES = "members", "batch", "particles"
"""What can be shared out, and the names of a mesh's axes."""
SHARED = (BATCH, PARTICLES)
"""The axes over which gradients are averaged."""


class Shares(NamedTuple):
    """Over how many devices each axis is shared out."""

    members: int = 1
    batch: int = 1
    particles: int = 1

    @property
    def devices(self) -> int:
        """How many are used."""
        return math.prod(self)


Learnt = tuple[SequenceModel, Baseline | None]
Gradients = tuple[Learnt, tuple[Diagnostics, Float[Array, "B K"]]]


# --- which devices do what


def choose_shares(text: str, config: TrainConfig, members: int, devices: int) -> Shares:
    """What `--mesh` asks for, such as batch=8 or members=2,batch=4; "auto" shares members, then the batch, evenly."""
    if text == "auto":
        of_members = math.gcd(members, devices)
        return Shares(of_members, math.gcd(config.batch, devices // of_members))
    sizes = dict.fromkeys(AXES, 1)
    for word in text.split(","):
        name, _, number = word.partition("=")
        if name not in AXES or not number.isdigit() or int(number) < 1:
            raise UsageError(f"--mesh is auto, or such as batch=8 or members=2,batch=4, with {', '.join(AXES)}")
        sizes[name] = int(number)
    shares = Shares(**sizes)
    check_shares(shares, config, members, devices)
    return shares


def check_shares(shares: Shares, config: TrainConfig, members: int, devices: int) -> None:
    """Refuse shares that are uneven, or for which there are too few devices."""
    totals = Shares(members, config.batch, config.particles)
    for name, total, share in zip(AXES, totals, shares, strict=True):
        if total % share:
            raise UsageError(f"--mesh {name}={share}: {total} {name} cannot be shared out evenly")
    if shares.devices > devices:
        raise UsageError(f"--mesh asks for {shares.devices} devices, there are {devices}")
    if shares.particles > 1 and config.bound == "fivo":
        raise UsageError("--mesh: particles that are resampled stay together; share out the batch instead")


def make_mesh(shares: Shares) -> Mesh | None:
    """The mesh of these shares; None for one device, whose program has no mesh."""
    if shares.devices == 1 and jax.process_count() == 1:
        return None
    chosen = np.asarray(jax.devices()[: shares.devices]).reshape(shares)
    unused = set(range(jax.process_count())) - {device.process_index for device in chosen.flat}
    if unused:
        raise UsageError(f"--mesh leaves process {min(unused)} without a device; share out over all of them")
    return Mesh(chosen, AXES)


# --- gradients


def sharded_gradients(
    mesh: Mesh,
    learnt: Learnt,
    key: PRNGKeyArray,
    frames: Float[Array, "B T Y X C"],
    restraint: Restraint,
    length: Int[Array, ""],
    surplus: Surplus | None,
    config: TrainConfig,
    moments: Moments | None,
) -> Gradients:
    """The gradient of `objective.batch_loss`, its diagnostics and NVIL's signal, each device doing its share."""
    filter_keys, noise = draw_batch(learnt[0], key, frames, config)
    arrays, static = eqx.partition(learnt, eqx.is_array)

    def share(arrays: Learnt, limit: Any, moments: Any, *data: Any) -> tuple[Array, Diagnostics, Array]:
        def loss(learnt: Learnt) -> tuple:
            return share_loss(mesh, config, learnt, limit, moments, *data)

        grad, (diagnostics, signals) = eqx.filter_grad(loss, has_aux=True)(eqx.combine(arrays, static))
        vector = jax.lax.pmean(ravel_pytree(grad)[0], SHARED)
        return vector, jax.lax.pmean(diagnostics, SHARED), signals

    same, each = PartitionSpec(), PartitionSpec(BATCH)
    priced = same if surplus is None else Surplus(each, same)  # type: ignore[arg-type]
    run = jax.shard_map(
        share,
        mesh=mesh,
        in_specs=(same, same, same, each, PartitionSpec(*SHARED), each, same, same, priced),
        out_specs=(same, same, each),
        check_vma=False,  # what the loops keep of a forward pass is not annotated
    )
    limit = jnp.asarray(config.clip_frame)
    vector, diagnostics, signals = run(arrays, limit, moments, filter_keys, noise, frames, restraint, length, surplus)
    _, as_tree = ravel_pytree(eqx.filter(learnt, eqx.is_inexact_array))
    return as_tree(vector), (diagnostics, signals)


def share_loss(
    mesh: Mesh,
    config: TrainConfig,
    learnt: Learnt,
    limit: Float[Array, ""],
    moments: Moments | None,
    filter_keys: Key[Array, " B"],
    noise: Noise,
    frames: Float[Array, "B T Y X C"],
    restraint: Restraint,
    length: Int[Array, ""],
    surplus: Surplus | None,
) -> tuple[Float[Array, ""], tuple[Diagnostics, Float[Array, "B K"]]]:
    """What a device minimises: minus the mean surrogate of its sequences. Of their particles it may have a share."""
    model, baseline = learnt
    parts = mesh.shape[PARTICLES]

    def gather(summary: Summary) -> Summary:
        return jax.lax.all_gather(summary, PARTICLES, axis=1, tiled=True) if parts > 1 else summary

    # The gradient that comes back through a gathered weight is summed over devices: `parts` times its mean.
    limit = limit * parts / len(frames)
    data = (filter_keys, noise, frames, restraint, length, surplus)
    return drawn_loss(model, *data, config, baseline, moments, limit=limit, gather=gather)


# --- arrays on a mesh


def place(mesh: Mesh, tree: T, is_member: bool = False) -> T:
    """The arrays of a tree on a mesh, which may span hosts: all on every device, or shared out by members."""
    sharding = NamedSharding(mesh, PartitionSpec(MEMBERS) if is_member else PartitionSpec())
    return jax.tree.map(lambda leaf: _place(leaf, sharding) if eqx.is_array(leaf) else leaf, tree)


def _place(leaf: Array, sharding: NamedSharding) -> Array:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_place(jax.random.key_data(leaf), sharding))
    if jax.process_count() == 1:
        return jax.device_put(leaf, sharding)
    values = np.asarray(leaf)
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


def collect(mesh: Mesh, tree: T) -> T:
    """The same arrays, whole, on the first device of this host."""
    arrays, rest = eqx.partition(tree, eqx.is_array)
    whole = jax.jit(lambda arrays: arrays, out_shardings=NamedSharding(mesh, PartitionSpec()))(arrays)
    return eqx.combine(jax.tree.map(lambda leaf: leaf.addressable_data(0), whole), rest)
