"""What a log of others says on the panel: tasks repeated, missed or of the wrong split, success too kindly defined, and
the number."""

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
        said = [f"{head}: {self.episodes} episodes, success as logged {self.logged:.1%}"]
        said += [f"- {finding.text}" for finding in self.findings] or ["- nothing found"]
        if self.by_name:
            said.append(
                f"- {self.by_name} episodes are taken for the panel's by ids or words: the log does not say the content of "
                "their tasks (info['content'])"
            )
        if not self.numbers:
            said.append("on no split: no episode is of a task of the panel")
        for number in self.numbers:
            said.append(
                f"on {number.split}: {number.success:.1%} ({number.low:.1%} to {number.high:.1%}) over {number.played} of "
                f"{number.tasks} tasks, {number.seeds} seed(s)"
                + (
                    f"; with what is missing, between {number.least:.1%} and {number.most:.1%}"
                    if number.missing
                    else ""
                )
            )
        return said

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
    measured = (_success_on_split(name, judged, panel) for name in tested)
    numbers = [number for number in measured if number is not None]
    if not numbers and not any(episode.changed for episode in judged):
        raise InputError(
            f"none of {len(judged)} episodes is of a task of {', '.join(tested)} in panel {panel.name!r}, such as "
            f"{panel.splits[tested[0]][0].task_id!r}; the log names tasks such as {episodes[0].task!r}"
        )
    logged = sum(episode.success for episode in judged) / len(judged)
    by_name = sum(episode.known and not episode.by_content for episode in judged)
    findings = tuple(_findings(judged, trained, tested, panel, numbers))
    return Audit(panel, len(episodes), logged, findings, tuple(numbers), by_name)


def _findings(
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
    strange = [episode for episode in judged if not episode.known and not episode.changed]
    if strange:
        count = len(strange)
        example = strange[0].task
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
            there = f"{number.played} of {number.tasks} tasks were played"
            yield Finding(
                "missing",
                number.missing,
                f"{number.missing} episodes of {number.split} are missing: {there}",
            )

    training_episodes = [
        episode
        for episode in known
        if panel.split_of[episode.task] in HELD_OUT and panel.split_of[episode.task] not in tested
    ]
    if training_episodes:
        count = len(training_episodes)
        yield Finding(
            "training_tasks", count, f"{count} episodes are of tasks for training or calibration"
        )
    met = {
        episode.task for episode in trained if episode.known and panel.split_of[episode.task] in tested
    }
    if met:
        yield Finding("trained_on", len(met), f"{len(met)} tested tasks were met in training")
    present = Counter(panel.split_of[episode.task] for episode in known)
    mixed = [name for name in present if name not in HELD_OUT]
    if len(mixed) > 1:
        others = f"{', '.join(sorted(mixed))} are mixed in one log"
        yield Finding(
            "mixed",
            sum(present[name] for name in mixed),
            f"splits: {others}; their numbers stand apart below",
        )
    wrong = [
        episode
        for episode in known
        if episode.split in panel.splits and episode.split != panel.split_of[episode.task]
    ]
    if wrong:
        example_task = wrong[0].task
        own_split = panel.split_of[example_task]
        where = f"{example_task} in {wrong[0].split}, where the panel has it in {own_split}"
        text = f"{len(wrong)} episodes claim another split than the panel's, such as {where}"
        yield Finding("other_split", len(wrong), text)


def _find_wrong_content(judged: Sequence[LoggedEpisode], panel: Panel) -> Iterator[Finding]:
    """Yield where the tasks or the prompts differ from the panel's."""
    other = [episode for episode in judged if episode.changed]
    if other:
        text = f"{len(other)} episodes have the name of a task of the panel and another content, such as {other[0].task}"
        yield Finding(
            "other_content",
            len(other),
            f"{text}: another goal sentence or layout, or other data; not counted",
        )
    count = sum(episode.penalised_thoughts for episode in judged)
    if count:
        text = f"{count} responses close a thought that the chat template had opened, and were penalised as malformed"
        yield Finding(
            "opened_thought", count, f"{text}: verl-agent asks for <think> in the response itself"
        )
    if panel.wording is not None:
        yield from _wordings(judged, panel.wording)


def _find_wrong_endings(known: Sequence[LoggedEpisode], panel: Panel) -> Iterator[Finding]:
    """Yield episodes that end too early or too late, or succeed without the full score."""
    # Where a failure can end an episode, only the log knows whether it did.
    cut = [
        episode.steps
        for episode in known
        if not (episode.success or episode.ended)
        and episode.steps is not None
        and episode.steps < panel.max_steps
        and (episode.ended is False or not panel.failure_ends)
    ]
    if cut:
        text = f"{len(cut)} episodes without success stop after {max(cut)} steps or fewer, of {panel.max_steps}"
        yield Finding("cut", len(cut), text)
    longer = [
        episode for episode in known if episode.steps is not None and episode.steps > panel.max_steps
    ]
    if longer:
        yield Finding(
            "longer",
            len(longer),
            f"{len(longer)} episodes have more steps than the panel's {panel.max_steps}",
        )
    kind = [
        episode
        for episode in known
        if episode.success and episode.score is not None and episode.score < 1
    ]
    if kind:
        text = f"{len(kind)} episodes count as success with a score below 1: buying anything is not the task"
        yield Finding("bought_anything", len(kind), text)


def _wordings(judged: Sequence[LoggedEpisode], own: str) -> Iterator[Finding]:
    """Yield what is to be said of ALFWorld's two wordings; ``own`` is that of the panel's data."""
    said = Counter(name for episode in judged for name in episode.wordings)
    forms = {"put": "put X in/on Y", "move": "move X to Y"}
    if len(said) > 1:
        # ALFWorld's releases differ in this command; a policy trained on one wording loses steps on the other.
        clauses = [f"{count} episodes say '{forms[name]}'" for name, count in sorted(said.items())]
        text = ", ".join(clauses)
        yield Finding("mixed_wordings", min(said.values()), f"two wordings in one log: {text}")
    count = sum(number for name, number in said.items() if name != own)
    if count:
        other = next(forms[name] for name in said if name != own)
        text = f"{count} episodes say '{other}', where the panel's data understand '{forms[own]}': other data, or lost steps"
        yield Finding("other_wording", count, text)


def _success_on_split(
    split: str, episodes: Sequence[LoggedEpisode], panel: Panel
) -> SplitSuccess | None:
    """Return success on a split; ``None`` where the log has none of its tasks."""
    wanted = {task.task_id for task in panel.splits[split]}
    first: dict[tuple[str, str], bool] = {}
    for episode in episodes:
        if episode.known and episode.task in wanted:
            # The first attempt counts: the best of several would be another measure. A purchase of anything ends a shop's
            # episode, so a success with a score below 1 is none.
            first.setdefault(
                (episode.task, episode.seed),
                episode.success and (episode.score is None or episode.score >= 1),
            )
    if not first:
        return None

    by_task: defaultdict[str, list[bool]] = defaultdict(list)
    for (task, _), won in first.items():
        by_task[task].append(won)
    seeds = {seed for _, seed in first}
    # Equal weight for each task, however many of the seeds it was played with.
    means = [sum(found) / len(found) for found in by_task.values()]
    success, low, high = _wilson_interval(means)
    whole = len(wanted) * len(seeds)
    wins = sum(first.values())
    missing = whole - len(first)
    return SplitSuccess(
        split,
        len(wanted),
        len(by_task),
        len(seeds),
        missing,
        success,
        low,
        high,
        wins / whole,
        (wins + missing) / whole,
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
