"""What a reader must know about a study before comparing it with the paper."""

from typing import TYPE_CHECKING

from threespo.envs.optional_splits import DEVELOPMENT
from threespo.envs.registry import ENVIRONMENTS, presentation
from threespo.envs.spec import split_purpose
from threespo.results.labels import label
from threespo.results.paper_numbers import PAPER_COLUMNS
from threespo.study.confirmatory import MIN_SEEDS

if TYPE_CHECKING:
    from threespo.study.config import Study


def list_caveats(study: "Study", mark: str = "") -> list[str]:
    """Return sentences on what makes a study's numbers differ from the paper's, whatever the methods do.

    Args:
        study: the study.
        mark: what is to be said of its mark as confirmatory; empty without one.
    """
    known = [mark] if mark else []
    chosen_on = {split for env in study.environments for split in study.at(env).evaluation.splits}
    if DEVELOPMENT in {split_purpose(split) for split in chosen_on}:
        known.append(
            "Judged on panels for development, on which variants are chosen: what is best here may be best by chance, and "
            "only another study can confirm it."
        )
    weaknesses = {policy.weakness for policy in study.policies.values() if policy.kind == "tiny"}
    if "planted" in weaknesses:
        known.append(
            "The policy is a tiny model made for this study, not the paper's. Its base was first cloned from a "
            "scripted expert until it plays well (the strong clone, shown as the ceiling) and then, unless that wins "
            "little, made careless on purpose: part of what training gains is the un-learning of injected habits. Compare "
            "signs and orders with the paper, not sizes."
        )
    if "early" in weaknesses:
        known.append(
            "A base of weakness 'early' is a tiny model made for this study, too. Its cloning was stopped early, and nobody "
            "injected its faults; the strong clone is where the same cloning ends."
        )

    for env, section in study.environments.items():
        known += presentation(env).caveats(section)

    if few := warn_of_few_seeds(study):
        known.append(few)

    penalties = {env: study.at(env).training.inadmissible_penalty for env in study.environments}
    if any(penalties.values()):
        costs = _each({env: f"{penalty:g}" for env, penalty in penalties.items()})
        known.append(
            f"Inadmissible actions cost {costs} of advantage wherever a method trains on "
            "one. That is not the same for all: RLOO's advantages are undivided, some six times GRPO's, and "
            "3SPO trains on fewer responses, as it skips groups of equal rewards. The paper has no such term."
        )

    known.append(_rates_in_words(study))
    known.append(_rest_of_the_table(study))
    return known


def warn_of_few_seeds(study: "Study") -> str | None:
    """Return one line on a study whose training seeds are too few for verdicts; ``None`` if they are enough."""
    if len(study.seeds) >= MIN_SEEDS:
        return None
    return (
        f"{len(study.seeds)} training seed{'s' * (len(study.seeds) > 1)}: intervals and verdicts need at least "
        f"{MIN_SEEDS}, so no method is said to be above another. Give the study more 'seeds'."
    )


def _rates_in_words(study: "Study") -> str:
    if study.tuning:
        grid = ", ".join(f"{rate:g}" for rate in study.tuning.learning_rates)
        return (
            f"Every method's learning rate is the best of {grid} on the calibration tasks, after trials of "
            f"{study.tuning.generations:,} generations: the same small search for all, with "
            f"{len(study.tuning.seeds)} training seed{'s' * (len(study.tuning.seeds) > 1)} a rate."
        )
    rates = _each({env: _rates_of(study, env) for env in study.environments})
    return f"Learning rates stand in the study ({rates}); this study does not search for them, one with 'tuning' does."


def _rates_of(study: "Study", env: str) -> str:
    return ", ".join(f"{name}: {entry.learning_rate:g}" for name, entry in study.at(env).methods.items())


def _each(values: dict[str, str]) -> str:
    """Return the one value of all environments, or every environment's own."""
    if len(set(values.values())) == 1:
        return next(iter(values.values()))
    return "; ".join(f"{value} in {label(env)}" for env, value in values.items())


def _rest_of_the_table(study: "Study") -> str:
    """Return a sentence on the rows and environments of the paper's main table that the study lacks."""
    in_paper = [env for env in ENVIRONMENTS if any(column[0] == env for column in PAPER_COLUMNS)]
    here = [env for env in in_paper if env in study.environments]
    if not here:
        return "The paper has no results in this study's environments."
    there = f"{label(here[0])} and " if len(here) == 1 else ""
    missing = "".join(f" and {label(env)}" for env in in_paper if env not in here)
    return f"Of the paper's main table only {there}the methods above are run; its other rows{missing} are not."
