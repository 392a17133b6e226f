"""Ablations: what happens if one thing is left out or done in another way, over several seeds and a fixed budget.

Every ablation is a table of overrides of the preset `sqair-mlp`; its seeds are trained side by side and all of them are
reported, on held-out training digits, without any choice among them.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax

from sqair.config import AUTHORS_SWITCHES, PAPER_SWITCHES, ModelConfig, Preset, UserError, nearest, preset
from sqair.data import open_data
from sqair.evaluation.evaluate import evaluate
from sqair.training.loop import check_preset
from sqair.training.population import Population
from sqair.training.recipe import scaled

BASE = "sqair-mlp"
STEPS, SEEDS = 5_000, 5
COLUMNS = ("counting", "counting_weighted", "rediscoveries_per_frame", "id_switches", "log_p")
"""What is reported of every seed."""
HIGHER_IS_BETTER = ("counting", "counting_weighted", "log_p")


@dataclasses.dataclass(frozen=True)
class Ablation:
    """What is changed, and why one would."""

    why: str
    model: dict[str, Any] = dataclasses.field(default_factory=dict)
    train: dict[str, Any] = dataclasses.field(default_factory=dict)


def _of_authors() -> dict[str, Ablation]:
    """Each switch of the authors' program that differs from our default, alone."""
    plain = ModelConfig()
    changed = {name: value for name, value in AUTHORS_SWITCHES.items() if getattr(plain, name) != value}
    return {
        f"authors-{name.replace('_', '-')}": Ablation(f"{name} as in the authors' program", {name: value})
        for name, value in changed.items()
    }


ABLATIONS: dict[str, Ablation] = {
    "default": Ablation("what all others are held against"),
    "no-proposal-glimpse": Ablation("propagation sees nothing of the frame before it looks", {"proposal": "none"}),
    "propagation-image": Ablation(
        "it sees the encoded frame instead of a proposal glimpse (the paper: identities swap)", {"proposal": "image"}
    ),
    "propagation-low-resolution": Ablation("... the frame at a low resolution", {"proposal": "low-resolution"}),
    "propagation-projection": Ablation("... a few numbers of the encoded frame", {"proposal": "projection"}),
    "no-relation": Ablation("in propagation objects know nothing of each other", {"relation": "none"}),
    "learned-std": Ablation("output std learned from the start (the paper: it collapses)", {"learn_output_std": True}),
    "learned-std-later": Ablation(
        "output std learned after 2,000 steps", {"learn_output_std": True}, {"output_std_steps": 2_000}
    ),
    "no-curriculum": Ablation("all ten frames from the start", train={"first_length": 10}),
    "no-discovery-dropout": Ablation("every frame may discover while training", train={"discovery_dropout": 0.0}),
    "no-discovery-cost": Ablation("discovery has no price at the start", train={"discovery_cost": 0.0}),
    "vimco-authors": Ablation("the authors' variant of VIMCO, biased", train={"estimator": "vimco-authors"}),
    "reinforce": Ablation(
        "the ELBO with REINFORCE and a leave-one-out baseline", train={"bound": "elbo", "estimator": "reinforce"}
    ),
    "nvil": Ablation("the ELBO with a learned baseline", train={"bound": "elbo", "estimator": "nvil"}),
    **{f"particles-{k}": Ablation(f"K = {k}; 5 is the default", train={"particles": k}) for k in (2, 10)},
    **{f"width-{w}": Ablation(f"{w} units a layer; 256 is the default", {"width": w}) for w in (32, 64, 128, 512)},
    "paper-switches": Ablation("all that the paper states and our defaults leave", dict(PAPER_SWITCHES)),
    "authors-switches": Ablation("all switches of the authors' program", dict(AUTHORS_SWITCHES)),
    **_of_authors(),
}
"""By name, those first that the paper talks about."""


def ablated(name: str, *, steps: int, seeds: int, digits: str | None = None, seed: int = 0) -> Preset:
    """The preset of an ablation, whose recipe follows the number of steps."""
    if name not in ABLATIONS:
        raise UserError(f"unknown ablation {name!r}; {nearest(name, ABLATIONS)}")
    base, change = preset(BASE), ABLATIONS[name]
    train = dataclasses.replace(scaled(base.train, steps), members=seeds, seed=seed, **change.train)
    data = base.data if digits is None else dataclasses.replace(base.data, digits=digits)
    chosen = Preset(dataclasses.replace(base.model, **change.model), data, train)
    check_preset(chosen)
    return chosen


def ablate(
    chosen: Preset, *, sequences: int, particles: int, say: Callable[[str], None], parts: int = 10
) -> dict[str, Any]:
    """Train all seeds side by side and evaluate each; returns a row for every seed and the time that training took."""
    population, source = Population(chosen), open_data(chosen.data, "train")
    began, state = time.perf_counter(), population.first()
    steps = chosen.train.steps
    for part in range(parts):
        count = steps * (part + 1) // parts - steps * part // parts
        state = jax.block_until_ready(population.advance(state, source, count))
        say(f"step {steps * (part + 1) // parts} of {steps}, {time.perf_counter() - began:.0f} s")
    minutes, held_out = (time.perf_counter() - began) / 60, open_data(chosen.data, "validation")
    rows = []
    for number, member in enumerate(population.members):
        model = population.take(state.model, number)
        found = evaluate(model, held_out, sequences=sequences, particles=particles, seed=1)
        rows.append({"seed": member.seed, **{name: found[name] for name in COLUMNS}})
        say(f"seed {member.seed}: counting {found['counting']:.4f}, log p {found['log_p']:.1f}")
    return {"minutes": round(minutes, 3), "sequences": sequences, "particles": particles, "rows": rows}


# --- text


def text(results: Sequence[dict[str, Any]]) -> str:
    """A table in Markdown: for each ablation the median and the worst of its seeds."""
    head = ["ablation", "seeds", *COLUMNS]
    lines = [head, ["---"] * len(head)]
    for result in results:
        cells = [spread([row[name] for row in result["rows"]], name) for name in COLUMNS]
        lines.append([result["name"], str(len(result["rows"])), *cells])
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    padded = [[word.ljust(width) for word, width in zip(line, widths, strict=True)] for line in lines]
    table = "".join("| " + " | ".join(line) + " |\n" for line in padded)
    return table + "\nmedian (worst) of all seeds, on held-out training digits\n"


def spread(values: Sequence[float | int | None], name: str) -> str:
    """The median and, in brackets, the worst; a seed whose number has no meaning, or is not finite, is left out."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    worst = min(known) if name in HIGHER_IS_BETTER else max(known)
    return f"{shown(statistics.median(known))} ({shown(worst)})"


def shown(value: float | int) -> str:
    """With as many digits as one reads."""
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.1f}"


def listing() -> str:
    """All ablations with what they are for."""
    width = max(map(len, ABLATIONS))
    lines = [f"{name:{width}}  {each.why}" for name, each in ABLATIONS.items()]
    return "\n".join(lines) + "\n"
