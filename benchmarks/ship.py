"""Turns a trained model into one that is shipped: `python -m benchmarks.ship RUN NAME --digits DIR`.

Weights are halved, and the card gets what is typical of the training data. The path of the digits and what training
began with mean nothing elsewhere and are left out. Whether halving moves a number is for `sqair evaluate` to tell.
"""

import argparse
import dataclasses
from pathlib import Path

from benchmarks.results import WEIGHTS
from sqair.config import DataConfig
from sqair.data import open_data
from sqair.settings import from_dict, to_dict
from sqair.tracking.typical import typical, write_typical
from sqair.training.checkpoint import load_model, read_card, save_pretrained


def ship(source: str, folder: Path, digits: str) -> None:
    """Write the model `source` into `folder` as a shipped one; `digits` is where its training digits are here."""
    training = dict(read_card(source)["training"])
    data = from_dict(DataConfig, training["data"], "data.")
    named = dataclasses.replace(data, digits="mnist" if data.digits != "strokes" else data.digits)
    train = training["train"] | {"start": ""}
    save_pretrained(load_model(source), folder, training=training | {"data": to_dict(named), "train": train}, half=True)
    model = load_model(folder)
    if model.has_objects:
        held_out = open_data(dataclasses.replace(data, digits=digits), "validation")
        write_typical(folder, typical(model, held_out))


def main() -> None:
    """Ship one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="the folder of a run or a model")
    parser.add_argument("name", help="the folder in src/sqair/weights")
    parser.add_argument("--digits", default="mnist", help="mnist, strokes, or a folder with the MNIST files")
    given = parser.parse_args()
    ship(given.run, WEIGHTS / given.name, given.digits)


if __name__ == "__main__":
    main()
