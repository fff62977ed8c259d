"""Fields, options and commands of earlier versions, and what to write instead of each.

Read only where a name is unknown, and by no job: an entry more changes no key.
"""

from collections.abc import Iterable

from threespo.envs.registry import ENVIRONMENTS

OLD_COMMANDS = {
    "choose": "threespo tune",
    "laboratory": "threespo decision-trees",
}
"""Commands of earlier versions, and those that do their work now."""

_OLD_FIELDS = {
    "gpus_per_run": "write gpus_per_rank, and ranks_per_run where a run has several processes",
    "tuning.seed": "write tuning.seeds, a list such as [1000]",
}
"""Dotted names of a study's fields."""

_OLD_OPTIONS = {
    "grpo": {
        "minibatch": "write minibatch in the method's entry, or training.minibatch",
        "statistics": "write training.terms: as_released for statistics over rows; else leave it out",
        "success_reward": "write training.success_reward",
    },
    "threespo": {
        "backtrack": "a search goes back to the deepest untried child, as Algorithm 1 does; leave it out",
        "count_gated": "a path that ends at a gated state never counts; leave it out",
        "count_terminal": "a path's last observation always counts; leave it out",
        "gate_in_reward": "S of a gated next state is 0 in eq. 2, as printed; leave it out",
        "gate_probe": "use gate_decay or gate_reset_every to reopen gates",
        "graph_decay": "a step further from success is worth 0.8 times as much; leave it out",
        "graph_memory": "the graph of `credit: graph` is that of all searches of the task; leave it out",
        "inner_epochs": "each group is learned from once; leave it out",
        "key_history": "the key `state_key: history` has the last two steps; leave it out",
        "next_clock": "S(s_t+1) in eq. 2 is always taken at its own depth; leave it out",
        "success": "R_success is 1 on winning, else 0, unless r_success says otherwise; leave it out",
    },
}
"""Options by method."""


def explain_old_field(location: Iterable[str | int]) -> str | None:
    """Return what to write instead of a study's field; ``None`` if no earlier version had it."""
    parts = [str(part) for part in location]
    # An environment's section has the same fields as the study.
    if parts[0] in ENVIRONMENTS:
        parts = parts[1:]
    instead = _OLD_FIELDS.get(".".join(parts))
    return instead and f"this field is gone: {instead}"


def explain_old_options(method: str, options: Iterable[str]) -> str | None:
    """Return what to write instead of the first old option among ``options``; ``None`` if there is none."""
    old_options = _OLD_OPTIONS.get(method, {})
    for option in options:
        if option in old_options:
            return f"options.{option}: this option of {method} is gone: {old_options[option]}"
    return None
