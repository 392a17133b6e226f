"""The compiled part of training: the state, and a number of steps that each make their own batch on the device.

All randomness of step i comes from the seed and i, so a run that was stopped goes on exactly as if it had not been.

Axes: B sequences, T frames, K particles, Y, X, C frame.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sqair.config import Preset, TrainConfig
from sqair.data import Sequences, Source
from sqair.image import PixelNoise
from sqair.model import Restraint, SequenceModel
from sqair.objective import Baseline, Diagnostics, Moments, Surplus, batch_loss, no_moments, update_moments
from sqair.training.checkpoint import build
from sqair.training.curriculum import length_at, restraint_at
from sqair.training.distributed import Gradients, Learnt, sharded_gradients
from sqair.training.optimiser import MOST_SKIPPED, GuardState, baseline_optimiser, model_optimiser

M = TypeVar("M", bound=eqx.Module)


class Nvil(NamedTuple):
    """What only NVIL learns: its baseline and the moments of its signal."""

    baseline: Baseline
    optimiser: GuardState
    moments: Moments


class TrainState(NamedTuple):
    """All that the next step depends on, besides the config and the data."""

    step: Int[Array, ""]
    model: SequenceModel
    optimiser: GuardState
    nvil: Nvil | None
    """None for the other estimators."""
    totals: Diagnostics
    """Sums of the diagnostics over the steps since the last evaluation at which they were finite ..."""
    counted: Int[Array, ""]
    """... and how many steps those were."""


class Keys(NamedTuple):
    """Where all randomness of a run comes from."""

    weights: PRNGKeyArray
    steps: PRNGKeyArray
    validation: PRNGKeyArray


def seed_keys(seed: int) -> Keys:
    """The keys of a run."""
    return Keys(*jax.random.split(jax.random.key(seed), 3))


@eqx.filter_jit
def first_state(preset: Preset, key: PRNGKeyArray) -> TrainState:
    """The state before the first step, with types as fixed as those of a file: new and resumed runs share a program."""
    key_model, key_baseline = jax.random.split(key)
    model, config = build(preset.model, key_model), preset.train
    nvil = None
    if config.estimator == "nvil":
        pixels = preset.model.image[0] * preset.model.image[1] * preset.model.channels
        baseline = Baseline(pixels, key=key_baseline)
        nvil = Nvil(baseline, begin(baseline_optimiser(config), baseline), no_moments())
    optimiser = begin(model_optimiser(config), model)
    state = TrainState(jnp.array(0), model, optimiser, nvil, no_totals(), jnp.array(0))
    return jax.tree.map(lambda leaf: leaf.astype(leaf.dtype) if eqx.is_array(leaf) else leaf, state)


def no_totals() -> Diagnostics:
    """Sums over no steps."""
    return Diagnostics(*(jnp.zeros(()) for _ in Diagnostics._fields))


def without_totals(state: TrainState) -> TrainState:
    """The state with its sums begun anew; their types stay, so that nothing is compiled again."""
    return state._replace(totals=no_totals(), counted=jnp.zeros_like(state.counted))


def model_frames(
    frames: Float[Array, "B T Y X"] | Float[Array, "B T Y X C"], model: SequenceModel
) -> Float[Array, "_ _ Y X C"]:
    """Frames of a batch as the model sees them: with channels, and for AIR as B T sequences of one frame."""
    frames = frames if frames.ndim == 5 else frames[..., None]
    return frames.reshape(-1, 1, *frames.shape[2:]) if model.frames_are_independent else frames


def priced_surplus(batch: Sequences, model: SequenceModel, config: TrainConfig) -> Surplus | None:
    """What objects cost of which there are too many, if the data say how many there are and the model has any."""
    if batch.most_objects is None or not model.has_objects:
        return None
    most = jnp.asarray(batch.most_objects)
    return Surplus(most.reshape(-1, 1) if model.frames_are_independent else most, jnp.asarray(config.surplus_cost))


@eqx.filter_jit
def train_steps(
    state: TrainState,
    source: Source,
    key: PRNGKeyArray,
    config: TrainConfig,
    count: Int[Array, ""],
    mesh: Mesh | None = None,
) -> TrainState:
    """`count` steps, fewer where too many in a row are skipped. One compilation serves every count and length."""
    return repeat(lambda state: train_step(state, source, key, config, mesh), state, count)


def repeat(step: Callable[[TrainState], TrainState], state: TrainState, count: Int[Array, ""]) -> TrainState:
    """`step` so many times; it ends where all members have skipped more steps in a row than they may."""
    arrays, rest = eqx.partition(state, eqx.is_array)

    def is_next(now: tuple[Int[Array, ""], TrainState]) -> Bool[Array, ""]:
        done, arrays = now
        return (done < count) & (arrays.optimiser.notfinite_count.min() <= MOST_SKIPPED)

    def advance(now: tuple[Int[Array, ""], TrainState]) -> tuple[Int[Array, ""], TrainState]:
        done, arrays = now
        return done + 1, eqx.filter(step(eqx.combine(arrays, rest)), eqx.is_array)

    return eqx.combine(jax.lax.while_loop(is_next, advance, (jnp.zeros_like(count), arrays))[1], rest)


def train_step(
    state: TrainState, source: Source, key: PRNGKeyArray, config: TrainConfig, mesh: Mesh | None = None
) -> TrainState:
    """One step: a batch, the gradient of its surrogate, the updates. With a mesh, many devices share it."""
    key_data, key_noise = jax.random.split(jax.random.fold_in(key, state.step))
    batch = source.batch(key_data, config.batch)
    frames = model_frames(jnp.asarray(batch.frames), state.model)
    surplus = priced_surplus(batch, state.model, config)
    total = frames.shape[1]
    restraint, length = restraint_at(state.step, config, total), length_at(state.step, config, total)
    learnt = (state.model, None if state.nvil is None else state.nvil.baseline)
    moments = None if state.nvil is None else state.nvil.moments
    find = gradients if mesh is None else partial(sharded_gradients, mesh)
    with jax.default_matmul_precision(matmul_precision(config.precision)):
        grads, (diagnostics, signal) = find(learnt, key_noise, frames, restraint, length, surplus, config, moments)
    model_grad, baseline_grad = grads
    if config.output_std_steps > 0:
        model_grad = without_std(model_grad, state.step < config.output_std_steps)
    model, optimiser = update(model_optimiser(config), model_grad, state.optimiser, state.model)
    finite = jnp.isfinite(jnp.stack(diagnostics)).all()
    return TrainState(
        step=state.step + 1,
        model=model,
        optimiser=optimiser,
        nvil=None if state.nvil is None else _nvil_step(state.nvil, baseline_grad, signal, config),
        totals=jax.tree.map(lambda total, new: total + jnp.where(finite, new, 0.0), state.totals, diagnostics),
        counted=state.counted + finite,
    )


def gradients(
    learnt: Learnt,
    key: PRNGKeyArray,
    frames: Float[Array, "B T Y X C"],
    restraint: Restraint,
    length: Int[Array, ""],
    surplus: Surplus | None,
    config: TrainConfig,
    moments: Moments | None,
) -> Gradients:
    """The gradient of the loss of a batch, its diagnostics and NVIL's signal."""

    def loss(learnt: Learnt) -> tuple:
        model, baseline = learnt
        return batch_loss(model, key, frames, restraint, length, config, baseline, moments, surplus)

    return eqx.filter_grad(loss, has_aux=True)(learnt)


def without_std(grad: SequenceModel, is_held: Bool[Array, ""]) -> SequenceModel:
    """The gradient, which leaves a learned output std alone while that is held."""

    def is_noise(node: Any) -> bool:
        return isinstance(node, PixelNoise)

    def hold(node: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.where(is_held, 0.0, leaf), node) if is_noise(node) else node

    return jax.tree.map(hold, grad, is_leaf=is_noise)


def matmul_precision(precision: Literal["float32", "tf32", "bf16"]) -> str:
    """jax's name for a precision of matrix products. On a CPU they are always exact."""
    names = {"float32": "highest", "tf32": "tensorfloat32", "bf16": "BF16_BF16_F32"}
    return "highest" if jax.default_backend() == "cpu" else names[precision]


def _nvil_step(nvil: Nvil, grad: Baseline | None, signal: Float[Array, "B K"], config: TrainConfig) -> Nvil:
    """The baseline and the moments after a step; a signal that is not finite leaves the moments as they were."""
    baseline, optimiser = update(baseline_optimiser(config), grad, nvil.optimiser, nvil.baseline)
    moved = update_moments(nvil.moments, signal)
    finite = jnp.isfinite(signal).all()
    moments = jax.tree.map(lambda new, old: jnp.where(finite, new, old), moved, nvil.moments)
    return Nvil(baseline, optimiser, moments)


def begin(rule: optax.GradientTransformation, module: eqx.Module) -> GuardState:
    """The state of an optimiser before its first step."""
    return cast(GuardState, rule.init(cast(Any, eqx.filter(module, eqx.is_array))))


def update(rule: optax.GradientTransformation, grad: Any, state: GuardState, module: M) -> tuple[M, GuardState]:
    """The module and the optimiser's state after a step."""
    updates, new_state = rule.update(grad, state, cast(Any, eqx.filter(module, eqx.is_array)))
    return eqx.apply_updates(module, updates), cast(GuardState, new_state)
