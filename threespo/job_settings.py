"""What every job of the workflow is given: one frozen value with all that it reads, and nothing else.

What decides whether a job runs again is the same value, dumped without the fields that are marked as labels or matters of
execution. So no job can depend on a field that its key lacks. Each stage's settings lie with the code that reads them.
"""

from typing import Annotated, Any

from threespo.paths import Paths
from threespo.settings import Execution, Settings, select_key_fields


class JobSettings(Settings):
    """What every job has."""

    paths: Annotated[Paths, Execution]
    gpus: int = 0
    """GPUs that the job needs."""
    ranks: int = 1
    """Processes that do its work together; only training has several. Sums are rounded differently with another number."""
    runs_per_gpu: Annotated[int, Execution] = 1
    """Runs that may share each of them."""

    def key(self) -> dict[str, Any]:
        """Return what decides whether the job runs again, as JSON values."""
        values: dict[str, Any] = select_key_fields(self)
        return values
