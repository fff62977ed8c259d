"""What a log of others says on the panel: tasks that are repeated, missing or of the wrong split, a success that is defined
too generously, and the success rate that the panel's own rules give."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from threespo.errors import InputError
from threespo.panels.logs import LoggedEpisode
from threespo.panels.panel import HELD_OUT, Panel

_QUANTILE = 1.959963984540054
"""Of the normal distribution, for intervals of 95 %."""


@dataclass(frozen=True)
class Finding:
    """Something that makes the log's number another one than the panel's."""

    kind: str
    count: int
    text: str


@dataclass(frozen=True)
class SplitSuccess:
    """Success on one split of the panel."""

    split: str
    tasks: int
    """Of the panel's split."""
    played: int
    """Different ones that the log has."""
    seeds: int
    missing: int
    """Episodes that a whole panel would have besides: tasks times seeds that were not played."""
    success: float
    """Mean over the tasks played, each a mean over its seeds; the first episode of a task and seed counts."""
    low: float
    high: float
    """Ends of the 95 % interval, with the tasks as the sample."""
    least: float
    most: float
    """Success if all that is missing failed, and if all of it succeeded."""


@dataclass(frozen=True)
class Audit:
    """The result of an audit."""

    panel: Panel
    episodes: int
    logged: float
    """Mean success as the log has it."""
    findings: tuple[Finding, ...]
    numbers: tuple[SplitSuccess, ...]
    """Of the splits that the log has tasks of."""
    by_name: int = 0
    """Episodes of the panel's tasks whose content the log does not say."""

    def lines(self) -> list[str]:
        """Return the audit in words."""
        head = f"panel {self.panel.name} ({self.panel.sha256[:12]})"
        lines = [f"{head}: {self.episodes} episodes, success as logged {self.logged:.1%}"]
        lines += [f"- {finding.text}" for finding in self.findings] or ["- nothing found"]
        if self.by_name:
            lines.append(
                f"- {self.by_name} episodes are taken for the panel's by ids or words: the log does not say the content of "
                "their tasks (info['content'])"
            )
        if not self.numbers:
            lines.append("on no split: no episode is of a task of the panel")
        for number in self.numbers:
            interval = f"{number.low:.1%} to {number.high:.1%}"
            bounds = f"; with what is missing, between {number.least:.1%} and {number.most:.1%}"
            lines.append(
                f"on {number.split}: {number.success:.1%} ({interval}) over {number.played} of {number.tasks} tasks, "
                f"{number.seeds} seed(s){bounds if number.missing else ''}"
            )
        return lines

    def values(self) -> dict[str, Any]:
        """Return the audit as JSON values."""
        return {
            "panel": self.panel.name,
            "sha256": self.panel.sha256,
            "episodes": self.episodes,
            "logged": self.logged,
            "by_name": self.by_name,
            "findings": [vars(finding) for finding in self.findings],
            "numbers": [vars(number) for number in self.numbers],
        }


def audit(episodes: Sequence[LoggedEpisode], panel: Panel, split: str | None = None) -> Audit:
    """Compare a log with a panel.

    Args:
        episodes: of the log.
        panel: what should have been played.
        split: that the log is meant to be on; ``None``: every tested split that it has tasks of.

    Raises:
        InputError: if the panel has no such split, or the log no task of it.
    """
    if split is not None and split not in panel.splits:
        raise InputError(
            f"panel {panel.name!r}: no split {split!r}; there are: {', '.join(panel.splits)}"
        )
    tested = [split] if split else list(panel.tested)
    # A log may hold training episodes as well; they are no results, but show which tested tasks were trained on.
    trained = [episode for episode in episodes if episode.split in HELD_OUT]
    judged = [
        episode for episode in episodes if episode.split not in HELD_OUT or episode.split in tested
    ]
    measured = [_success_on_split(name, judged, panel) for name in tested]
    numbers = [number for number in measured if number is not None]
    if not numbers and not any(episode.changed for episode in judged):
        raise InputError(
            f"none of {len(judged)} episodes is of a task of {', '.join(tested)} in panel {panel.name!r}, such as "
            f"{panel.splits[tested[0]][0].task_id!r}; the log names tasks such as {episodes[0].task!r}"
        )
    logged = sum(episode.success for episode in judged) / len(judged)
    by_name = sum(episode.known and not episode.by_content for episode in judged)
    findings = tuple(_find_all(judged, trained, tested, panel, numbers))
    return Audit(panel, len(episodes), logged, findings, tuple(numbers), by_name)


def _find_all(
    judged: Sequence[LoggedEpisode],
    trained: Sequence[LoggedEpisode],
    tested: Sequence[str],
    panel: Panel,
    numbers: Sequence[SplitSuccess],
) -> Iterator[Finding]:
    yield from _find_wrong_tasks(judged, trained, tested, panel, numbers)
    yield from _find_wrong_content(judged, panel)
    yield from _find_wrong_endings([episode for episode in judged if episode.known], panel)


def _find_wrong_tasks(
    judged: Sequence[LoggedEpisode],
    trained: Sequence[LoggedEpisode],
    tested: Sequence[str],
    panel: Panel,
    numbers: Sequence[SplitSuccess],
) -> Iterator[Finding]:
    """Yield what is wrong with the choice of tasks: unknown, repeated, missing, or of another split."""
    known = [episode for episode in judged if episode.known]
    unknown = [episode for episode in judged if not episode.known and not episode.changed]
    if unknown:
        count = len(unknown)
        example = unknown[0].task
        yield Finding(
            "unknown",
            count,
            f"{count} episodes of tasks that the panel does not have, such as {example[:80]!r}",
        )

    times = Counter((episode.task, episode.seed) for episode in known)
    count = sum(times.values()) - len(times)
    if count:
        most = max(times.values())
        yield Finding(
            "repeated",
            count,
            f"{count} episodes repeat a task under the same seed, one task {most} times",
        )
    for number in numbers:
        if number.missing:
            played = f"{number.played} of {number.tasks} tasks were played"
            text = f"{number.missing} episodes of {number.split} are missing: {played}"
            yield Finding("missing", number.missing, text)

    not_tested = set(HELD_OUT) - set(tested)
    training_episodes = [episode for episode in known if panel.split_of[episode.task] in not_tested]
    if training_episodes:
        count = len(training_episodes)
        yield Finding(
            "training_tasks", count, f"{count} episodes are of tasks for training or calibration"
        )
    trained_tasks = {episode.task for episode in trained if episode.known}
    trained_on = [task for task in trained_tasks if panel.split_of[task] in tested]
    if trained_on:
        count = len(trained_on)
        yield Finding("trained_on", count, f"{count} tested tasks were met in training")

    episodes_of_split = Counter(panel.split_of[episode.task] for episode in known)
    mixed = sorted(split for split in episodes_of_split if split not in HELD_OUT)
    if len(mixed) > 1:
        count = sum(episodes_of_split[split] for split in mixed)
        text = f"splits: {', '.join(mixed)} are mixed in one log; their numbers stand apart below"
        yield Finding("mixed", count, text)

    claims_of_split = [episode for episode in known if episode.split in panel.splits]
    wrong = [episode for episode in claims_of_split if episode.split != panel.split_of[episode.task]]
    if wrong:
        example_task = wrong[0].task
        own_split = panel.split_of[example_task]
        where = f"{example_task} in {wrong[0].split}, where the panel has it in {own_split}"
        text = f"{len(wrong)} episodes claim another split than the panel's, such as {where}"
        yield Finding("other_split", len(wrong), text)


def _find_wrong_content(judged: Sequence[LoggedEpisode], panel: Panel) -> Iterator[Finding]:
    """Yield where the tasks or the prompts differ from the panel's."""
    changed = [episode for episode in judged if episode.changed]
    if changed:
        text = f"{len(changed)} episodes have the name of a task of the panel and another content, such as {changed[0].task}"
        yield Finding(
            "other_content",
            len(changed),
            f"{text}: another goal sentence or layout, or other data; not counted",
        )
    count = sum(episode.penalised_thoughts for episode in judged)
    if count:
        text = f"{count} responses close a thought that the chat template had opened, and were penalised as malformed"
        yield Finding(
            "opened_thought", count, f"{text}: verl-agent asks for <think> in the response itself"
        )
    if panel.wording is not None:
        yield from _find_wrong_wordings(judged, panel.wording)


def _find_wrong_endings(known: Sequence[LoggedEpisode], panel: Panel) -> Iterator[Finding]:
    """Yield episodes that end too early or too late, or succeed without the full score."""
    cut_steps = []
    longer = []
    for episode in known:
        if episode.steps is None:
            continue
        # Where a failure can end an episode, only the log knows whether it did.
        may_have_ended = episode.ended is None and panel.failure_ends
        was_cut = not episode.success and not episode.ended and not may_have_ended
        if was_cut and episode.steps < panel.max_steps:
            cut_steps.append(episode.steps)
        if episode.steps > panel.max_steps:
            longer.append(episode)
    if cut_steps:
        text = f"{len(cut_steps)} episodes without success stop after {max(cut_steps)} steps or fewer, of {panel.max_steps}"
        yield Finding("cut", len(cut_steps), text)
    if longer:
        yield Finding(
            "longer",
            len(longer),
            f"{len(longer)} episodes have more steps than the panel's {panel.max_steps}",
        )
    generous = [episode for episode in known if episode.success and not _has_full_score(episode)]
    if generous:
        text = f"{len(generous)} episodes count as success with a score below 1: buying anything is not the task"
        yield Finding("bought_anything", len(generous), text)


def _has_full_score(episode: LoggedEpisode) -> bool:
    """Return whether nothing is known of a score below 1."""
    return episode.score is None or episode.score >= 1


def _find_wrong_wordings(judged: Sequence[LoggedEpisode], own: str) -> Iterator[Finding]:
    """Yield what is to be said of ALFWorld's two wordings; ``own`` is that of the panel's data."""
    episodes_of_wording = Counter(name for episode in judged for name in episode.wordings)
    commands = {"put": "put X in/on Y", "move": "move X to Y"}
    if len(episodes_of_wording) > 1:
        # ALFWorld's releases differ in this command; a policy trained on one wording loses steps on the other.
        clauses = [
            f"{count} episodes say '{commands[name]}'"
            for name, count in sorted(episodes_of_wording.items())
        ]
        fewest = min(episodes_of_wording.values())
        yield Finding("mixed_wordings", fewest, f"two wordings in one log: {', '.join(clauses)}")

    # There are two wordings, so at most one is left.
    del episodes_of_wording[own]
    for name, count in episodes_of_wording.items():
        text = (
            f"{count} episodes say '{commands[name]}', where the panel's data understand '{commands[own]}': "
            "other data, or lost steps"
        )
        yield Finding("other_wording", count, text)


def _success_on_split(
    split: str, episodes: Sequence[LoggedEpisode], panel: Panel
) -> SplitSuccess | None:
    """Return success on a split; ``None`` where the log has none of its tasks."""
    tasks = {task.task_id for task in panel.splits[split]}
    won_first: dict[tuple[str, str], bool] = {}
    for episode in episodes:
        if episode.known and episode.task in tasks:
            # A purchase of anything ends a shop's episode, so a success with a score below 1 is none.
            won = episode.success and _has_full_score(episode)
            # The first attempt counts: the best of several would be another measure.
            won_first.setdefault((episode.task, episode.seed), won)
    if not won_first:
        return None

    outcomes_of_task: defaultdict[str, list[bool]] = defaultdict(list)
    for (task, _), won in won_first.items():
        outcomes_of_task[task].append(won)
    seeds = {seed for _, seed in won_first}
    # Equal weight for each task, however many of the seeds it was played with.
    means = [sum(outcomes) / len(outcomes) for outcomes in outcomes_of_task.values()]
    success, low, high = _wilson_interval(means)
    all_episodes = len(tasks) * len(seeds)
    wins = sum(won_first.values())
    missing = all_episodes - len(won_first)
    return SplitSuccess(
        split=split,
        tasks=len(tasks),
        played=len(outcomes_of_task),
        seeds=len(seeds),
        missing=missing,
        success=success,
        low=low,
        high=high,
        least=wins / all_episodes,
        most=(wins + missing) / all_episodes,
    )


def _wilson_interval(means: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and the ends of Wilson's interval for an effective number of tasks, from the spread between them.

    With one seed that is (almost) the number of tasks. Several seeds of a task do not count as several tasks.
    """
    count = len(means)
    mean = sum(means) / count
    # The squared standard error of the mean over tasks, which are the independent units; seeds of a task are not.
    variance = sum((value - mean) ** 2 for value in means) / max(1, count - 1)
    spread = variance / count
    # The number of yes-or-no tasks whose mean would vary as much. Without any spread it is the number of tasks, so that an
    # interval for 0 % or 100 % has a width.
    effective = mean * (1 - mean) / spread if spread > 0 else float(count)
    scale = 1 + _QUANTILE**2 / effective
    centre = (mean + _QUANTILE**2 / (2 * effective)) / scale
    root = math.sqrt(mean * (1 - mean) / effective + (_QUANTILE / (2 * effective)) ** 2)
    half = _QUANTILE / scale * root
    return mean, max(0.0, centre - half), min(1.0, centre + half)
