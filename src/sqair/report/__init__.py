"""Pages: one ``index.html`` for a run, which opens from disk and asks nothing of any network.

`PageWriter` makes the page of a clip (track, predict) frame by frame, `train_page` that of a training, `evaluate_page`
that of an evaluation; `remake` makes the page of a folder again. The pages themselves are in assets/.
"""

from sqair.report.clip import PageObject, PageWriter
from sqair.report.evaluation import evaluate_page
from sqair.report.remake import remake
from sqair.report.training import train_page

__all__ = ["PageObject", "PageWriter", "evaluate_page", "remake", "train_page"]
