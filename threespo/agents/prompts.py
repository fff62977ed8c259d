"""The prompts of the agents: the paper's template, changed where an agent calls for it.

The paper gives no prompts for its prompting rows. Its template asks for reasoning and then an action, so *ReAct* is the
template as it is; earlier thoughts can be kept in the history. *direct* asks for the action alone; *Reflexion* also shows
what the model noted after its earlier attempts.
"""

from collections.abc import Sequence

from threespo.envs.episode import Episode

_DIRECT = (
    "Now it's your turn to take an action.\n"
    "Choose one admissible action for the current step and present it within <action> </action> tags. "
    "Answer with nothing else.\n"
)

_NOTES = (
    "You have tried this task before and did not complete it. After each attempt you noted:\n{notes}\n\n"
)

_REFLECT = (
    "\nYou are {agent}. Your task was to: {goal}\n"
    "You did not complete it in {steps} step(s). These are the last observations and the actions you took:\n"
    "{history}\n"
    "{notes}"
    "In a few sentences, say what went wrong and what you will do differently in your next attempt.\n"
)


def direct_prompt(episode: Episode) -> str:
    """Return the prompt that asks for an action without reasoning."""
    return episode.ask(instruction=_DIRECT)


def react_prompt(
    episode: Episode, thoughts: Sequence[str] | None = None, notes: Sequence[str] = ()
) -> str:
    """Return the prompt that asks for a thought and an action.

    Args:
        episode: where the agent is.
        thoughts: the thought before each action so far, to be shown in the history; ``None`` leaves them out.
        notes: what the model noted after its earlier attempts, oldest first.
    """
    return episode.ask(
        lines=None if thoughts is None else _lines(episode, thoughts), preface=_noted(notes)
    )


def reflection_prompt(episode: Episode, notes: Sequence[str], characters: int) -> str:
    """Return the prompt that asks what went wrong in a failed attempt.

    Args:
        episode: the failed attempt, at its end.
        notes: what the model noted after its earlier attempts, oldest first.
        characters: length of the shown history: the last steps that fit into it, but at least one.
    """
    lines = _lines(episode)
    while len(lines) > 1 and sum(map(len, lines)) > characters:
        lines = lines[1:]
    history = "\n".join(lines)
    return _REFLECT.format(
        agent=episode.setup.env.text.persona,
        goal=episode.task.goal,
        steps=episode.steps,
        history=history,
        notes=_noted(notes),
    )


def _lines(episode: Episode, thoughts: Sequence[str] | None = None) -> list[str]:
    """Return the template's line for each step, with its thought if there are any."""
    shown = [
        f"Thought {number}: '{thought}', " for number, thought in enumerate(thoughts or (), start=1)
    ]
    shown = shown or [""] * episode.steps
    return [
        f"[Observation {number}: '{seen}', {thought}Action {number}: '{action}']"
        for number, ((seen, action), thought) in enumerate(
            zip(episode.history, shown, strict=True), start=1
        )
    ]


def _noted(notes: Sequence[str]) -> str:
    lines = "\n".join(f"{number}. {note}" for number, note in enumerate(notes, start=1))
    return _NOTES.format(notes=lines) if notes else ""
