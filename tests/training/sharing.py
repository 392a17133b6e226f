"""Compares training on a mesh of simulated devices with that on one. Run as a program: it sets what jax sees.

    python sharing.py DATA.npz MESH STEPS [x64] [FIELD=VALUE ...]

makes the data, if it is not there, and prints as JSON the largest difference of any array of the two train states,
relative to the largest number in it, and how many devices there were.
"""

import ast
import dataclasses
import json
import os
import sys

DEVICES = 8


def main(path: str, text: str, steps: str, *rest: str) -> None:
    os.environ["XLA_FLAGS"] = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}".strip()
    )
    import jax
    import numpy as np
    from conftest import MODEL, TRAIN, square_frames

    from sqair.config import DataConfig, Preset
    from sqair.data import Sequences, open_data, save_sequences
    from sqair.training.checkpoint import named_arrays
    from sqair.training.distributed import choose_shares, make_mesh
    from sqair.training.population import Population

    jax.config.update("jax_enable_x64", "x64" in rest)
    if not os.path.exists(path):
        save_sequences(path, Sequences(square_frames(40, 4), most_objects=np.zeros((40, 4), np.int32)))
    changes = dict(word.split("=", 1) for word in rest if word != "x64")
    config = dataclasses.replace(
        TRAIN, batch=8, particles=4, **{name: ast.literal_eval(v) for name, v in changes.items()}
    )
    preset = Preset(dataclasses.replace(MODEL, max_objects=1), DataConfig(name=path, length=4, size=(12, 12)), config)
    source, members = open_data(preset.data, "train"), Population(preset).size
    shares = choose_shares(text, config, members, jax.device_count())
    states = []
    for mesh in (None, make_mesh(shares)):
        population = Population(preset, mesh)
        states.append(population.advance(population.first(), source, int(steps)))
    one, many = (named_arrays(state) for state in states)
    differences = {
        name: float(np.max(np.abs(np.asarray(many[name], float) - np.asarray(array, float))))
        / max(float(np.max(np.abs(np.asarray(array, float)))), 1e-30)
        for name, array in one.items()
    }
    print(json.dumps({"differences": differences, "devices": shares.devices}))


if __name__ == "__main__":
    main(*sys.argv[1:])
