"""Tables on disk: parquet with the same bytes for the same content."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threespo.errors import InputError
from threespo.files import replace_file

if TYPE_CHECKING:
    import pandas as pd


def write_table(
    path: Path, rows: "Sequence[Mapping[str, Any]] | pd.DataFrame", columns: Sequence[str] | None = None
) -> None:
    """Write rows to a parquet file, whole or not at all.

    Args:
        path: the file.
        rows: a mapping per row, or a frame.
        columns: the columns in order, which are there even if there is no row; ignored for a frame.

    Raises:
        InputError: if the file cannot be written.
    """
    # Imported here: commands that read no table would wait for pandas, too.
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows), columns=columns)
    # No pandas metadata: it names library versions, and results are compared byte for byte.
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    with replace_file(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def read_table(path: Path) -> "pd.DataFrame":
    """Read a table.

    Raises:
        InputError: if it is missing or not a parquet file.
    """
    import pandas as pd
    import pyarrow as pa

    try:
        return pd.read_parquet(path)
    except (OSError, ValueError, TypeError, LookupError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{path}: not a readable table ({reason}); the workflow makes anew what is missing"
        ) from error


def select_rows(frame: "pd.DataFrame", **values: object) -> "pd.DataFrame":
    """Return the rows of a frame that have the given values in the columns of these names."""
    for column, value in values.items():
        frame = frame[frame[column] == value]
    return frame
