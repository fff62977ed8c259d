"""Claims that need a test of their own, in the order of the paper; ``claims.yaml`` names the functions.

A function on runs judges them in ALFWorld with the small model, for which the paper shows the course of training. A function
on episodes yields the rows of the table ``claims``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from threespo.results.claims.episodes import (
    Columns,
    judge_columns,
    judge_gain,
    judge_task_types,
    judge_two_models,
    test_equal_success,
    test_level,
    test_order,
)
from threespo.results.claims.evidence import (
    BOTH_MODELS,
    LARGE_MODEL,
    SMALL_MODEL,
    Evidence,
    RowRuns,
)
from threespo.results.claims.finding import Finding, Row
from threespo.results.claims.learning import (
    compare_mean_success,
    compare_steadiness,
    higher_column_with_higher_success,
    lead_at_shares,
)
from threespo.results.claims.searches import (
    compare_loops,
    compare_next_states,
    correlate_scores_with_success,
    test_count_bias,
    test_gated_success,
)
from threespo.results.claims.training import (
    compare_rollouts,
    compare_rollouts_of_searched_tasks,
    compare_rollouts_of_successes,
    compare_throughout,
    correlate_samples_with_failure,
    test_course,
    test_order_of_task_types,
)

STEP_BASELINES = ("grpo", "gigpo", "hgpo")
"""The methods whose training the paper shows with that of 3SPO."""

TRAINED = ("ppo", "rloo", "grpo", "gigpo", "hgpo", "3spo")
PROMPTED = ("qwen2_5", "react", "reflexion")

STATE_SCORE = "detail_state_score_visits"
"""Mean state score of the visited states of an epoch."""

HIGH_STATES = "detail_state_high_visits"
"""Share of the visits of an epoch that were to states with a score above 0.5."""

UNIFORM = "3spo_wo_adaptive_n"
"""The paper's ablation: uniform allocation, without the gate of eq. 1."""

UNIFORM_GATED = "3spo_wo_adaptive_n_gated"
"""A control that the paper lacks: it keeps the gate, so only the number of samples of open states differs from 3SPO."""

POST_TRAJECTORY = "3spo_post_trajectory"
TASK_TYPES = ("pick_and_place_simple", "look_at_obj_in_light", "pick_two_obj_and_place")
"""The task types of figure 3c, the easiest first."""


def resources_are_comparable(runs: RowRuns, evidence: Evidence) -> Finding:
    """Abstract: rollouts are what the paper counts, 1.32 times as many over equal epochs; here 1.5 times at most."""
    return compare_rollouts_of_searched_tasks(runs, evidence, "3spo", STEP_BASELINES, at_most=1.5)


def scores_fall_with_true_success(runs: RowRuns, evidence: Evidence) -> Finding:
    """Introduction: of open states, those that are won from more often have the lower score."""
    return correlate_scores_with_success(runs, evidence, "3spo")


def immediate_updates_are_steadier(runs: RowRuns, evidence: Evidence) -> Finding:
    """Introduction: updates after the trajectory are less steady."""
    return compare_steadiness(runs, evidence, "3spo", POST_TRAJECTORY)


def gap_to_prompting_widens(_: Columns, evidence: Evidence) -> Iterator[Row]:
    """Sec. 4.2: the gap between training and prompting is wider on harder task types."""
    return judge_task_types(evidence, TRAINED, PROMPTED, wider=TASK_TYPES[-1], narrower=TASK_TYPES[0])


ORDER = ("3spo", "hgpo", "gigpo", "grpo", "rloo", "ppo")


def methods_are_in_order(columns: Columns, evidence: Evidence) -> Iterator[Row]:
    """Main results: the methods in this order."""
    return judge_columns(columns, evidence, ORDER, [SMALL_MODEL], test_order)


def large_model_reaches_success(columns: Columns, evidence: Evidence) -> Iterator[Row]:
    """Sec. 4.2: absolute success with the larger model, within 2 points."""
    return judge_columns(
        columns, evidence, ("3spo",), [LARGE_MODEL], lambda setting: test_level(setting, within=2)
    )


def gain_grows_with_model(columns: Columns, evidence: Evidence) -> Iterator[Row]:
    """Sec. 4.2: the gain on HGPO grows with the model."""
    return judge_gain(columns, evidence, "3spo", "hgpo", more_with=LARGE_MODEL, than_with=SMALL_MODEL)


def gain_is_greater_with_small_model(columns: Columns, evidence: Evidence) -> Iterator[Row]:
    """Sec. 4.2 also says the opposite."""
    return judge_gain(columns, evidence, "3spo", "hgpo", more_with=SMALL_MODEL, than_with=LARGE_MODEL)


def small_model_has_longer_episodes(_: Columns, evidence: Evidence) -> Iterator[Row]:
    """Sec. 4.2: evaluated episodes have more steps with the small model."""
    rows = (*STEP_BASELINES, "3spo")
    return judge_two_models(evidence, evidence.episodes, "steps", rows, BOTH_MODELS, "steps")


def small_model_repeats_itself_more(_: Columns, evidence: Evidence) -> Iterator[Row]:
    """Sec. 4.2: more sampled steps lead back to what their path has shown with the small model."""
    return judge_two_models(
        evidence, evidence.searches, "back", ["3spo"], BOTH_MODELS, "training", scale=100.0
    )


def lead_is_sustained(runs: RowRuns, evidence: Evidence) -> Finding:
    """Figure 3a: 3SPO stays above the baselines from the first quarter of training on."""
    # Every eighth: claims on all of them have no factor for their number (``finding.combine``).
    shares = (0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
    return lead_at_shares(runs, evidence, "3spo", STEP_BASELINES, shares)


def score_stays_high_at_first(runs: RowRuns, evidence: Evidence) -> Finding:
    """Figure 3b: the mean score stays high for the first 70 of 400 epochs."""
    return test_course(
        runs, evidence, "3spo", STATE_SCORE, start=0.0, stop=0.175, change_within=0.05, at_least=0.5
    )


def score_falls_steadily(runs: RowRuns, evidence: Evidence) -> Finding:
    """Figure 3b: after that it falls steadily."""
    return test_course(runs, evidence, "3spo", STATE_SCORE, start=0.175, stop=1.0, spearman_below=-0.9)


def scores_are_ordered_by_task_type(runs: RowRuns, evidence: Evidence) -> Finding:
    """Figure 3c: scores are higher in harder task types, at a quarter, half and the end of training."""
    return test_order_of_task_types(runs, evidence, "3spo", TASK_TYPES, shares=(0.25, 0.5, 1.0))


def harder_task_types_get_more_samples(runs: RowRuns, evidence: Evidence) -> Finding:
    """Figure 3c: task types that fail more often get more samples in a state."""
    return correlate_samples_with_failure(runs, evidence, "3spo")


def uniform_allocation_is_far_below(runs: RowRuns, evidence: Evidence) -> Finding:
    """Figure 3d: 66 and 90 % after 2.0e5 of 4.5e5 rollouts; here 15 points at least, both with the gate."""
    return lead_at_shares(runs, evidence, "3spo", [UNIFORM_GATED], shares=[0.444], by=15)


def adaptive_allocation_has_more_success(runs: RowRuns, evidence: Evidence) -> Finding:
    """Figure 3d: over the same rollouts, both with the gate."""
    return compare_mean_success(runs, evidence, "3spo", [UNIFORM_GATED])


def novelty_prevents_loops(runs: RowRuns, evidence: Evidence) -> Finding:
    """Sec. 4.4: without the novelty reward more steps lead back."""
    return compare_loops(runs, evidence, "3spo_wo_novelty", "3spo")


def allocations_end_alike(columns: Columns, evidence: Evidence) -> Iterator[Row]:
    """Sec. 4.4: adaptive and uniform allocation end alike, within 5 points."""
    return judge_columns(
        columns,
        evidence,
        ("3spo", UNIFORM),
        [SMALL_MODEL],
        lambda setting: test_equal_success(setting, margin=5),
    )


def uniform_allocation_takes_more_rollouts(runs: RowRuns, evidence: Evidence) -> Finding:
    """Sec. 4.4: 7.3 times in the paper; its mean score, 0.92 falling to 0.35, allows 1.5 in a state. Here 3 at least."""
    return compare_rollouts(runs, evidence, UNIFORM, "3spo", at_least=3)


def high_score_states_are_visited_more(runs: RowRuns, evidence: Evidence) -> Finding:
    """Sec. 4.5: 75 % of the visits, and 55 to 60 % of the baselines' at first; here 10 points at least, throughout."""
    return compare_throughout(runs, evidence, HIGH_STATES, "3spo", STEP_BASELINES, by=10)


def baselines_visit_high_score_states_alike(runs: RowRuns, evidence: Evidence) -> Finding:
    """Sec. 4.5: the baselines' shares are similar, within 10 points."""
    return compare_throughout(runs, evidence, HIGH_STATES, "grpo", ["gigpo", "hgpo"], within=10)


def high_score_states_go_with_success(runs: RowRuns, evidence: Evidence) -> Finding:
    """Sec. 4.5: a higher share of such states means more efficient sampling."""
    return higher_column_with_higher_success(runs, evidence, HIGH_STATES, "3spo", STEP_BASELINES)


def tenth_visit_has_fewer_next_states(runs: RowRuns, evidence: Evidence) -> Finding:
    """Case study: the tenth visit to a state has fewer different next states than the first."""
    return compare_next_states(runs, evidence, "3spo")


def counted_rates_converge(runs: RowRuns, evidence: Evidence) -> Finding:
    """Sec. 3.5: counted success rates converge to the true ones, within 5 points."""
    return test_count_bias(runs, evidence, "3spo", bound=5)


def gated_states_are_hopeless(runs: RowRuns, evidence: Evidence) -> Finding:
    """Sensitivity: the true success of gated states is below 10 %."""
    return test_gated_success(runs, evidence, "3spo", bound=10)


def uniform_allocation_takes_more_energy(runs: RowRuns, evidence: Evidence) -> Finding:
    """Impact statement: energy was not measured, twice the rollouts for each success stand for it."""
    return compare_rollouts_of_successes(runs, evidence, UNIFORM, "3spo", at_least=2)


@dataclass(frozen=True, slots=True)
class RunCheck:
    """A test of training runs in ALFWorld, made for every base policy and preset of 3SPO."""

    function: Callable[[RowRuns, Evidence], Finding]
    label: str
    """What the table ``claims`` calls the rule."""
    rows: tuple[str, ...]
    """Rows of the paper that it compares, the one that it is about first."""
    is_rollout_ratio: bool = False
    """Whether it is about the ratio of rollouts, of the first row to the second, which the paper's efficiency table has."""


@dataclass(frozen=True, slots=True)
class EpisodeCheck:
    """A test of evaluated episodes."""

    function: Callable[[Columns, Evidence], Iterator[Row]]
    label: str
    rows: tuple[str, ...]
    models: tuple[str, ...] = ()
    """Models of the paper that it is about."""
    by_column: bool = False
    """Whether it is judged in columns of the main table, which ``claims.yaml`` gives."""


Check = RunCheck | EpisodeCheck

# The paper's gains are on HGPO, the best of its baselines.
_GAIN_ROWS = ("3spo", "hgpo")

IN_PAPERS_ORDER: tuple[Check, ...] = (
    RunCheck(resources_are_comparable, "resource", ("3spo", *STEP_BASELINES), is_rollout_ratio=True),
    RunCheck(scores_fall_with_true_success, "priority", ("3spo",)),
    RunCheck(immediate_updates_are_steadier, "steady", ("3spo", POST_TRAJECTORY)),
    EpisodeCheck(gap_to_prompting_widens, "type_gap", (*TRAINED, *PROMPTED)),
    EpisodeCheck(methods_are_in_order, "order", ORDER, (SMALL_MODEL,), by_column=True),
    EpisodeCheck(large_model_reaches_success, "level", ("3spo",), (LARGE_MODEL,), by_column=True),
    EpisodeCheck(gain_grows_with_model, "gain", _GAIN_ROWS, (LARGE_MODEL, SMALL_MODEL), by_column=True),
    EpisodeCheck(gain_is_greater_with_small_model, "gain", _GAIN_ROWS, BOTH_MODELS, by_column=True),
    EpisodeCheck(small_model_has_longer_episodes, "longer", (*STEP_BASELINES, "3spo"), BOTH_MODELS),
    EpisodeCheck(small_model_repeats_itself_more, "loops_by_size", ("3spo",), BOTH_MODELS),
    RunCheck(lead_is_sustained, "ahead", ("3spo", *STEP_BASELINES)),
    RunCheck(score_stays_high_at_first, "course", ("3spo",)),
    RunCheck(score_falls_steadily, "course", ("3spo",)),
    RunCheck(scores_are_ordered_by_task_type, "by_type", ("3spo",)),
    RunCheck(harder_task_types_get_more_samples, "priority", ("3spo",)),
    RunCheck(uniform_allocation_is_far_below, "ahead", ("3spo", UNIFORM_GATED)),
    RunCheck(adaptive_allocation_has_more_success, "area", ("3spo", UNIFORM_GATED)),
    RunCheck(novelty_prevents_loops, "loops", ("3spo_wo_novelty", "3spo")),
    EpisodeCheck(allocations_end_alike, "alike", ("3spo", UNIFORM), (SMALL_MODEL,), by_column=True),
    RunCheck(
        uniform_allocation_takes_more_rollouts, "rollouts", (UNIFORM, "3spo"), is_rollout_ratio=True
    ),
    RunCheck(high_score_states_are_visited_more, "throughout", ("3spo", *STEP_BASELINES)),
    RunCheck(baselines_visit_high_score_states_alike, "throughout", STEP_BASELINES),
    RunCheck(high_score_states_go_with_success, "area", ("3spo", *STEP_BASELINES)),
    RunCheck(tenth_visit_has_fewer_next_states, "fewer", ("3spo",)),
    RunCheck(counted_rates_converge, "probe", ("3spo",)),
    RunCheck(gated_states_are_hopeless, "probe", ("3spo",)),
    RunCheck(uniform_allocation_takes_more_energy, "rollouts", (UNIFORM, "3spo"), is_rollout_ratio=True),
)

CHECKS = {check.function.__name__: check for check in IN_PAPERS_ORDER}
"""Every check by the name that ``claims.yaml`` has for it."""
