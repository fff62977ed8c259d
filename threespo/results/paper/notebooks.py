"""The notebook stage: executes one notebook with the study's tables as its input."""

import sys

from threespo.errors import InputError
from threespo.files import replace_file
from threespo.results.settings import NotebookSettings


def execute(settings: NotebookSettings) -> None:
    """Execute a notebook; it writes its figures, and the executed copy is saved with the study's results.

    Raises:
        InputError: if a cell of the notebook fails; figures that later cells would draw stay as they were.
    """
    import papermill
    from papermill.exceptions import PapermillExecutionError

    paths = settings.paths
    folders = {"tables": str(paths.tables), "figures": str(paths.figures)}
    parameters = {**folders, **settings.parameters}
    try:
        with replace_file(paths.notebook(settings.name)) as out:
            source = _escape_braces(settings.source)
            copy = _escape_braces(str(out))
            papermill.execute_notebook(
                source, copy, parameters, kernel_name="python3", progress_bar=False
            )
    except PapermillExecutionError as error:
        raise InputError(
            f"{settings.source}: a cell failed on the tables in {paths.tables}\n{error}"
        ) from error
    print(f"notebook {settings.name}: {paths.notebook(settings.name)}", file=sys.stderr)


def _escape_braces(path: str) -> str:
    # Papermill replaces names in braces in a path by parameters.
    return path.replace("{", "{{").replace("}", "}}")
