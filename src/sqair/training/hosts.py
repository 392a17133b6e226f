"""Training over many hosts: every process runs the same command, joins the job, and does the same; one writes.

Who is who is told by flags, or by Slurm or Kubernetes, whose variables jax reads. All processes must see the folder of
the run, and have the same devices.
"""

import ctypes
import importlib.util
import os
import signal
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np

from sqair.config import UsageError, UserError

HEARTBEAT = 30
"""Seconds of silence after which a process counts as dead."""
ABORTED = (
    b"sqair train: jax aborted, most likely because process 0 of the job is gone; "
    b"start all its processes again with --resume\n"
)


class Job(NamedTuple):
    """The processes that train together; where all is None, the cluster tells jax."""

    coordinator: str | None = None
    """Host and port of process 0."""
    processes: int | None = None
    process: int | None = None


def find_job(
    coordinator: str | None, processes: int | None, process: int | None, environment: Mapping[str, str]
) -> Job | None:
    """The job that flags or the environment tell of; None for a process that trains alone."""
    tasks = _number(environment, "SLURM_NTASKS", 1)
    slurm = tasks > 1 and "SLURM_STEP_NODELIST" in environment
    kubernetes = "KUBERNETES_SERVICE_HOST" in environment and "JOB_COMPLETION_INDEX" in environment
    if coordinator is None:
        if processes is not None or process is not None:
            raise UsageError("--processes and --process need --coordinator HOST:PORT, the address of process 0")
        if kubernetes and not slurm and importlib.util.find_spec("kubernetes") is None:
            raise UserError(
                "an indexed Kubernetes job finds its other processes with the package `kubernetes`, which is not "
                "installed; run `pip install kubernetes`, or give --coordinator HOST:PORT --processes N"
            )
        return Job() if slurm or kubernetes else None
    if processes is None and slurm:
        processes = tasks
    for name, known in (("SLURM_PROCID", slurm), ("JOB_COMPLETION_INDEX", kubernetes)):
        process = _number(environment, name) if process is None and known else process
    if processes is None or process is None:
        raise UsageError("--coordinator needs --processes N and --process I, a number from 0 to N - 1")
    if processes < 1:
        raise UsageError(f"--processes must be at least 1, not {processes}")
    if not 0 <= process < processes:
        raise UsageError(f"--process must be between 0 and {processes - 1}, not {process}")
    host, _, port = coordinator.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):  # jax would crash, or wait for minutes
        raise UsageError(f"--coordinator must be HOST:PORT, such as 10.0.0.1:5000, not {coordinator}")
    return Job(coordinator, processes, process)


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    """A number that the cluster tells."""
    told = environment.get(name, "" if default is None else str(default))
    if not told.isdecimal():
        raise UserError(f"{name} is {told!r}, which is no number; start the job anew, or unset it to train alone")
    return int(told)


def join(job: Job) -> None:
    """Wait for all processes of a job; before jax first looks for devices."""
    try:
        jax.distributed.initialize(*job, heartbeat_timeout_seconds=HEARTBEAT)
    except (RuntimeError, ValueError) as error:
        first = str(error).splitlines()[0]
        raise UserError(f"cannot join the job of {job.coordinator or 'the cluster'}: {first}") from error
    end_clearly()


HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)


@HANDLER
def _last_words(_: int) -> None:
    """Say what an abort most likely means, and end as after any other error."""
    os.write(2, ABORTED)
    os._exit(1)


def end_clearly() -> None:
    """Have this process end with a line and exit code 1 when jax aborts it, as it does when the coordinator is gone.

    jax aborts in a thread of its own, which a handler set with Python's `signal` would not outlive: that runs later, in
    the main thread. This one is called at once, in the thread that aborts.
    """
    library = ctypes.CDLL(None)
    library.signal.argtypes, library.signal.restype = [ctypes.c_int, HANDLER], ctypes.c_void_p
    library.signal(signal.SIGABRT, _last_words)


def is_writer() -> bool:
    """Whether this process writes the run's files: one does."""
    return jax.process_index() == 0


def agreed(number: int) -> int:
    """The largest of a number over all processes, so that all of them do the same. It waits for all of them."""
    if jax.process_count() == 1:
        return number
    from jax.experimental.multihost_utils import process_allgather

    return int(np.max(process_allgather(np.asarray(number))))
