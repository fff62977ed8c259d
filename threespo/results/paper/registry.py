"""Which function makes which table of the catalogue, from the study's tables."""

from collections.abc import Callable, Mapping

import pandas as pd

from threespo.results.paper import result_tables
from threespo.results.paper.compute import compute_table, read_compute
from threespo.results.paper.hyperparameters import hyperparameter_table
from threespo.results.paper.limitations import limitations_table, read_limitations
from threespo.results.paper.reader_table import PaperTable

MAKERS: dict[str, Callable[[Mapping[str, pd.DataFrame]], PaperTable]] = {
    "main_table": lambda tables: result_tables.main_table(tables["cells"]),
    "ablation": lambda tables: result_tables.ablation(tables["cells"]),
    "thresholds": lambda tables: result_tables.thresholds(tables["cells"]),
    "alpha": lambda tables: result_tables.alpha(tables["cells"]),
    "efficiency": lambda tables: result_tables.efficiency(tables["cells"]),
    "hyperparameters": lambda tables: hyperparameter_table(tables["hyperparameters"]),
    # Two of them also need numbers of the paper that no table of the study has.
    "compute": lambda tables: compute_table(
        tables["metrics"], tables["timing"], tables["stages"], tables["provenance"], read_compute()
    ),
    "limitations": lambda tables: limitations_table(
        tables["claims"], tables["metrics"], read_limitations()
    ),
}
"""By the item's name; a notebook of that name writes the files."""
