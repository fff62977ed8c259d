"""Notes every function of the package that a process calls, if TRACED names a folder: kernels of notebooks among them.

Python imports this file by itself when its folder is on PYTHONPATH.
"""

import atexit
import inspect
import json
import os
import sys
import threading
import uuid
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PACKAGE = os.environ.get("TRACED_PACKAGE", "/nowhere") + os.sep

_called: dict[int, CodeType] = {}
"""By identity, which also keeps them: a code object's hash is computed anew from all of its bytes, at every call."""


def begin() -> None:
    """Note what is called from now on, in all threads."""
    _called.clear()
    if sys.version_info >= (3, 12):
        monitoring = sys.monitoring
        monitoring.use_tool_id(monitoring.PROFILER_ID, "threespo tests")
        monitoring.register_callback(monitoring.PROFILER_ID, monitoring.events.PY_START, _started)
        monitoring.set_events(monitoring.PROFILER_ID, monitoring.events.PY_START)
    else:
        threading.settrace(_traced)
        sys.settrace(_traced)


def write(folder: Path) -> None:
    """Write down which functions of the package were called: file, first line and name of each."""
    # Other threads may go on, and so does this one: of what is called from here on nothing is needed.
    sys.settrace(None)
    codes = [code for code in [*_called.values()] if _is_function_of_package(code)]
    found = sorted({(code.co_filename, code.co_firstlineno, code.co_qualname) for code in codes})
    (folder / f"{uuid.uuid4()}.json").write_text(json.dumps(found))


def _is_function_of_package(code: CodeType) -> bool:
    # Bodies of modules and classes are no functions, and templates are compiled, too.
    is_function = code.co_flags & inspect.CO_NEWLOCALS and code.co_flags & inspect.CO_OPTIMIZED
    return (
        bool(is_function) and code.co_filename.startswith(PACKAGE) and code.co_filename.endswith(".py")
    )


def _started(code: CodeType, _: int) -> Any:
    _called.setdefault(id(code), code)
    return sys.monitoring.DISABLE


def _traced(frame: FrameType, event: str, _: Any) -> None:
    code = frame.f_code
    if id(code) not in _called:
        _called[id(code)] = code


if os.environ.get("TRACED"):
    begin()
    atexit.register(write, Path(os.environ["TRACED"]))
