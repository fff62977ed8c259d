# Tables, executed notebooks, the report.

PAPER = ["config/paper/results.yaml", "config/paper/efficiency.csv", "config/paper/claims.yaml"]
FIGURE_3A = "config/paper/fig3a.csv"
TREES = [str(PATHS.run(run) / "trees.parquet") for run in searching_runs(STUDY)]
KINDS = ["png", "svg", "csv"]
DRAWN = {name: NOTEBOOKS[name] for name in notebooks(STUDY)}
EXECUTED_NOTEBOOKS = [str(PATHS.notebooks / f"{name}.ipynb") for name in DRAWN]


def table(name):
    return str(PATHS.tables / f"{name}.parquet")


rule tables:
    input:
        metrics=[str(PATHS.run(run) / "metrics.parquet") for run in trained_runs(STUDY)],
        training_time=[str(PATHS.run(run) / "timing.parquet") for run in trained_runs(STUDY)],
        # Of trials, too: what each rate won.
        episodes=[str(PATHS.run(run) / "evaluation.parquet") for run in RUNS.values()],
        evaluation_time=[str(PATHS.run(run) / "evaluation_timing.parquet") for run in RUNS.values()],
        task_types=[str(PATHS.run(run) / "task_types.parquet") for run in trained_runs(STUDY)],
        probes=[str(PATHS.run(run) / "probe.parquet") for run in probed_runs(STUDY)],
        trees=TREES,
        laboratory=[str(PATHS.laboratory(*row)) for row in laboratory_rows(STUDY)],
        choices=[str(PATHS.choice(*choice)) for choice in choices(STUDY)],
        paper=PAPER,
    output:
        [table(name) if name == "provenance" else update(table(name)) for name in TABLES],
    params:
        code=lambda wildcards: stages.code("tables", STUDY),
        settings=lambda wildcards: stages.tables_settings(STUDY),
    log:
        log_of("tables"),
    shell:
        "{THREESPO} tables {PATHS.study} 2>&1 | tee {log}"


# A notebook loads a table and draws it; papermill executes it with this interpreter, with the folders as parameters.
for name, parts in DRAWN.items():

    rule:
        name:
            f"notebook_{name}"
        input:
            notebook=f"notebooks/{name}.ipynb",
            tables=[table(needed) for needed in parts["tables"]],
            paper=FIGURE_3A if name == "training_curves" else [],
        output:
            notebook=str(PATHS.notebooks / f"{name}.ipynb"),
            figures=[update(str(PATHS.figures / f"{figure}.{kind}")) for figure in parts["figures"] for kind in KINDS],
        params:
            code=lambda wildcards: stages.code("figures", STUDY),
        log:
            log_of(f"notebooks/{name}"),
        shell:
            "{PYTHON} -m papermill {input.notebook} {output.notebook} --kernel python3 --no-progress-bar"
            " -p tables {PATHS.tables} -p figures {PATHS.figures} > {log} 2>&1 || {{ cat {log} >&2; exit 1; }}"


rule report:
    input:
        [table(name) for name in TABLES],
        TREES,
        EXECUTED_NOTEBOOKS,
        [str(PATHS.figures / f"{figure}.svg") for parts in DRAWN.values() for figure in parts["figures"]],
    output:
        report=update(str(PATHS.report)),
        done=touch(str(PATHS.root / "logs" / "report.done")),
    params:
        code=lambda wildcards: stages.code("report", STUDY),
        settings=lambda wildcards: stages.tables_settings(STUDY),
    log:
        log_of("report"),
    shell:
        "{THREESPO} report {PATHS.study} 2>&1 | tee {log}"
