"""Does the alarm name failures, and does it keep silent over healthy trainings?

    python -m benchmarks.alarm --preset tiny             # minutes on two CPU cores
    python -m benchmarks.alarm --record alarm_mlp        # sqair-mlp, minutes on one GPU

Trains healthy seeds with default settings and provoked failures for the first tenth of a training, asks the alarm at
the moments the train loop would, and counts a failure as named when two moments in a row say the same. Labels then tell
what has really happened to each training: one that did not fail counts as healthy, whatever it was provoked to.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from benchmarks.alarm_cases import HEALTHY, Case, provoked_cases, provoked_setting, setting_named, train_population
from benchmarks.alarm_truth import Sample, true_failure
from benchmarks.flags import add_record_flags
from benchmarks.record import write_record
from sqair.config import Preset
from sqair.data import Sequences, open_data
from sqair.objective import iwae
from sqair.settings import to_dict
from sqair.training import alarm
from sqair.training.curriculum import length_at
from sqair.training.step import TrainState

PART, EVERY = 0.1, 0.025
"""How much of a training is made, and how often the alarm is asked, as shares of all steps."""
PARTICLES = 5
"""Of the bound that is watched."""


class Outcome(NamedTuple):
    """What became of a training."""

    case: Case
    truth: str
    """What the labels say: a failure, or HEALTHY."""
    named: str
    """What the alarm said twice in a row, or HEALTHY."""
    step: int | None
    """When it had said so."""
    said: list[str | None]
    """What it said at each moment."""
    evidence: list[dict[str, float]]
    """Why."""


@eqx.filter_jit
def examine(
    models: Any, key: PRNGKeyArray, frames: Float[Array, "S T Y X"]
) -> tuple[alarm.Signals, Float[Array, " R"], Sample]:
    """The signals, the validation bound in nats per frame and a sample of every member of a population."""
    arrays, rest = eqx.partition(models, eqx.is_array)

    def member(arrays: Any) -> tuple[alarm.Signals, Float[Array, ""], Sample]:
        model = eqx.combine(arrays, rest)

        def weights(frames: Float[Array, "T Y X"], keys: PRNGKeyArray) -> Float[Array, ""]:
            infos = jax.vmap(lambda k: model.observe(k, frames)[1])(keys)
            return iwae(infos.log_weight.sum(-1)) / frames.shape[0]

        keys = jax.random.split(key, (frames.shape[0], PARTICLES))
        info = jax.vmap(lambda k, f: model.observe(k, f)[1])(keys[:, 0], frames)
        boxes = model.image.transformer.boxes(info.objects.where)
        sample = Sample(info.objects.pres, info.objects.identity, boxes, info.discovered, info.canvas)
        return alarm.measure(model, key, frames), jax.vmap(weights)(frames, keys).mean(), sample

    return jax.vmap(member)(arrays)


class Observer:
    """Asks the alarm about a population whenever it is shown one, and remembers the answers."""

    def __init__(self, setting: Preset, cases: list[Case], sequences: int) -> None:
        self.setting, self.cases = setting, cases
        self.truth: Sequences = open_data(setting.data, "validation").fixed(sequences, 1)
        self.scene = alarm.look(np.asarray(self.truth.frames))
        self.best: list[float | None] = [None] * len(cases)
        self.steps: list[int] = []
        self.said: list[list[str | None]] = [[] for _ in cases]
        self.evidence: list[list[dict[str, float]]] = [[] for _ in cases]
        self.samples: Sample | None = None

    def __call__(self, step: int, states: TrainState) -> None:
        """One moment."""
        train, total = self.setting.train, self.setting.data.length
        if step < min(train.warm_up, train.steps // 20):
            return
        signals, bounds, self.samples = examine(states.model, jax.random.key(7), jnp.asarray(self.truth.frames))
        length = int(length_at(step, train, total))
        slots = self.setting.model.max_objects
        self.steps.append(step)
        for i, case in enumerate(self.cases):
            own = jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), signals)
            bound, best = float(bounds[i]), self.best[i]
            skipped = int(states.optimiser.notfinite_count[i])
            said = alarm.name_failure(
                own,
                self.scene,
                slots=slots,
                best_bound=best,
                bound=bound,
                skipped=skipped,
                length=length,
            )
            evidence = {"bound": bound, "skipped": skipped, **alarm.weigh(own, self.scene, slots, length)._asdict()}
            self.best[i] = bound if best is None or bound > best else best
            self.said[i].append(said)
            self.evidence[i].append({name: round(float(value), 3) for name, value in evidence.items()})
            print(f"step {step}  {case.kind:15} seed {case.seed:<3} said {said}  {self.evidence[i][-1]}", flush=True)

    def outcomes(self) -> list[Outcome]:
        """What became of each member, after the last moment."""
        assert self.samples is not None
        rows = []
        for i, case in enumerate(self.cases):
            sample = jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), self.samples)
            truth = true_failure(sample, self.truth, self.is_lost(i)) or HEALTHY
            named, step = self.naming(i)
            rows.append(Outcome(case, truth, named, step, self.said[i], self.evidence[i]))
        return rows

    def is_lost(self, member: int) -> bool:
        """Whether steps are skipped, or the bound is not finite or half the ink's worth below its best or no canvas."""
        last, best = self.evidence[member][-1], self.best[member]
        floor = max(last["empty"], last["bound"] if best is None else best) - 0.5 * last["ink"]
        return last["skipped"] >= alarm.SKIPPED or not last["bound"] >= floor

    def naming(self, member: int) -> tuple[str, int | None]:
        """The first failure said twice in a row, and when."""
        said = self.said[member]
        for before, now, step in zip(said[:-1], said[1:], self.steps[1:], strict=True):
            if now is not None and now == before:
                return now, step
        return HEALTHY, None


def report(outcomes: list[Outcome]) -> dict[str, Any]:
    """Print a table and return the numbers: how many failures were named right, and how often the alarm was false."""
    print(f"{'meant':15} {'seed':>4}  {'really':15} {'named':15} {'at step':>7}")
    for row in outcomes:
        print(f"{row.case.kind:15} {row.case.seed:4}  {row.truth:15} {row.named:15} {row.step or '-':>7}")
    failed = [row for row in outcomes if row.truth != HEALTHY and row.case.kind != HEALTHY]
    healthy = [row for row in outcomes if row.case.kind == HEALTHY or row.truth == HEALTHY]
    right, false = sum(row.named == row.truth for row in failed), sum(row.named != HEALTHY for row in healthy)
    default = [row for row in healthy if row.case.kind == HEALTHY]
    summary = {
        "failed": len(failed),
        "named_right": right,
        "accuracy": right / max(len(failed), 1),
        "noticed": sum(row.named != HEALTHY for row in failed),
        "healthy": len(healthy),
        "false_alarms": false,
        "false_alarm_rate": false / max(len(healthy), 1),
        "default_seeds": len(default),
        "default_seeds_alarmed": sum(row.named != HEALTHY for row in default),
        "default_seeds_failed_by_labels": sum(row.truth != HEALTHY for row in default),
        "failed_as_meant": sum(row.truth == row.case.kind for row in failed),
    }
    print(json.dumps(summary, indent=1))
    return summary


def finite(evidence: list[dict[str, float]]) -> list[dict[str, float | None]]:
    """The evidence with None for what is not finite, which JSON does not know."""
    return [{name: value if np.isfinite(value) else None for name, value in moment.items()} for moment in evidence]


def save_strip(folder: Path, observer: Observer, name: str, sequences: int = 3) -> None:
    """One picture for each member: a few sequences with two digits, and what the model made of them."""
    from sqair.figures import Row, strip

    assert observer.samples is not None
    folder.mkdir(parents=True, exist_ok=True)
    chosen = np.argsort(-np.asarray(observer.truth.counts)[:, 0], kind="stable")[:sequences]
    for i, case in enumerate(observer.cases):
        rows = []
        for s in chosen:
            sample = jax.tree.map(lambda leaf, i=i, s=s: np.asarray(leaf[i, s]), observer.samples)
            rows.append(Row("frames", np.asarray(observer.truth.frames[s])))
            rows.append(Row("model", sample.canvas, sample.boxes, sample.identity))
        strip(folder / f"{name}-{case.kind.replace(' ', '-')}-{case.seed}.png", rows, zoom=2)


def main() -> None:
    """Train both populations, ask, judge, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="sqair-mlp", help="tiny stands for a setting that two cores can train")
    parser.add_argument("--config", type=json.loads, default={}, help="JSON of preset fields to change")
    parser.add_argument("--steps", type=int, default=10_000, help="of a whole training, of which a tenth is made")
    parser.add_argument("--healthy", type=int, default=20, help="seeds with the default settings")
    parser.add_argument("--sequences", type=int, default=64, help="validation sequences that the alarm looks at")
    parser.add_argument("--strips", type=Path, help="save pictures of what each model sees here")
    add_record_flags(parser)
    arguments = parser.parse_args()
    setting = setting_named(arguments.preset, arguments.steps, arguments.config)
    populations = {
        "provoked": (provoked_setting(setting), provoked_cases(setting)),
        HEALTHY: (setting, [Case(HEALTHY, seed) for seed in range(arguments.healthy)]),
    }
    every, outcomes, begin = max(1, round(EVERY * arguments.steps)), [], time.time()
    for name, (chosen, cases) in populations.items():
        if not cases:
            continue
        observer = Observer(chosen, cases, arguments.sequences)
        train_population(chosen, cases, round(PART / EVERY), every, observer)
        outcomes += observer.outcomes()
        if arguments.strips is not None:
            save_strip(arguments.strips, observer, name)
    summary = report(outcomes)
    if arguments.record:
        rows = [{**row._asdict(), "case": row.case._asdict(), "evidence": finite(row.evidence)} for row in outcomes]
        results = {"setting": to_dict(setting), "seconds": round(time.time() - begin, 1), **summary, "rows": rows}
        print("Record saved to", write_record(arguments.record, results, arguments.folder))


if __name__ == "__main__":
    main()
