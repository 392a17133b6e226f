"""Set-up shared by all tests. It must not import sqair: the jaxtyping plugin works on the first import of it."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

# Before jax is imported, and inherited by the commands that tests start. Programs that took long to compile are kept
# between workers and runs. Tests compile much and compute little: without optimisation compiling takes a third of the
# time, running three times as long. `jax.jit(f, compiler_options={"xla_backend_optimization_level": 3})` undoes it.
# The older code generator of jax 0.10 halves time and memory once more; jax 0.12 has only the newer, and ignores this.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters",
)

import jax
import pytest
from hypothesis import HealthCheck, settings

# The first example of a property pays for a compilation, so no deadline. CI tries the same examples every time.
COMMON = {"deadline": None, "max_examples": 30, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("local", **COMMON)
settings.register_profile("same", derandomize=True, database=None, **COMMON)
settings.load_profile("same" if os.environ.get("CI") else "local")


@pytest.fixture(scope="module", autouse=True)
def release_programs() -> Iterator[None]:
    """Forget what a file compiled. Every program holds memory mappings, and a process may have only 65,530 of them.

    Without this a worker ends with tens of thousands, and one that gets too many files dies in the compiler.
    """
    yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture
def x64() -> Iterator[None]:
    """Arrays made while the test runs are float64 and int64; everywhere else jax keeps its 32 bits."""
    with jax.enable_x64(True):
        yield
