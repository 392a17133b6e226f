"""All members of a run as one compiled program: `vmap` over everything in the train state but the step.

The step is shared, so that branches on it, such as the curriculum's length, stay branches. A run of one member has no
member axis at all: it is the program of step.py itself.

Axes: R members, B sequences, T frames, Y, X, C frame.
"""

import copy
import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray
from numpy import ndarray

from sqair.config import ModelConfig, Preset, TrainConfig, UserError
from sqair.data import FileSource, Source
from sqair.data.backdrops import whole_scene
from sqair.model import SequenceModel
from sqair.settings import differences
from sqair.training.checkpoint import load_model
from sqair.training.distributed import MEMBERS, collect, place
from sqair.training.members import KNOBS, Member, new_members
from sqair.training.step import TrainState, first_state, repeat, seed_keys, train_step, train_steps, without_totals

T = TypeVar("T")

EACH = eqx.if_array(0)
AXES = TrainState(step=None, model=EACH, optimiser=EACH, nvil=EACH, totals=EACH, counted=EACH)  # type: ignore[arg-type]
"""Where the member axis is in a state."""
UNCOMPILED = (
    *("start", "anew", "seed", "first_scale_steps", "evaluate_every", "validation_sequences", "keep"),
    *("members", "sweep", "patience"),
)
"""Fields of TrainConfig that the compiled step does not depend on, besides `restart_collapsed`."""


class Population:
    """The members of a run, and what is done to all of them at once."""

    def __init__(self, preset: Preset, mesh: Mesh | None = None, scene: Float[ndarray, "Y X C"] | None = None) -> None:
        self.preset, self.mesh, self.scene = preset, mesh, scene
        self.members: list[Member] = new_members(preset)
        self._placed: tuple[Source, Source] | None = None

    @property
    def size(self) -> int:
        """R, the number of members."""
        return len(self.members)

    @property
    def is_alone(self) -> bool:
        """Whether there is but one member, and so no member axis."""
        return self.size == 1

    def first(self) -> TrainState:
        """The state before the first step."""
        state = self.blank()
        return state._replace(model=self._started(state.model))

    def blank(self) -> TrainState:
        """The same with random weights, to be filled from a checkpoint: what `start` names may be gone by then."""
        keys = [seed_keys(member.seed).weights for member in self.members]
        preset = dataclasses.replace(self.preset, train=essential(self.preset.train))
        return first_state(preset, keys[0]) if self.is_alone else first_states(preset, jnp.stack(keys))

    def advance(self, state: TrainState, source: Source, count: int) -> TrainState:
        """The state after `count` steps of every member."""
        keys = [seed_keys(member.seed).steps for member in self.members]
        config = essential(self.members[0].preset.train)  # a sweep may give all members the same value
        if self.mesh is not None:
            return self._share_out(self.mesh, state, source, keys, config, count)
        if self.is_alone:
            return train_steps(state, source, keys[0], config, jnp.array(count))
        return train_members(state, source, jnp.stack(keys), self.knobs(), config, jnp.array(count))

    def _share_out(
        self, mesh: Mesh, state: TrainState, source: Source, keys: list[PRNGKeyArray], config: TrainConfig, count: int
    ) -> TrainState:
        """The same on many devices; the data stays there between calls."""
        if self._placed is None or self._placed[0] is not source:
            self._placed = source, place(mesh, source)
        source, number = self._placed[1], place(mesh, jnp.array(count))
        if self.is_alone:
            after = train_steps(place(mesh, state), source, place(mesh, keys[0]), config, number, mesh)
        else:
            step, states = place(mesh, state.step), place(mesh, state._replace(step=None), is_member=True)
            own = place(mesh, (jnp.stack(keys), self.knobs()), is_member=True)
            after = train_members(states._replace(step=step), source, *own, config, number, mesh)
        return collect(mesh, after)

    def knobs(self) -> dict[str, Float[Array, " R"]]:
        """The numbers in which members differ."""
        configs = [member.preset.train for member in self.members]
        values = {name: [getattr(config, name) for config in configs] for name in KNOBS}
        return {name: jnp.array(numbers, float) for name, numbers in values.items() if len(set(numbers)) > 1}

    def map(self, function: Callable[..., Any], model: SequenceModel, *rest: Any) -> Any:
        """`function` of every member's model and of `rest`, compiled; results have a leading member axis, R = 1 too.

        Matrix products are exact, however the members are trained: the best is chosen and the alarm raised by this.
        """
        with jax.default_matmul_precision("highest"):
            return map_members(function, model, rest, self.is_alone)

    def take(self, tree: T, index: int) -> T:
        """One member's part of a tree of arrays with member axis."""
        return tree if self.is_alone else take(tree, jnp.array(index))

    def without_totals(self, state: TrainState) -> TrainState:
        """The state with its running sums begun anew."""
        return without_totals(state) if self.is_alone else forget_totals(state)

    def afresh(self, state: TrainState, index: int) -> TrainState:
        """The state with new weights for one member, from its present seed."""
        preset = dataclasses.replace(self.preset, train=essential(self.preset.train))
        new = first_state(preset, seed_keys(self.members[index].seed).weights)
        return put(state, new._replace(model=self._started(new.model)), jnp.array(index))

    def copied(self, state: TrainState, index: int, donor: int) -> TrainState:
        """The state in which one member has the parameters and the optimiser of another."""
        return put(state, self._one(state, donor), jnp.array(index))

    def _started(self, model: SequenceModel) -> SequenceModel:
        """`model`, of one member or all, with the weights that `start` names in place of its own, but for `anew`.

        What is its own of a learned background is the scene, where that is known.
        """
        model = model if self.scene is None else with_scene(model, self.scene)
        if not self.preset.train.start:
            if self.preset.train.anew:
                raise UserError("train.anew is about the model that train.start names; give that, too")
            return model
        given = load_model(self.preset.train.start)
        differing = differences(given.config, self.preset.model, "model.")
        if differing:
            raise UserError(f"train.start is a model with other settings: {', '.join(differing)}; give those, too")
        started = jax.tree.map(
            lambda new, own: jnp.broadcast_to(new, own.shape) if eqx.is_array(own) else own, given, model
        )
        return with_anew(started, model, self.preset.train.anew)

    def _one(self, state: TrainState, index: int) -> TrainState:
        """The state of one member alone."""
        rest = self.take(state._replace(step=None), index)
        return rest._replace(step=state.step)


def with_anew(started: SequenceModel, fresh: SequenceModel, names: Sequence[str]) -> SequenceModel:
    """`started` with the parts of these names from `fresh`."""
    for name in names:
        try:
            part = operator.attrgetter(name)(fresh)
        except AttributeError:
            part = None
        if not any(eqx.is_array(leaf) for leaf in jax.tree.leaves(part)):
            raise UserError(f"train.anew: the model has no part {name!r} with weights")
        started = eqx.tree_at(operator.attrgetter(name), started, part)
    return started


def with_scene(model: Any, scene: Float[ndarray, "Y X C"]) -> Any:
    """A model, or several with a member axis, whose learned background is a picture."""
    shape = model.background.picture.shape
    return eqx.tree_at(lambda it: it.background.picture, model, jnp.broadcast_to(scene, shape))


def known_scene(source: Source, config: ModelConfig) -> Float[ndarray, "Y X C"] | None:
    """What a learned background begins with, by the data that it will be learned from; None if they do not tell."""
    if config.background != "learned" or not isinstance(source, FileSource) or source.sequences.scene is None:
        return None
    scenes, corners = np.asarray(source.sequences.scene), np.asarray(source.sequences.corners)
    size = max(config.background_size[0], config.image[0]), max(config.background_size[1], config.image[1])
    return whole_scene(scenes if scenes.ndim == 4 else scenes[..., None], corners, size)


def essential(config: TrainConfig) -> TrainConfig:
    """`config` without what the compiled step does not depend on, so that one compilation serves more runs."""
    plain = TrainConfig()
    same = {name: getattr(plain, name) for name in UNCOMPILED}
    return dataclasses.replace(config, restart_collapsed=False, **same)


@eqx.filter_jit
def first_states(preset: Preset, keys: Key[Array, " R"]) -> TrainState:
    """The state of all members before the first step."""
    return eqx.filter_vmap(lambda key: first_state(preset, key), out_axes=AXES)(keys)


@eqx.filter_jit
def train_members(
    states: TrainState,
    source: Source,
    keys: Key[Array, " R"],
    knobs: dict[str, Float[Array, " R"]],
    config: TrainConfig,
    count: Int[Array, ""],
    mesh: Mesh | None = None,
) -> TrainState:
    """`count` steps of all members; each has its own key, and its own values of `knobs` instead of `config`'s."""

    def member(state: TrainState, key: PRNGKeyArray, knobs: dict[str, Float[Array, ""]]) -> TrainState:
        return train_step(state, source, key, with_knobs(config, knobs), mesh)

    step = eqx.filter_vmap(member, in_axes=(AXES, EACH, EACH), out_axes=AXES)
    step = step if mesh is None else _over_devices(member, states)
    return repeat(lambda states: step(states, keys, knobs), states, count)


def _over_devices(member: Callable[..., TrainState], states: TrainState) -> Callable[..., TrainState]:
    """`member` for all members, those of each device there; Equinox's vmap knows no axis of a mesh."""
    rest = eqx.filter(states, eqx.is_array, inverse=True)
    axes = jax.tree.map(lambda _: 0, eqx.filter(states, eqx.is_array))._replace(step=None)

    def arrays_only(arrays: TrainState, key: PRNGKeyArray, knobs: dict[str, Float[Array, ""]]) -> TrainState:
        return eqx.filter(member(eqx.combine(arrays, rest), key, knobs), eqx.is_array)

    step = jax.vmap(arrays_only, in_axes=(axes, 0, 0), out_axes=axes, spmd_axis_name=MEMBERS)
    return lambda states, keys, knobs: eqx.combine(step(eqx.filter(states, eqx.is_array), keys, knobs), rest)


def with_knobs(config: TrainConfig, knobs: dict[str, Float[Array, ""]]) -> TrainConfig:
    """`config` with traced numbers for some fields. They are no floats, so they go past the frozen class's checks."""
    changed = copy.copy(config)
    for name, value in knobs.items():
        object.__setattr__(changed, name, value)
    return changed


@eqx.filter_jit
def map_members(function: Callable[..., Any], models: SequenceModel, rest: tuple[Any, ...], is_alone: bool) -> Any:
    """`function` of every model and of `rest`, which all models share."""
    if is_alone:
        return jax.tree.map(lambda leaf: leaf[None], function(models, *rest))
    return eqx.filter_vmap(lambda model: function(model, *rest))(models)


@eqx.filter_jit
def take(tree: T, index: Int[Array, ""]) -> T:
    """One member's part of arrays with member axis."""
    return jax.tree.map(lambda leaf: leaf[index] if eqx.is_array(leaf) else leaf, tree)


@eqx.filter_jit
def put(states: TrainState, one: TrainState, index: Int[Array, ""]) -> TrainState:
    """The states with one member's replaced; the step, which is shared, stays."""

    def replace(leaf: Any, new: Any) -> Any:
        return leaf.at[index].set(new) if eqx.is_array(leaf) else leaf

    moved = jax.tree.map(replace, states._replace(step=None), one._replace(step=None))
    return moved._replace(step=states.step)


@eqx.filter_jit
def forget_totals(states: TrainState) -> TrainState:
    """The states with their running sums begun anew."""
    return eqx.filter_vmap(without_totals, in_axes=(AXES,), out_axes=AXES)(states)


@eqx.filter_jit
def catch_up(state: TrainState, warm_up: int) -> TrainState:
    """Let the learning rate of members that were restarted follow the shared step again, once they have warmed up.

    Otherwise it would not have fallen to 0 at the end. Adam's own count stays: it belongs to its moments.
    """

    def is_schedule(part: Any) -> bool:
        return isinstance(part, optax.ScaleByScheduleState)

    def follow(part: Any) -> Any:
        if not is_schedule(part):
            return part
        late = jnp.maximum(part.count, state.step.astype(part.count.dtype))
        return part._replace(count=jnp.where(part.count >= warm_up, late, part.count))

    return jax.tree.map(follow, state, is_leaf=is_schedule)
