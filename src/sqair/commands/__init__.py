"""The commands of ``sqair``: one frozen dataclass each, whose fields are flags and whose `run` does the work.

Importing them costs nothing: jax and everything that imports it are imported inside `run`.
"""

from sqair.commands.ablate import Ablate
from sqair.commands.bench import Bench
from sqair.commands.common import Command, Common
from sqair.commands.data import Data
from sqair.commands.demo import Demo
from sqair.commands.evaluate import Evaluate
from sqair.commands.figures import Figures
from sqair.commands.fit import Fit
from sqair.commands.predict import Predict
from sqair.commands.report import Report
from sqair.commands.sample import Sample
from sqair.commands.table import Table
from sqair.commands.track import Track
from sqair.commands.train import Train

__all__ = [
    "Ablate",
    "Bench",
    "Command",
    "Common",
    "Data",
    "Demo",
    "Evaluate",
    "Figures",
    "Fit",
    "Predict",
    "Report",
    "Sample",
    "Table",
    "Track",
    "Train",
]
