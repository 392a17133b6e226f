"""The files of a run, written by one process of a job; in the others nothing is."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqair.training import runs
from sqair.training.checkpoint import CONFIG, load_model, read_card, save_model
from sqair.training.hosts import is_writer
from sqair.training.population import Population
from sqair.training.resume import (
    Checkpoint,
    Notes,
    forget_others,
    mend_best,
    model_extra,
    restore,
    save_state,
    save_whole,
)
from sqair.training.runs import BEST, MEMBERS
from sqair.training.step import TrainState


@dataclass
class Archive:
    """What a run writes into its folder. Every method does nothing where another process writes."""

    out: Path
    population: Population

    def begin(self, state: TrainState, notes: Notes, command: str) -> None:
        """Write what a new run has from its first moment; what an earlier run left is deleted."""
        if is_writer():
            runs.clear_folder(self.out)
            self.save(state, notes)
            runs.begin_run(self.out, notes.preset, command, resume=False)

    def go_on(self, found: Checkpoint, damaged: Sequence[Path], command: str) -> None:
        """Take a run back to the checkpoint that it goes on from; `damaged` are best models that cannot be loaded."""
        if is_writer():
            restore(self.out, found)
            mend_best(self.out, self.population.members, damaged)
            runs.begin_run(self.out, self.population.preset, command, resume=True)
            self.note(found.notes.events, found.notes.rollbacks)

    def note(self, alarms: Sequence[dict[str, Any]], rollbacks: Sequence[dict[str, Any]]) -> None:
        """All collapses so far, and when training went back."""
        if is_writer():
            runs.note_events(self.out, alarms, rollbacks)

    def write(self, line: dict[str, Any]) -> None:
        """A line of metrics.jsonl."""
        if is_writer():
            runs.append_metrics(self.out, line)

    def keep(self, state: TrainState, i: int, bound: float | None) -> None:
        """A member's present model as its best."""
        if is_writer():
            number = None if self.population.is_alone else i
            extra = model_extra(self.population.members[i], number, int(state.step), bound)
            save_whole(self._best_of(i), self.population.take(state.model, i), extra)

    def lead(self, i: int) -> None:
        """A member's best model as the best of all."""
        if is_writer() and not self.population.is_alone:
            folder = self._best_of(i)
            save_whole(self.out / BEST, load_model(folder), read_card(folder)["training"])

    def save(self, state: TrainState, notes: Notes) -> None:
        """A checkpoint."""
        if is_writer():
            save_state(self.out, self.population, state, notes)

    def begin_afresh(self, state: TrainState, notes: Notes) -> None:
        """A checkpoint of step 0 instead of all that was learnt."""
        if is_writer():
            runs.clear_folder(self.out, runs.SHOWN)
            forget_others(self.out, save_state(self.out, self.population, state, notes))

    def finish(self, state: TrainState, best: int) -> None:
        """The best model in the run's folder itself; member `best`'s present one where there is none."""
        if is_writer():
            if not (self.out / BEST / CONFIG).is_file():  # no validation bound was finite, or someone deleted it
                self.keep(state, best, None)
                self.lead(best)
            save_model(self.out, load_model(self.out / BEST), read_card(self.out / BEST)["training"])

    def end(self, outcome: str) -> None:
        """How the run ended."""
        if is_writer():
            runs.end_run(self.out, outcome)

    def _best_of(self, i: int) -> Path:
        return self.out / BEST if self.population.is_alone else self.out / MEMBERS / str(i)
