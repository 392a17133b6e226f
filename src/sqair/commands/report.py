"""``sqair report``: the page of a run, made again."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import tyro

from sqair.commands.common import Command, finish


@dataclass(frozen=True, kw_only=True)
class Report(Command):
    """Make the page of a run again, index.html in its folder.

    A page opens from disk and asks nothing of any network. Commands write it themselves; this makes it from what the
    folder of a train, evaluate, track or predict run holds by now, with the programs of this version.

    examples:
      sqair report runs/train/tiny
      sqair report runs/track/clip
    """

    NAME: ClassVar[str] = "report"
    POSITIONAL: ClassVar[str | None] = "run_folder"

    run_folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The folder of a run."""

    def run(self) -> None:
        """Write it."""
        from sqair.report import remake

        finish(remake(self.run_folder))
