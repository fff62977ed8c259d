"""The stage ``decision_trees``: a method on a family of decision trees, many seeds."""

from collections.abc import Sequence

from threespo.decision_trees.settings import DecisionTreeSettings
from threespo.methods.registry import job_options, method_module
from threespo.paths import Paths
from threespo.pipeline.stage import Outputs, Stage
from threespo.study.config import Study
from threespo.study.matrix import decision_tree_rows


def run(settings: DecisionTreeSettings) -> None:
    """Train the row."""
    from threespo.decision_trees.train import train_on_family

    train_on_family(settings)


def decision_tree_settings(study: Study, paths: Paths, name: str) -> DecisionTreeSettings:
    """Return what trains the row ``name`` (FAMILY/METHOD) on decision trees."""
    section = study.laboratory
    assert section is not None
    family, row = name.split("/")
    entry = section.methods[row]
    return DecisionTreeSettings(
        paths=paths,
        family=family,
        name=row,
        trees=section.families[family],
        method=entry.method,
        options=job_options(entry.method, entry.options),
        learning_rates=section.learning_rates,
        seeds=section.seeds,
        tuning_seeds=section.tuning_seeds,
    )


def decision_tree_outputs(paths: Paths, name: str) -> Outputs:
    """Return what training the row ``name`` (FAMILY/METHOD) of the section ``laboratory`` writes."""
    family, row = name.split("/")
    return Outputs({"row": [paths.decision_trees(family, row)]})


def list_method_module(study: Study, name: str) -> Sequence[str]:
    """Return the module that a row's method is found in."""
    assert study.laboratory is not None
    _, row = name.split("/")
    return (method_module(study.laboratory.methods[row].method),)


STAGE = Stage(
    summary="try a method on decision trees, many seeds",
    run=run,
    arguments=("family", "method"),
    pattern="{family}/{method}",
    jobs=lambda study: ["/".join(row) for row in decision_tree_rows(study)],
    settings=decision_tree_settings,
    inputs=lambda *_: {},
    outputs=decision_tree_outputs,
    extra_modules=list_method_module,
)
