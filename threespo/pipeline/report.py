"""The stage ``report``: one page with all tables and figures of a study."""

from threespo.paths import PUBLISHED_MINI, Paths
from threespo.pipeline.of_results import result_modules, tree_files
from threespo.pipeline.stage import Files, Outputs, Stage
from threespo.results.settings import ResultSettings
from threespo.study.catalogue import ITEMS, REPORT_NUMBERS, TABLES, figures_of, notebooks_of, texts_of
from threespo.study.config import Study


def run(settings: ResultSettings) -> None:
    """Write the report."""
    from threespo.results.report.render import make_report

    make_report(settings)


def report_settings(study: Study, paths: Paths, _: str) -> ResultSettings:
    """Return what makes the report."""
    return ResultSettings(paths=paths, study=study)


def report_inputs(study: Study, paths: Paths, _: str) -> Files:
    """Return what the report reads."""
    return {
        "tables": [paths.table(name) for name in TABLES],
        "trees": tree_files(study, paths),
        "notebooks": [paths.notebook(name) for name in notebooks_of(study)],
        "figures": [paths.figure(item.name, "svg") for item in figures_of(study)],
        "texts": [paths.figure(item.name, "csv") for item in texts_of(study)],
        # Of the published study itself it is made, and not shown in it.
        "catalogue": [
            ITEMS,
            *REPORT_NUMBERS,
            *([] if study.name == PUBLISHED_MINI.stem else [PUBLISHED_MINI]),
        ],
    }


def report_outputs(paths: Paths, _: str) -> Outputs:
    """Return what the report writes."""
    return Outputs({"report": [paths.report]})


STAGE = Stage(
    summary="write the report from tables and notebooks",
    run=run,
    arguments=(),
    pattern="",
    jobs=lambda _: [""],
    settings=report_settings,
    inputs=report_inputs,
    outputs=report_outputs,
    extra_modules=result_modules,
    reusable=False,
)
