"""Many items, one after another in this process or spread over the workers of a Ray cluster.

It knows nothing of what an item is. An item whose worker dies is tried again, a few times; one that fails does not stop
the others. Ray is an extra, imported only when it is asked for. Standard library otherwise.
"""

import contextlib
import importlib
import importlib.util
import io
import logging
import os
import queue
import secrets
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from sqair.config import UsageError, UserError

T = TypeVar("T")

LOCAL = "local"
"""The address of a cluster of this machine's own cores, which lasts as long as it is needed."""
RETRIES = 3
"""How often an item is tried again after its worker died."""
STORE = 128 * 2**20
"""Bytes that a local cluster sets aside for what workers hand over; our results are small."""
PATIENCE = 30.0
"""Seconds in which a cluster that runs already must answer."""
SECONDS = 0.5
"""How long to wait before asking again whether to stop."""


class Outcome(NamedTuple):
    """What became of an item."""

    value: Any = None
    error: Exception | None = None
    """Why there is no value."""
    tries: int = 1


class Died(Exception):
    """The workers of an item died, each time it was tried."""


def check_ray(address: str) -> None:
    """Refuse to begin what needs Ray where it is not installed, or where no cluster can be."""
    if importlib.util.find_spec("ray") is None:
        raise UserError("--ray needs a package that is not installed; run `pip install 'sqair[cluster]'`")
    if address in (LOCAL, "auto"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        raise UsageError(f"--ray must be {LOCAL}, auto or HOST:PORT, not {address}")
    host = host.removeprefix("[").removesuffix("]")  # as IPv6 is written before a port
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()  # Ray itself would wait for minutes
    except (OSError, OverflowError) as error:
        raise UserError(f"no Ray cluster answers at {address}; start one, or use --ray {LOCAL}") from error


def run_items(
    items: Sequence[T],
    work: Callable[[T], Any],
    *,
    address: str | None,
    on_done: Callable[[T, Outcome], None],
    on_start: Callable[[], None] = lambda: None,
    on_died: Callable[[T, int], None] = lambda item, tries: None,
    stop: Callable[[], bool] = lambda: False,
    retries: int = RETRIES,
    device: str = "auto",
    environment: Mapping[str, str] | None = None,
) -> None:
    """Do `work` with every item and tell of each as it ends, until `stop` says so.

    Without an address this process does all of it. With one, `work` and the items are sent to workers, which have
    `environment` added to theirs; each has its part of the CPUs, and a GPU unless `device` is "cpu" or there is none.
    `on_start` is called when work can begin, `on_died` when the worker of an item died, with how often it was tried.
    """
    if address is not None and items:
        with connected(address) as ray:
            workers = Workers(ray, work, _options(ray, len(items), device, environment))
            on_start()
            return _spread(workers, items, on_done, on_died, stop, retries)
    on_start()
    for item in items:
        if stop():
            return
        on_done(item, attempt(work, item))


def attempt(work: Callable[[T], Any], item: T) -> Outcome:
    """Do `work` once."""
    try:
        return Outcome(work(item))
    except Exception as error:
        return Outcome(error=error)


# --- Ray


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """The module `ray`, connected to a cluster; a local one is started, is closed to others, and ends with the block.

    Ray would print on stdout, which is for results, tell its makers how it is used, and answer SIGTERM itself.
    """
    check_ray(address)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if address == LOCAL:
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with contextlib.redirect_stdout(io.StringIO()):
        ray = importlib.import_module("ray")  # an extra, which type checkers need not find
        with _own_signals():
            _start(ray, address)
        try:
            yield ray
        finally:
            ray.shutdown()


def _start(ray: Any, address: str) -> None:
    """Begin a local cluster, or join another, which must answer in time."""
    told = {"address": address, "log_to_driver": False, "logging_level": logging.CRITICAL}
    try:
        if address == LOCAL:
            ray.init(**told, include_dashboard=False, object_store_memory=STORE)
        else:
            with _hushed():
                within(PATIENCE, lambda: ray.init(**told))
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        first = str(error).partition("\n")[0]
        raise UserError(f"cannot use the Ray cluster at {address}: {first}") from error


def within(seconds: float, call: Callable[[], Any]) -> Any:
    """What a call returns; TimeoutError when that takes too long: it then goes on, unheard, until the process ends."""
    ended: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    threading.Thread(target=lambda: ended.put(attempt(lambda _: call(), None)), daemon=True).start()
    try:
        outcome = ended.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"it did not answer within {seconds:g} seconds") from None
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """Drop what the block writes on stderr, past Python too, as Ray does while it waits; we say why it failed."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Undo what the block does to the answer to SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _options(ray: Any, count: int, device: str, environment: Mapping[str, str] | None) -> dict[str, Any]:
    """What a worker gets: an equal part of the CPUs, no more than a machine has, and a GPU if there is one for it."""
    nodes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    cpus = max(1, int(min(sum(nodes) // count, min((each for each in nodes if each), default=1))))
    gpus = 1 if device != "cpu" and ray.cluster_resources().get("GPU", 0) >= 1 else 0
    if device == "gpu" and not gpus:
        raise UserError("the Ray cluster has no GPU; use --device cpu")
    told = {"NPROC": str(cpus), **(environment or {})}  # jax starts so many threads
    return {"num_cpus": cpus, "num_gpus": gpus, "max_retries": 0, "runtime_env": {"env_vars": told}}


class Workers:
    """Those of a cluster, and what they have to do."""

    def __init__(self, ray: Any, work: Callable[[T], Any], options: Mapping[str, Any]) -> None:
        def sqair(item: T) -> Outcome:  # workers bear this name while they have an item
            return attempt(work, item)

        self.ray, self.remote = ray, ray.remote(sqair).options(**options)
        self.most = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)) // options["num_cpus"])
        """Items that are sent ahead, so that none of them waits."""
        self.running: dict[Any, tuple[Any, int]] = {}

    def send(self, item: Any, tries: int) -> None:
        """Have an item done."""
        self.running[self.remote.remote(item)] = item, tries

    def ended(self, most: int, seconds: float) -> Iterator[tuple[Any, Outcome]]:
        """Items that have ended, waiting a while for so many of them."""
        references = list(self.running)
        for reference in self.ray.wait(references, num_returns=most, timeout=seconds)[0] if references else ():
            item, tries = self.running.pop(reference)
            yield item, _fetched(self.ray, reference)._replace(tries=tries)


def _spread(
    workers: Workers,
    items: Sequence[T],
    on_done: Callable[[T, Outcome], None],
    on_died: Callable[[T, int], None],
    stop: Callable[[], bool],
    retries: int,
) -> None:
    """Keep all workers busy until every item is done, tried too often, or all is stopped."""
    waiting = deque((item, 1) for item in items)
    while (waiting or workers.running) and not stop():
        while waiting and len(workers.running) < workers.most:
            workers.send(*waiting.popleft())
        for item, outcome in workers.ended(1, SECONDS):
            if isinstance(outcome.error, Died) and outcome.tries <= retries:
                on_died(item, outcome.tries)
                waiting.appendleft((item, outcome.tries + 1))
            else:
                on_done(item, outcome)
    for item, outcome in workers.ended(len(workers.running), 0.0):  # when all is stopped, some may just have ended
        if isinstance(outcome.error, Died):
            on_died(item, outcome.tries)
        else:
            on_done(item, outcome)


def _fetched(ray: Any, reference: Any) -> Outcome:
    """What a worker has sent, or that it died."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:  # an outcome that cannot be sent
        return Outcome(error=error)
    except ray.exceptions.RayError as error:
        return Outcome(error=Died(str(error).partition("\n")[0]))
