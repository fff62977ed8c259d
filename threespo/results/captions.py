"""What stands over and under the report's figures."""

from typing import TYPE_CHECKING

from threespo.envs.registry import presentation

if TYPE_CHECKING:
    from threespo.study.config import Study

FIGURES = {
    "main_results": (
        "Success on tasks that training never saw",
        "Each small dot is one training seed (mean over evaluation seeds), the large dot their mean, the bar the 95 % "
        "bootstrap interval over seeds and tasks. Diamonds are the paper's values: another model at another scale. WebShop "
        "has a task score besides.",
    ),
    "training_curves": (
        "Success during training against generations",
        "Thin lines are training seeds, thick ones their mean. The paths counted here are those that a method itself "
        "takes, so a method that searches is not measured like one that plays plain episodes; only the evaluation "
        "above compares them.",
    ),
    "paper_training_curves": (
        "The paper's own training curves",
        "Not ours: read off the image of figure 3a that the authors published (1.5B model, ALFWorld; success against "
        "epochs).",
    ),
    "mean_scores": (
        "Mean state score during training",
        "Figure 3b of the paper. Every method is measured alike: a state is an observation, scored by eq. 1 with the "
        "printed constants and the counts at the epoch's beginning. Thick: over visits; thin: every visited state once; "
        "dotted: all states known so far, at depth 10. With α = 50 a score is 1, 0 or nearly 0, so the mean is little "
        "more than the share of states that nothing has succeeded through.",
    ),
    "scores_by_type": (
        "State scores by kind of task",
        "Figure 3c: how the scores of states are distributed in the first, the second and the last third of training. A bar "
        "divides the states that searches have sampled, each as often as it was, into bands of S; the dot is their mean. "
        "Scores are the method's own, by its own constants and clock, unlike those above; only tasks whose search trees are "
        "recorded take part, of all training seeds.",
    ),
    "high_scores": (
        "Share of visits to states with S > 0.5",
        "The paper's figure of high-score ratios, measured as above. Lines are means over training seeds, smoothed over "
        "three epochs.",
    ),
    "samples_per_state": (
        "Where 3SPO's samples go",
        "Expansions by n(s), the number of samples drawn there (0: gated, nothing is drawn), over all runs of a method; a "
        "capped expansion draws one sample and stands apart.",
    ),
    "case_study": (
        "One state at its first and at its tenth visit",
        "The paper's case study: of each method the state that its recorded trees expand most often, at its first and its "
        "tenth visit (or the last, if there are fewer). Bars: the weights of novelty and of the difference of scores in "
        "eq. 2. Dots: the scores of the children that were sampled; filled if they counted as new.",
    ),
    "score_reliability": (
        "Does the score measure what it claims?",
        "Each dot is a state of a frozen policy: its true success probability, estimated by playing on from it many times, "
        "against the counted success rate N_success / N_total (above) and against S(s) (below). The line is what a perfect "
        "estimate of p(s) would give; for S it is exp(−λ p) at depth 5. Hollow dots have not been visited, and have no "
        "counted rate. Later snapshots are darker.",
    ),
    "claims": (
        "The paper's differences beside ours",
        "Each line is a claim that one method is above others, in one column of the main table; where it names several, the "
        "pair that speaks most against it. Dots: ours with 95 % intervals; diamonds: the paper's own tables, another "
        "model at another scale.",
    ),
    "regret": (
        "Allocation regret in the bandit of the paper's theory",
        "Rollouts of other actions than the hardest, weighted by how much easier they are: mean and range over 32 seeds, "
        "four actions won with 0.1, 0.3, 0.5 and 0.7, depth 2; beside them all rollouts drawn until then. As printed every "
        "open action gets a rollout each round, so regret grows with the rounds and not with their logarithm; the rule of "
        "the proof keeps it small by hardly sampling at all.",
    ),
}

def caption(study: "Study", name: str) -> tuple[str, str]:
    """Return the title and the caption of a figure."""
    title, text = FIGURES[name]
    kinds = [presentation(env).task_types for env in study.environments] if name == "scores_by_type" else []
    return title, " ".join([text, *kinds])
