"""What a reader must know about a study before comparing it with the paper."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from threespo.envs.optional_splits import DEVELOPMENT
from threespo.envs.registry import ENVIRONMENTS, presentation
from threespo.envs.spec import split_purpose
from threespo.results.analysis.rates import Row, warn_of_edges
from threespo.results.labels import label
from threespo.results.paper_numbers import PAPER_COLUMNS
from threespo.study.confirmatory import MIN_SEEDS

if TYPE_CHECKING:
    from threespo.study.config import Study


def list_caveats(study: "Study", mark: str = "", edges: Mapping[Row, str] | None = None) -> list[str]:
    """Return sentences on what makes a study's numbers differ from the paper's, whatever the methods do.

    Args:
        study: the study.
        mark: what is to be said of its mark as confirmatory; empty without one.
        edges: the rows whose learning rate is at an edge of what was tried, with the edge.
    """
    sentences = [mark] if mark else []
    splits = {split for env in study.environments for split in study.at(env).evaluation.splits}
    if DEVELOPMENT in {split_purpose(split) for split in splits}:
        sentences.append(
            "Judged on panels for development, on which variants are chosen: what is best here may be best by chance, and "
            "only another study can confirm it."
        )

    weaknesses = {policy.weakness for policy in study.policies.values() if policy.kind == "tiny"}
    if "planted" in weaknesses:
        sentences.append(
            "The policy is a tiny model made for this study, not the paper's. Its base was first cloned from a "
            "scripted expert until it plays well (the strong clone, shown as the ceiling) and then, unless that wins "
            "little, made careless on purpose: part of what training gains is the un-learning of injected habits. Compare "
            "signs and orders with the paper, not sizes."
        )
    if "early" in weaknesses:
        sentences.append(
            "A base of weakness 'early' is a tiny model made for this study, too. Its cloning was stopped early, and no "
            "errors were injected; the strong clone is where the same cloning ends."
        )

    sentences += _describe_warm_starts(study)
    for env, section in study.environments.items():
        sentences += presentation(env).caveats(section)

    few_seeds = warn_of_few_seeds(study)
    if few_seeds:
        sentences.append(few_seeds)

    penalties = {env: study.at(env).training.inadmissible_penalty for env in study.environments}
    if any(penalties.values()):
        penalty = _by_environment({env: f"{value:g}" for env, value in penalties.items()})
        sentences.append(
            f"From the advantage of every inadmissible action that a method trains on, {penalty} is subtracted. That "
            "is not the same for all: RLOO's advantages are undivided, some six times GRPO's, and "
            "3SPO trains on fewer responses, as it skips groups of equal rewards. The paper has no such term."
        )

    sentences.append(_describe_learning_rates(study))
    at_edge = warn_of_edges(edges or {})
    if at_edge:
        sentences.append(at_edge)
    sentences.append(_describe_missing_rows(study))
    return sentences


def _describe_warm_starts(study: "Study") -> list[str]:
    """Return a sentence for each pretrained policy whose base was cloned first."""
    sentences = []
    for name, policy in study.policies.items():
        warm = policy.warm_start
        if warm is None:
            continue
        bases = f"its {policy.bases} bases are" if policy.bases > 1 else "its base is"
        sentences.append(
            f"{name} is a pretrained model ({policy.source}); {bases} that model, cloned on {warm.examples:,} "
            "demonstrations of a scripted expert before any method trains it. The paper's methods begin with the model as "
            "it was published. Its faults are what it has not learned: none were injected, and there is no strong clone "
            "beside it."
        )
    return sentences


def warn_of_few_seeds(study: "Study") -> str | None:
    """Return one line on a study whose training seeds are too few for verdicts; ``None`` if they are enough."""
    if len(study.seeds) >= MIN_SEEDS:
        return None
    return (
        f"{_count_seeds(len(study.seeds))}: intervals and verdicts need at least "
        f"{MIN_SEEDS}, so no method is said to be above another. Give the study more 'seeds'."
    )


def _count_seeds(count: int) -> str:
    return f"{count} training seed{'s' if count > 1 else ''}"


def _describe_learning_rates(study: "Study") -> str:
    if study.tuning:
        grid = ", ".join(f"{rate:g}" for rate in study.tuning.learning_rates)
        sentence = (
            f"Every method's learning rate is the best of {grid} on the calibration tasks, after trials of "
            f"{study.tuning.generations:,} generations: the same small search for all, with "
            f"{_count_seeds(len(study.tuning.seeds))} a rate."
        )
        if study.tuning.max_extensions:
            sentence += (
                f" A method whose best rate was at an edge tried up to {study.tuning.max_extensions} more beyond it, "
                "until a worse one or the untrained base was on both sides."
            )
        return sentence

    rates = {}
    for env in study.environments:
        entries = study.at(env).methods.items()
        rates[env] = ", ".join(f"{name}: {entry.learning_rate:g}" for name, entry in entries)
    return (
        f"Learning rates are given in the study ({_by_environment(rates)}); this study does not search for them, one "
        "with 'tuning' does."
    )


def _by_environment(values: dict[str, str]) -> str:
    """Return the one value of all environments, or every environment's own."""
    if len(set(values.values())) == 1:
        return next(iter(values.values()))
    return "; ".join(f"{value} in {label(env)}" for env, value in values.items())


def _describe_missing_rows(study: "Study") -> str:
    """Return a sentence on the rows and environments of the paper's main table that the study lacks."""
    in_paper = [env for env in ENVIRONMENTS if any(column[0] == env for column in PAPER_COLUMNS)]
    in_study = [env for env in in_paper if env in study.environments]
    if not in_study:
        return "The paper has no results in this study's environments."
    present = f"{label(in_study[0])} and " if len(in_study) == 1 else ""
    missing = "".join(f" and {label(env)}" for env in in_paper if env not in in_study)
    return f"Of the paper's main table only {present}the methods above are run; its other rows{missing} are not."
