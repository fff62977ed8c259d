"""Titles and captions of the report's figures."""

from typing import TYPE_CHECKING

from threespo.envs.registry import presentation

if TYPE_CHECKING:
    from threespo.study.config import Study

FIGURES = {
    "main_results": (
        "Success on tasks that training never saw",
        "A small dot is one training seed (mean over evaluation seeds), the large dot their mean, the bar the 95 % "
        "interval: Student's t over training seeds (none with two), or over clusters of tasks where a single policy is "
        "judged. Bars of two methods may overlap although their difference is clear. Diamonds are the paper's values, from "
        "another model at another scale. "
        "WebShop also has a task score.",
    ),
    "learning_curves": (
        "Learning curves on unseen games",
        "Figure 3a of the paper: snapshots of training play the same unseen games as plain single episodes, so all methods "
        "are measured alike. Thick: the mean over training seeds with its 95 % t interval; with fewer than three seeds a "
        "thin line is one seed. All curves begin with the untrained policy.",
    ),
    "learning_time": (
        "Learning curves on unseen games, against time",
        "The same snapshots against the seconds of training. They depend on the machine, and differ between two equal runs.",
    ),
    "adaptive_curves": (
        "Adaptive against uniform numbers of samples",
        "Figure 3d of the paper: 3SPO with n(s) samples in a state and with the same number in every state, measured as in "
        "the learning curves on unseen games.",
    ),
    "adaptive_time": (
        "Adaptive against uniform numbers of samples, against time",
        "The same snapshots against the seconds of training, which depend on the machine.",
    ),
    "training_curves": (
        "Success during training against generations",
        "Thin lines are training seeds, thick lines their mean. The paths counted here are those that the method itself "
        "takes, so methods that search are not measured like methods that play plain episodes. The learning curves on "
        "unseen games and the evaluation compare them.",
    ),
    "paper_training_curves": (
        "The paper's own training curves",
        "Not ours: digitised from the image of figure 3a that the authors published (1.5B model, ALFWorld; success against "
        "epochs).",
    ),
    "mean_scores": (
        "Mean state score during training",
        "Figure 3b of the paper. Every method is measured alike: a state is an observation, scored by eq. 1 with the "
        "printed constants and the counts at the beginning of the epoch. Thick: over visits; thin: every visited state "
        "once; dotted: all states known so far, at depth 10. With α = 50 a score is 1, 0 or nearly 0, so the mean is "
        "little more than the share of states through which no path has succeeded.",
    ),
    "scores_by_type": (
        "State scores by task type",
        "Figure 3c: the distribution of state scores in the first, the second and the last third of training. A bar "
        "divides the states that searches have sampled, weighted by how often each was sampled, into bands of S; the dot "
        "is their mean. Scores are the method's own, by its own constants and clock, unlike those above. Only tasks whose "
        "search trees are recorded are included, of all training seeds.",
    ),
    "high_scores": (
        "Share of visits to states with S > 0.5",
        "The paper's figure of high-score ratios, measured as above. Lines are means over training seeds, smoothed over "
        "three epochs.",
    ),
    "samples_per_state": (
        "Samples per state in 3SPO",
        "Expansions by n(s), the number of samples drawn in the state (0: gated, nothing is drawn), over all runs of a "
        "method. A capped expansion draws one sample and is shown separately.",
    ),
    "case_study": (
        "One state at its first and at its tenth visit",
        "The paper's case study: for each method, the state that its recorded trees expand most often, at its first and "
        "its tenth visit (or the last, if there are fewer). Bars: the weights of novelty and of the score difference in "
        "eq. 2. Dots: the scores of the children that were sampled; filled if they counted as new.",
    ),
    "score_reliability": (
        "Does the score measure what it claims?",
        "Each dot is a state of a frozen policy. Its true success probability p(s), estimated from many episodes continued "
        "from it, is set against the counted success rate N_success / N_total (above) and against S(s) (below). The line "
        "is what a perfect estimate of p(s) would give; for S it is exp(−λ p) at depth 5. Hollow dots have not been "
        "visited, and have no counted rate. Later snapshots are darker.",
    ),
    "claims": (
        "The paper's differences beside ours",
        "Each line is a claim that one method is above others, in one column of the main table; where it names several, "
        "the pair that speaks most against it. Dots: ours with 95 % intervals (Welch's t over training seeds); diamonds: "
        "the paper's own tables, from another model at another scale.",
    ),
    "regret": (
        "Allocation regret in the bandit of the paper's theory",
        "Regret counts rollouts of actions other than the hardest, weighted by how much easier they are: mean and range "
        "over 32 seeds, four actions won with 0.1, 0.3, 0.5 and 0.7, depth 2. Beside it: all rollouts drawn until then. As "
        "printed, every open action gets a rollout each round, so regret grows with the rounds and not with their "
        "logarithm. The rule of the proof keeps it small by hardly sampling at all.",
    ),
}

def caption(study: "Study", name: str) -> tuple[str, str]:
    """Return the title and the caption of a figure."""
    # A new figure needs no caption to be shown.
    title, text = FIGURES.get(name, (name.replace("_", " ").capitalize(), ""))
    kinds = [presentation(env).task_types for env in study.environments] if name == "scores_by_type" else []
    return title, " ".join([text, *kinds])
