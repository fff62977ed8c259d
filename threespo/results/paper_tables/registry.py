"""Which function makes which table of the catalogue, from the study's tables."""

from collections.abc import Callable, Mapping

import pandas as pd

from threespo.results.paper_tables import results
from threespo.results.paper_tables.compute import compute_table, read_compute
from threespo.results.paper_tables.hyperparameters import hyperparameter_table
from threespo.results.paper_tables.layout import PaperTable
from threespo.results.paper_tables.limitations import limitations_table, read_limitations

MAKERS: dict[str, Callable[[Mapping[str, pd.DataFrame]], PaperTable]] = {
    "main_table": lambda tables: results.main_table(tables["cells"]),
    "ablation": lambda tables: results.ablation(tables["cells"]),
    "thresholds": lambda tables: results.thresholds(tables["cells"]),
    "alpha": lambda tables: results.alpha(tables["cells"]),
    "efficiency": lambda tables: results.efficiency(tables["cells"]),
    "hyperparameters": lambda tables: hyperparameter_table(tables["hyperparameters"]),
    "compute": lambda tables: compute_table(
        tables["metrics"], tables["timing"], tables["stages"], tables["provenance"], read_compute()
    ),
    "limitations": lambda tables: limitations_table(
        tables["claims"], tables["metrics"], read_limitations()
    ),
}
"""By the item's name; a notebook of that name writes the files."""
