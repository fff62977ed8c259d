"""The stage ``credit``: a method's advantages beside what actions are worth, under a policy that does not change."""

from threespo.paths import Paths, Run, credit_folder
from threespo.pipeline.of_run import training_fields
from threespo.pipeline.stage import RUN_PATTERN, Files, Outputs, Stage
from threespo.pipeline.train import method_and_environment_modules
from threespo.runs.settings import AuditedPolicy, CreditRunSettings, CreditSettings
from threespo.study.config import Study
from threespo.study.matrix import credit_audits


def run(settings: CreditRunSettings) -> None:
    """Audit the credit."""
    from threespo.runs.credit import audit_credit

    audit_credit(settings)


def credit_settings(study: Study, paths: Paths, name: str) -> CreditRunSettings:
    """Return what audits ``name`` (ENV/POLICY/METHOD/seed-N/AT)."""
    run, at = _find_audit(study, name)
    section = study.credit_audit
    assert section is not None
    fields = training_fields(study, paths, run)
    # What only optimisation and the course of a run read is left at one value: other rates need no other audit.
    course = {"generations": 1, "epochs": None, "snapshots": 0, "recorded_tasks": 0}
    training = fields["training"].model_copy(update={**course, "pool": section.tasks})
    unread = {"learning_rate": None, "learning_rate_scale": 1.0, "schedule": "constant"}
    return CreditRunSettings(
        **{**fields, **unread, "training": training}, at=at, credit=CreditSettings.part_of(section)
    )


def credit_inputs(study: Study, paths: Paths, name: str) -> Files:
    """Return what the audit ``name`` (ENV/POLICY/METHOD/seed-N/AT) reads."""
    run, at = _find_audit(study, name)
    weights = paths.policy(run.env, run.policy) if at == "base" else paths.run(run).weights
    return {"data": [paths.data(run.env)], "weights": [weights]}


def credit_outputs(paths: Paths, name: str) -> Outputs:
    """Return what the audit ``name`` (ENV/POLICY/METHOD/seed-N/AT) writes."""
    run_id, at = name.rsplit("/", 1)
    files = credit_folder(paths, run_id, at)
    return Outputs({"passes": [files.passes], "rows": [files.rows]})


def credit_jobs(study: Study) -> list[str]:
    """Return the names of all audits."""
    return [_job_name(run, at) for run, at in credit_audits(study)]


def _job_name(run: Run, at: AuditedPolicy) -> str:
    return f"{run.run_id}/{at}"


def _find_audit(study: Study, name: str) -> tuple[Run, AuditedPolicy]:
    audits = {_job_name(run, at): (run, at) for run, at in credit_audits(study)}
    return audits[name]


STAGE = Stage(
    summary="compare a method's advantages with what actions are worth, under a policy that does not change",
    run=run,
    arguments=("run", "at"),
    pattern=f"{RUN_PATTERN}/{{at}}",
    jobs=credit_jobs,
    settings=credit_settings,
    inputs=credit_inputs,
    outputs=credit_outputs,
    extra_modules=lambda study, name: method_and_environment_modules(study, _find_audit(study, name)[0]),
)
