"""The page of an evaluation: every number with what it means."""

from pathlib import Path
from typing import Any

import sqair
from sqair.report.document import PAGE, plain, write_page

MEANINGS = {
    "log_p": "IWAE bound with K particles and whole-sequence weights, nats per sequence; higher is better",
    "log_p_se": "standard error of log_p over sequences",
    "reconstruction": "log-likelihood of the frames under single posterior samples, nats per sequence",
    "kl": "reconstruction less the ELBO, nats per sequence",
    "reconstruction_weighted": "the same with the particles weighted by importance",
    "kl_weighted": "the same with the particles weighted by importance",
    "counting": "share of frames whose number of objects is right, in single posterior samples",
    "counting_weighted": "the same with the particles weighted by importance",
    "counting_mode": "the same for the most probable number",
    "counting_visible": "the same in frames where every object is at least a quarter in sight",
    "rediscoveries_per_frame": "objects discovered per frame after the first, where all are there from the start",
    "mota": "multiple object tracking accuracy",
    "idf1": "share of boxes with the right identity (F1)",
    "hota": "higher order tracking accuracy",
    "id_switches": "how often an object is given another identity, over all sequences",
    "presence_ece": "calibration error of presence; 0 is best",
    "box_coverage": "share of coordinates of true centres inside the posterior's 90% interval; .9 where it is right",
    "ess": "effective number of particles",
}
"""The numbers of `sqair evaluate`, in its order."""
FACTS = ("model", "data", "sequences", "particles", "seed", "device", "seconds")
ROW = '<tr><th scope="row">{name}</th><td class="number">{value}</td><td>{meaning}</td></tr>'
FACT = "<div><dt>{name}</dt><dd>{value}</dd></div>"


def evaluate_page(folder: str | Path, results: dict[str, Any]) -> Path:
    """Write index.html into `folder` from the numbers of `sqair evaluate --json`; returns its path."""
    path, name = Path(folder) / PAGE, str(results.get("model", "model"))
    known = [key for key in MEANINGS if results.get(key) is not None]
    rows = [ROW.format(name=key.replace("_", " "), value=shown(results[key]), meaning=MEANINGS[key]) for key in known]
    facts = [FACT.format(name=key, value=shown(results[key])) for key in FACTS if results.get(key) is not None]
    write_page(
        path,
        "evaluate.html",
        (),
        title=f"{name} · sqair evaluate",
        head={"title": name, "kind": "evaluate"},
        name=plain(name),
        facts="".join(facts),
        rows="\n".join(rows),
        version=plain(sqair.__version__),
    )
    return path


def shown(value: Any) -> str:
    """A value as HTML, with as many digits as one reads."""
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 10 else f"{value:,.2f}"
    return plain(f"{value:,}" if isinstance(value, int) else str(value))
