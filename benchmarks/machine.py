"""What a result says about the machine and the versions that it was measured with."""

import os
import platform
from typing import Any


def machine(*packages: str) -> dict[str, Any]:
    """Return processor, load (running and waiting processes, mean of the last minute), system, and package versions."""
    # Imported late: a benchmark that measures its memory asks at its end.
    from threespo.results.provenance import processor, version_of

    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: version_of(name) for name in packages},
    }
