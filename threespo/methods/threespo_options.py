"""The options of 3SPO in six groups: score, gate, counting, reward, search and update.

The paper contradicts itself in places. Each reading that a study compares is an option; the defaults are the text as
printed, which is the preset ``literal``. A study file has all options of a row in one flat mapping.

"The authors' loop" is that of their repository for desktop tasks (github.com/genalyu/3SPO_GUI, commit 280761d).
"""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from threespo.methods.base import MethodOptions
from threespo.settings import Later


class ScoreOptions(MethodOptions):
    """Eq. 1 (sec. 3.2): S(s_t) = exp(-lambda(t) N_success / N_total), lambda(t) = alpha ln t."""

    alpha: float = Field(default=50.0, ge=0, le=1_000_000)
    """lambda(t) = alpha ln t (tab:hyperparams: 50; calibrated: 1)."""
    clock: Literal["depth", "depth_plus_1", "paths", "epoch", "ticks"] = "depth"
    """t: 1-based depth in the path (appendix, depth-dependent factor), that plus 1, completed paths of the run plus 1 (the
    released code), or the epoch's number from 1. ``ticks``: ticks of the run so far, and with them the authors' loop's own
    lambda(t) = 1 - exp(-alpha t / 1000) in the place of alpha ln t."""
    state_key: Literal["obs", "task_obs", "history"] = "obs"
    """What a state is: the observation alone, shared by all tasks (sec. 3.1, sec. 4.4); goal and observation; or goal,
    observation and the last two steps."""


class GateOptions(MethodOptions):
    """The indicator of eq. 1 (sec. 3.2, "exploration truncation"): S = 0 after enough failures and too few successes."""

    gate: bool = True
    """False leaves the indicator out."""
    gate_at_root: bool = True
    """True gives up a task whose first state is gated, as printed; False always tries it."""
    xi: float = Field(default=10.0, gt=0, le=1_000_000_000)
    """Failures from which the gate can close (tab:hyperparams: 10)."""
    zeta: float = Field(default=0.1, ge=0, le=1)
    """Success rate above which it stays open (tab:hyperparams: 0.1)."""
    gate_decay: float = Field(default=1.0, gt=0, le=1)
    """Factor on all counts at each epoch's end; 1 keeps the gate absorbing, as eq. 1 prints it."""
    gate_reset_every: int | None = Field(default=None, ge=1, le=1_000_000)
    """Epochs after which all counts are forgotten; never by default."""


class CountingOptions(MethodOptions):
    """N_total and N_success (sec. 3.2; Algorithm 1: "Update N_total(s_cur), N_success(s_cur)")."""

    count_siblings: bool = True
    """Children that end their path count when they are sampled; otherwise when the search comes to them."""
    count_repeats: Annotated[bool, Later] = False
    """A path counts a state as often as it has visited it (the authors' loop), and not once."""
    count_cut_paths: Annotated[bool, Later] = True
    """Paths that end at the step limit count; False counts only those that the environment has ended (the authors' loop)."""
    success_above: Annotated[float | None, Later] = Field(default=None, ge=0, lt=1)
    """A path succeeds if the task's evaluation at its end is above this (the authors' loop: 0.05); by default if it is
    won."""
    count_at: Literal["tick", "path"] = "tick"
    """When a completed path counts: when all tasks have made their step, or at once, also for the tasks after it."""


class RewardOptions(MethodOptions):
    """Eq. 2 (sec. 3.3): R = omega R_novel + (0.5 - omega) (S(s_t) - S(s_t+1)) + 0.5 R_success."""

    omega_k: float = Field(default=0.1, ge=0, le=1_000_000)
    """Decay of the novelty weight (tab:hyperparams: 0.1)."""
    omega_fixed: float | None = Field(default=None, ge=0, le=0.5)
    """Ablation w/o adaptive omega: 0.25 weighs both terms alike; the printed 0.5 removes the difference."""
    novelty: Literal["path", "observation", "change", "none"] = "path"
    """Novel is a state that is not on the path (tau^t), or an observation that is not, whatever ``state_key`` is;
    ``change``: an observation other than the last one (the authors' loop measures how far the screen has changed);
    ``none`` is the ablation w/o R_novel."""
    difference: bool = True
    """False is the ablation w/o Delta S."""
    r_success: Annotated[Literal["won", "evaluation_and_form"], Later] = "won"
    """R_success: 1 for the transition that wins; or, in the authors' loop, the task's evaluation in [0, 1] (WebShop: its
    score) where the episode ends, plus 0.5 for every well-formed response."""
    penalty: Literal["reward", "advantage", "none"] = "reward"
    """Where the penalty for malformed responses comes off: the reward, and so ranks and the group's mean and spread (eq. 2
    has no such term; the text only calls it a penalty), or the advantage of the response. ``none``: there is no penalty
    (the authors' loop)."""


class SearchOptions(MethodOptions):
    """Eq. 3 (sec. 3.4) and the ranked backtracking of Algorithm 1."""

    g_max: int | None = Field(default=None, ge=1, le=1024)
    """G_max, the most samples of one state. Default: the study's group size (tab:hyperparams: 8 and 8)."""
    allocation: Annotated[Literal["ceiling", "sigmoid"], Later] = "ceiling"
    """n(s): ceil(G_max S), which gives a gated state no sample; or max(1, floor(G_max sigmoid(S))), which gives every state
    half of G_max or some more, a gated one too (the authors' loop)."""
    uniform: bool = False
    """Ablation w/o adaptive n: G_max samples wherever the gate is open; with ``gate: false`` everywhere."""
    frontier: Literal["children", "restart", "none"] = "children"
    """Where a path ends, go on from the deepest untried child. Ablation w/o backtracking: ``none`` takes one path a task,
    ``restart`` begins again at the root until a cap is reached."""
    tie_break: Literal["random", "first"] = "random"
    """Order of children with equal rewards."""
    keep_duplicates: bool = False
    """Try children with the same observation each for itself."""
    max_generations_per_task: int | None = Field(default=None, ge=1, le=1_000_000_000)
    """Cap on one task's generations per epoch (tab:efficiency: 4.5e5 / 6,400 = 70). Default: group size x longest episode,
    which is what a group of whole episodes may use and the least that lets one path be searched at full width."""
    max_paths_per_task: int = Field(default=32, ge=1, le=1_000_000)
    """Cap on one task's completed paths per epoch (the released code's ``max_samples_per_prompt``)."""


class UpdateOptions(MethodOptions):
    """Eq. 5 and the group advantage (sec. 3.4): what is learned from a state's siblings, and when."""

    update_unit: Literal["state", "tick", "path", "epoch"] = "state"
    """When samples are learned from: after the state (Algorithm 1), one optimizer step for each; after the tick, one step
    for all states expanded in it; after the path, one step for each of its states (the post-trajectory control: the same
    steps, later); or after the epoch, in the mini-batches of the other methods."""
    credit: Literal["step", "subtree", "graph"] = "step"
    """What R_success of a child is when its group is learned from: that of the transition (eq. 2); ``subtree``: the success
    rate of all completed paths of the search that go on from it, children without one left out; ``graph``: 0.8 to the power
    of its distance from success in the graph of the task's visited states. The last two are known when the search has
    ended, so no update comes before (``state`` and ``path`` then mean one step for each state). Ranks are always by the
    transition's own reward."""
    normalise: bool = True
    """Divide a group's rewards by their standard deviation."""
    std_floor: float = Field(default=0.0, ge=0, le=1_000_000)
    """Groups whose rewards spread less are not learned from."""
    clip_high: Annotated[float | None, Later] = Field(default=None, gt=0, le=1_000_000)
    """Upper clip of the ratio (the authors' loop: 0.3); by default the study's ``training.clip``."""
    kl: Annotated[bool, Later] = True
    """Keep the study's KL penalty; False drops it (the authors' loop)."""
    without_signal: Literal["skip", "kl"] = "skip"
    """Groups with equal rewards and single samples: no optimizer step, or one on the KL penalty alone (eq. 5 with A = 0)."""


# The smallest change that makes the paper's own worked example numerically possible.
_CALIBRATED: dict[str, Any] = {
    "alpha": 1.0,
    "state_key": "task_obs",
    "gate_decay": 0.9,
    "gate_at_root": False,
    "std_floor": 1e-3,
}
# Fewer samples of a state, so that a task's budget holds several paths.
_NARROW: dict[str, Any] = {**_CALIBRATED, "g_max": 3}
# Success credited to all steps that led to it.
_IMPROVED: dict[str, Any] = {**_NARROW, "credit": "subtree"}
# The authors' loop, as far as it can be had where a state is a text (docs/method.md says what cannot).
_AUTHORS_GUI: dict[str, Any] = {
    "alpha": 0.1,
    "clock": "ticks",
    # No success rate is above 1: eight failures close the gate whatever the rate is.
    "xi": 8.0,
    "zeta": 1.0,
    "count_repeats": True,
    "count_cut_paths": False,
    "success_above": 0.05,
    "omega_k": 1.0,
    "novelty": "change",
    "r_success": "evaluation_and_form",
    "penalty": "none",
    "g_max": 8,
    "allocation": "sigmoid",
    "keep_duplicates": True,
    # Their searches have no cap. The one on generations, without which none would end, stays.
    "max_paths_per_task": 1_000_000,
    "update_unit": "tick",
    "clip_high": 0.3,
    "kl": False,
}

_PRESETS = {
    "calibrated": _CALIBRATED,
    "narrow": _NARROW,
    "improved": _IMPROVED,
    "authors-gui": _AUTHORS_GUI,
}


# Fields are dumped in the order of the groups; pydantic collects them from the last base to the first.
class ThreespoOptions(
    UpdateOptions, SearchOptions, RewardOptions, CountingOptions, GateOptions, ScoreOptions
):
    """All options of 3SPO (docs/method.md has the evidence for each, and for the presets)."""

    preset: Literal["literal", "calibrated", "narrow", "improved", "authors-gui"] = "literal"
    """Fills in what is not given explicitly."""

    @property
    def release(self) -> Literal["state", "path", "search"]:
        """When a search hands over its groups: at once, when a path is complete, or when the search has ended."""
        if self.credit != "step":
            return "search"
        return "path" if self.update_unit == "path" else "state"

    @model_validator(mode="before")
    @classmethod
    def _fill_in_preset(cls, values: Any) -> Any:
        """Return the given values with those of their preset for what is not given."""
        if not isinstance(values, dict):
            return values

        # Validation refuses an unknown preset later; one that is no text may not be hashable, so it is not looked up.
        preset = values.get("preset")
        if not isinstance(preset, str):
            return values
        return {**_PRESETS.get(preset, {}), **values}
