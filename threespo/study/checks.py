"""What a study's fields must fulfil together. (What one field must be by itself stands with the field.)"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from pydantic import ValidationError

from threespo.envs.optional_splits import CONFIRMATION
from threespo.envs.registry import ENVIRONMENTS, environment
from threespo.envs.spec import split_purpose
from threespo.errors import format_names
from threespo.imitation.settings import SIZES
from threespo.methods.registry import check_options, has_critic, searches
from threespo.paths import REFERENCE_METHODS
from threespo.policy.settings import VLLM_TEMPERATURES, is_vllm_temperature
from threespo.runs.training_settings import PolicyScale, TrainingSettings
from threespo.study.config import CreditEntry, Study, StudyAt
from threespo.study.confirmatory import MIN_SEEDS
from threespo.study.explain import explain_error, field_name
from threespo.study.old_names import explain_old_options
from threespo.study.paper_rows import paper_rows


def find_problems(study: Study) -> list[str]:
    """Return what is wrong with a study, each as ``FIELD: what was found and what is expected``."""
    # Later checks take for granted what earlier ones have found in order.
    first = (_environments, _methods, _differences, _in_environments, _parts)
    for check in (*first, _agents, _policies, _scale, _sections, _of_environments, _of_paper, _marked):
        found = list(check(study))
        if found:
            return found
    return []


def confirmatory_problems(study: Study) -> Iterator[str]:
    """Yield why a study cannot be confirmatory, in the same form."""
    for env in study.environments:
        judged = study.at(env).evaluation
        for split in dict.fromkeys((*judged.splits, str(judged.learning.split))):
            if (found := split_purpose(split)) != CONFIRMATION:
                panels = (
                    ", ".join(
                        name for name in environment(env).splits if split_purpose(name) == CONFIRMATION
                    )
                    or "none"
                )
                yield (
                    f"evaluation.splits: {split!r} of {env} is a panel for {found}, on which choices are made; a "
                    f"confirmatory study is evaluated on panels for confirmation only (there: {panels})"
                )
    if len(study.seeds) < MIN_SEEDS:
        yield f"seeds: found {len(study.seeds)} training seeds; a verdict needs at least {MIN_SEEDS}"


def edge_problems(study: Study) -> Iterator[str]:
    """Yield why a new mark would be lost for rows whose best learning rate is at an edge; earlier marks stay as they are."""
    if study.tuning and not study.tuning.max_extensions:
        yield (
            "tuning.max_extensions: found 0; a row whose best rate is at an edge of the grid confirms nothing, so give the "
            "number of rates that may be tried beyond it, such as 3"
        )


class _NamesMethod(Protocol):
    @property
    def method(self) -> str: ...

    @property
    def options(self) -> dict[str, Any]: ...


def _check_entries(where: str, entries: Mapping[str, _NamesMethod]) -> Iterator[str]:
    """Yield entries that name no method, or give options that the method does not have."""
    for name, entry in entries.items():
        gone = explain_old_options(entry.method, entry.options)
        if gone:
            yield f"{where}.{name}: {gone}"
            continue

        try:
            check_options(entry.method, entry.options)
        except ValueError as error:
            yield f"{where}.{name}: {error}"


def _environments(study: Study) -> Iterator[str]:
    if not study.environments:
        yield f"study: expected a section for one of {', '.join(ENVIRONMENTS)} or for several, found none"
    known = {split for name in ENVIRONMENTS for split in environment(name).splits}
    for split in study.evaluation.splits:
        if split not in known:
            yield f"evaluation.splits: {split!r} is no environment's; there are {', '.join(sorted(known))}"
    unseen = known - {"train"}
    curves = study.evaluation.learning.split
    if curves is not None and curves not in unseen:
        there = ", ".join(sorted(unseen))
        yield f"evaluation.learning.split: {curves!r} is no environment's split of unseen games; there are {there}"
    for env, section in study.environments.items():
        here = section.splits or environment(env).splits
        for split in study.evaluation.splits:
            # Real data have no panels of their own; there the published splits take their place.
            if section.source == "embedded" and split in environment(env).splits and split not in here:
                yield f"evaluation.splits: {env} has no tasks in {split!r}; say how many, beside those of {', '.join(here)}"


def _scale(study: Study) -> Iterator[str]:
    """Check stages of ZeRO, which may stand with the study, an environment or a policy."""
    for name, policy in study.policies.items():
        if policy.kind == "endpoint":
            given = [field for field in PolicyScale.model_fields if getattr(policy, field) is not None]
            if given:
                yield f"policies.{name}.{given[0]}: an endpoint is not trained; leave it out"
            continue
        for env in study.environments:
            training = policy.scaled(study.at(env).training)
            where = (
                f"policies.{name}.zero_stage" if policy.zero_stage is not None else "training.zero_stage"
            )
            if training.zero_stage == 0 and policy.dtype == "bfloat16":
                yield (
                    f"{where}: found 0 for {name!r} with dtype bfloat16; give 1 or more, or leave it out: at stage 0 "
                    "DeepSpeed adds up gradients in bfloat16 and counts its own start as Adam's first step"
                )
            if training.zero_stage == 0 and training.offload_optimizer:
                yield f"{where}: found 0 for {name!r} with offload_optimizer, which stage 0 cannot; give 1 or more"


def _marked(study: Study) -> Iterator[str]:
    yield from confirmatory_problems(study) if study.confirmatory else ()


def _differences(study: Study) -> Iterator[str]:
    """Check what an environment's section changes of the study."""
    for env, section in study.environments.items():
        for name in sorted(set(section.methods) - set(study.methods)):
            yield f"{env}.methods.{name}: no such entry in the study's 'methods'; there are {format_names(study.methods)}"
        if "threads" in section.training:
            yield f"{env}.training.threads: the same in all environments; set it in 'training'"
        yield from _own_budget(study, env, section.training)
        if study.tuning and any(other.learning_rate for other in section.methods.values()):
            yield f"{env}.methods: remove the learning rates, 'tuning' chooses them"


def _own_budget(study: Study, env: str, own: Mapping[str, Any]) -> Iterator[str]:
    """Check that an environment with a budget of its own counts it as the study does: in generations."""
    if own.get("epochs") is not None:
        yield f"{env}.training.epochs: the same in all environments; set it in 'training'"
    if study.training.epochs is not None and own.get("generations") is not None:
        yield f"{env}.training.generations: the study's budget is {study.training.epochs} epochs; leave one of the two out"
    if study.training.generations is not None and own.get("generations", 1) is None:
        yield f"{env}.training.generations: found null; give a number, or leave it out for that of the study"


def _methods(study: Study) -> Iterator[str]:
    yield from _check_entries("methods", study.methods)
    for name, entry in study.methods.items():
        if name in REFERENCE_METHODS:
            yield f"methods.{name}: this name is taken by the untrained policies; choose another"
        # The rate comes from the entry or from the trials, never from both.
        if (entry.learning_rate is None) != (study.tuning is not None):
            remedy = (
                "remove it, 'tuning' chooses it"
                if study.tuning
                else "give it, or the section 'tuning' to choose it"
            )
            yield f"methods.{name}.learning_rate: found {entry.learning_rate}; {remedy}"


def _in_environments(study: Study) -> Iterator[str]:
    """Check what holds in each environment, with its differences."""
    for env in study.environments:
        try:
            here = study.at(env)
        except ValidationError as error:
            yield from (
                f"{env}.training.{field_name(item)}: {explain_error(item, TrainingSettings)}"
                for item in error.errors()
            )
            continue
        yield from _pool(study, env, here)
        yield from _snapshots(study, env, here)
        changed = study.environments[env].methods
        yield from _check_entries(f"{env}.methods", {name: here.methods[name] for name in changed})
        for name, entry in here.methods.items():
            # Searches update after every state; mini-batches exist only for what is kept until the epoch's end.
            if (
                searches(entry.method)
                and entry.minibatch
                and entry.options.get("update_unit") != "epoch"
            ):
                yield f"methods.{name}.minibatch: a search has mini-batches with 'update_unit: epoch' only (not so in {env})"


def _pool(study: Study, env: str, here: StudyAt) -> Iterator[str]:
    if here.training.pool_by_seed and here.training.pool is None:
        yield f"training.pool_by_seed: found true, but every run in {env} has all games: give 'training.pool' a number"
    most = here.settings.most_training_tasks
    pool = here.training.pool
    if most is not None and pool is not None and pool > most[1]:
        where = f"{env}.training.pool" if "pool" in here.settings.training else "training.pool"
        yield f"{where}: found {pool}, but {env}.{most[0]} is {most[1]}; lower the pool, or give more tasks to draw from"


def _snapshots(study: Study, env: str, here: StudyAt) -> Iterator[str]:
    training = here.training
    learning = here.evaluation.learning
    where = (
        f"{env}.training.snapshots" if "snapshots" in here.settings.training else "training.snapshots"
    )
    if training.snapshots > training.budget:
        yield (
            f"{where}: found {training.snapshots}, but the budget has not so many parts: it is of "
            f"{training.budget:,} {training.budget_unit} in {env}; lower it, or raise the budget"
        )
    if study.probe and study.probe.snapshots > training.snapshots:
        found = study.probe.snapshots
        yield f"probe.snapshots: found {found}, but {where} is {training.snapshots}, and a probe starts from those"

    known = here.settings.tasks_in(learning.split or "")
    if known and learning.games is not None and learning.games > known[1] and training.snapshots:
        yield (
            f"evaluation.learning.games: found {learning.games}, but {env}.{known[0]} is {known[1]}; lower it, or leave it "
            "out for as many as there are"
        )


def _parts(study: Study) -> Iterator[str]:
    """Check that parts name what the study has, and leave every environment a row."""
    for part, scope in study.parts.items():
        for field, known in (("environments", study.environments), ("policies", study.policies)):
            for name in sorted(set(getattr(scope, field) or ()) - known.keys()) if scope else ():
                yield f"parts.{part}.{field}: the study has no {name!r}; there are {format_names(known)}"
    for env in study.environments:
        if not any(
            study.covers(entry.parts, env, policy)
            for entry in study.methods.values()
            for policy in study.policies
        ):
            yield f"parts: no entry of 'methods' is run in {env}; widen a part, or remove the environment with {env}: null"


def _agents(study: Study) -> Iterator[str]:
    for name, agent in study.agents.items():
        if name in (*REFERENCE_METHODS, *study.methods):
            yield f"agents.{name}: this name is taken by a method or an untrained policy; choose another"
        for policy in sorted(set(agent.policies or ()) - set(study.policies)):
            yield f"agents.{name}.policies: no policy {policy!r}; there are {format_names(study.policies)}"


def _policies(study: Study) -> Iterator[str]:
    for name, policy in study.policies.items():
        if policy.size not in SIZES:
            yield f"policies.{name}.size: no size {policy.size!r}; there are {', '.join(SIZES)}"
        players = [
            agent for agent in study.agents.values() if agent.policies is None or name in agent.policies
        ]
        if policy.sampling(study.gpus_per_rank).sampler == "vllm":
            yield from _temperatures(study, name)
        if policy.kind == "endpoint" and not players:
            yield f"policies.{name}: an endpoint is not trained, and no entry of 'agents' plays it"
    if all(policy.kind == "endpoint" for policy in study.policies.values()):
        yield "policies: expected at least one that can be trained, found endpoints only"


def _temperatures(study: Study, policy: str) -> Iterator[str]:
    for env in study.environments:
        here = study.at(env)
        asked = {
            "training.temperature": here.training.temperature,
            "evaluation.temperature": here.evaluation.temperature,
        }
        for where, temperature in asked.items():
            if not is_vllm_temperature(temperature):
                yield f"{where}: found {temperature} in {env}; {VLLM_TEMPERATURES}, or set policies.{policy}.sampler: torch"


def _sections(study: Study) -> Iterator[str]:
    if study.laboratory:
        yield from _check_entries("laboratory.methods", study.laboratory.methods)
    if study.probe:
        searching = [name for name, entry in study.methods.items() if searches(entry.method)]
        for name in sorted(set(study.probe.methods) - set(searching)):
            yield f"probe.methods: {name!r} is not an entry of 'methods' that searches; there are {format_names(searching)}"
        if study.probe.seeds > len(study.seeds):
            yield f"probe.seeds: found {study.probe.seeds}, but the study has {len(study.seeds)} training seeds ('seeds')"
    if study.credit_audit:
        yield from _credit_audit(study, study.credit_audit)
    if study.tuning:
        # A rate chosen on a seed of the study would favour that seed's run.
        shared_seeds = set(study.tuning.seeds) & set(study.seeds)
        if shared_seeds:
            yield f"tuning.seeds: {min(shared_seeds)} is one of the study's seeds; choose another"
        unseen = {split for env in study.environments for split in environment(env).splits} - {"train"}
        for split in sorted(set(study.tuning.splits) - unseen):
            there = ", ".join(sorted(unseen))
            yield f"tuning.splits: {split!r} is no environment's split of unseen games; there are {there}"


def _credit_audit(study: Study, audit: CreditEntry) -> Iterator[str]:
    can_be_audited = [name for name, entry in study.methods.items() if not has_critic(entry.method)]
    for name in sorted(set(audit.methods or ()) - set(can_be_audited)):
        yield (
            f"credit_audit.methods: {name!r} is not an entry of 'methods' without a critic, which no audit trains; "
            f"there are {format_names(can_be_audited)}"
        )
    if audit.seeds > len(study.seeds):
        yield f"credit_audit.seeds: found {audit.seeds}, but the study has {len(study.seeds)} training seeds ('seeds')"
    for env, section in study.environments.items():
        most = section.most_training_tasks
        if most is not None and audit.tasks > most[1]:
            yield f"credit_audit.tasks: found {audit.tasks}, but {env}.{most[0]} is {most[1]}; lower one or raise the other"


def _of_paper(study: Study) -> Iterator[str]:
    """Check the labels that rows of the paper's tables are found by."""
    rows = paper_rows()
    if rows is None:
        return
    for name, policy in study.policies.items():
        if policy.stands_for not in rows.base_models:
            yield (
                f"policies.{name}.stands_for: no base model {policy.stands_for!r} in {rows.file}; "
                f"there are {', '.join(rows.base_models)}"
            )
    for section, entries in (("methods", study.methods), ("agents", study.agents)):
        for name, entry in entries.items():
            if entry.paper_row is not None and entry.paper_row not in rows.methods:
                yield (
                    f"{section}.{name}.paper_row: no row {entry.paper_row!r} in {rows.file}; "
                    f"there are {', '.join(rows.methods)}, or null for a row that the paper lacks"
                )


def _of_environments(study: Study) -> Iterator[str]:
    """Let every environment name what its tiny policies, and its clones, could not learn."""
    has_tiny = any(policy.kind == "tiny" for policy in study.policies.values())
    warm = [name for name, policy in study.policies.items() if policy.warm_start is not None]
    if not has_tiny and not warm:
        return
    for env, section in study.environments.items():
        spec = environment(env)
        if not spec.has_curriculum and not has_tiny:
            yield f"policies.{warm[0]}.warm_start: {env} has no curriculum, and so no expert to imitate; leave it out"
        elif not spec.has_curriculum:
            yield f"policies: {env} has no curriculum, and so no tiny policy; use policies of another kind"
        elif (fault := spec.explain_unlearnable(section)) is not None:
            yield f"{env}.{fault}"
