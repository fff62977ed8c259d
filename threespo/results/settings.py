"""The settings of the jobs that make tables, notebooks and the report."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import SerializeAsAny

from threespo.job_settings import JobSettings
from threespo.paths import JobId
from threespo.settings import Execution, select_key_fields
from threespo.study.config import Study


class ResultSettings(JobSettings):
    """Tables and report: the whole study, since its labels stand in them."""

    study: SerializeAsAny[Study]
    jobs: Annotated[tuple[JobId, ...], Execution] = ()
    """All jobs of the study, whose records say what they took and where they ran. They follow from the study."""
    accepted: tuple[str, ...] = ()
    """The changes of code that results have been accepted through, as tables and report show them."""
    mark: str = ""
    """What is to be said of the study's mark as confirmatory; empty without one."""

    def key(self) -> dict[str, Any]:
        """Return the study with its labels, and the order of its rows, which JSON objects do not keep."""
        rows: list[Mapping[str, Any]] = [self.study.policies, self.study.agents, self.study.methods]
        if self.study.laboratory:
            rows += [self.study.laboratory.families, self.study.laboratory.methods]
        order = [list(names) for names in rows]
        study = select_key_fields(self.study, without=(Execution,))
        said = {"mark": self.mark, "accepted": self.accepted}
        return {"order": order, "study": study, **said, "gpus": self.gpus, "ranks": self.ranks}


class NotebookSettings(JobSettings):
    """A notebook."""

    name: str
