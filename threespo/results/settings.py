"""The settings of the jobs that make tables, notebooks and the report."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, SerializeAsAny

from threespo.job_settings import JobSettings
from threespo.paths import JobId
from threespo.settings import Execution, select_key_fields
from threespo.study.config import Study


class ResultSettings(JobSettings):
    """Tables and report: the whole study, since they show its labels."""

    study: SerializeAsAny[Study]
    jobs: Annotated[tuple[JobId, ...], Execution] = ()
    """All jobs of the study, whose records say what they took and where they ran. They follow from the study."""
    accepted: tuple[str, ...] = ()
    """The changes of code that results have been accepted through, as tables and report show them."""
    mark: str = ""
    """What is said of the study's mark as confirmatory; empty without one."""

    def key(self) -> dict[str, Any]:
        """Return the fields that decide the results: the study with its labels, and the order of its rows."""
        study = self.study
        # A mapping with another order is the same JSON object, but it gives tables with another order of rows.
        rows: list[Mapping[str, Any]] = [study.policies, study.agents, study.methods]
        if study.laboratory:
            rows += [study.laboratory.families, study.laboratory.methods]
        return {
            "order": [list(names) for names in rows],
            # Labels count here: they are what tables and report show.
            "study": select_key_fields(study, without=(Execution,)),
            "mark": self.mark,
            "accepted": self.accepted,
            "gpus": self.gpus,
            "ranks": self.ranks,
        }


class NotebookSettings(JobSettings):
    """A notebook."""

    name: str
    """Of the executed copy."""
    source: str
    """The notebook's file."""
    parameters: dict[str, Any] = Field(default={})
    """What the notebook is given besides the study's folders."""
