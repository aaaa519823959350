"""Workers shared by the tests of the mathematical verifier: each start imports SymPy, which takes over a second."""

from collections.abc import Iterator

import pytest

from groupwise.verifiers.workers import WorkerPool


@pytest.fixture(scope="session")
def symbolic_workers() -> Iterator[WorkerPool]:
    pool = WorkerPool("groupwise.verifiers.math.symbolic:judge", num_workers=2)
    yield pool
    pool.close()
