"""The agent's prompts: the one text that is repeated verbatim from elsewhere.

The wording of the ALFWorld and WebShop templates is that of the paper (app:prompts) and of verl-agent
(``agent_system/environments/prompts/``, Apache-2.0, Copyright the verl-agent authors). It decides what a pretrained model
does, so its bytes, trailing blanks included, are fixed by tests.
"""

from collections.abc import Callable, Sequence

_INSTRUCTION = (
    "Now it's your turn to take an action.\n"
    "You should first reason step-by-step about the current situation. This reasoning process MUST be enclosed within "
    "<think> </think> tags. \n"
    "Once you've finished your reasoning, you should choose an admissible action for current step and present it within "
    "<action> </action> tags.\n"
)

_ALFWORLD_FIRST = (
    "\nYou are an expert agent operating in the ALFRED Embodied Environment.\n"
    "Your current observation is: {observation}\n"
    "Your admissible actions of the current situation are: [{admissible}].\n\n"
)

_ALFWORLD = (
    "\nYou are an expert agent operating in the ALFRED Embodied Environment. Your task is to: {goal}\n"
    "Prior to this step, you have already taken {steps} step(s). Below are the most recent {shown} observations and the "
    "corresponding actions you took: {history}\n"
    "You are now at step {step} and your current observation is: {observation}\n"
    "Your admissible actions of the current situation are: [{admissible}].\n\n"
)

_WEBSHOP_INSTRUCTION = (
    "Now it's your turn to take one action for the current step.\n"
    "You should first reason step-by-step about the current situation, then think carefully which admissible action best "
    "advances the shopping goal. This reasoning process MUST be enclosed within <think> </think> tags. \n"
    "Once you've finished your reasoning, you should choose an admissible action for current step and present it within "
    "<action> </action> tags.\n"
)

# The hyphen of e-commerce is U+2011, as in the originals; the first template has a blank at the end of that line.
_WEBSHOP_FIRST = (
    "\nYou are an expert autonomous agent operating in the WebShop e\u2011commerce environment. \n"
    "Your task is to: {goal}.\n"
    "Your current observation is: {observation}.\n"
    "Your admissible actions of the current situation are: \n[\n{admissible}\n].\n\n"
)

_WEBSHOP = (
    "\nYou are an expert autonomous agent operating in the WebShop e\u2011commerce environment.\n"
    "Your task is to: {goal}.\n"
    "Prior to this step, you have already taken {steps} step(s). Below are the most recent {shown} observations and the "
    "corresponding actions you took: {history}\n"
    "You are now at step {step} and your current observation is: {observation}.\n"
    "Your admissible actions of the current situation are: \n[\n{admissible}\n].\n\n"
)

WEBSHOP_LONGEST_PROMPT = 13_000
"""A WebShop prompt with more characters is replaced by the one without history."""


def alfworld_prompt(
    goal: str,
    observation: str,
    admissible: Sequence[str],
    history: Sequence[tuple[str, str]],
    history_length: int,
    *,
    lines: Sequence[str] | None = None,
    instruction: str | None = None,
    preface: str = "",
) -> str:
    """Return the ALFWorld prompt; with the three last arguments left out, the paper's.

    Args:
        goal: the instruction, as in the game ("put some mug on desk.").
        observation: the current observation; the first one of a game contains the goal.
        admissible: admissible actions; ``help`` is never shown to the agent.
        history: all (observation, action) pairs of the episode so far, oldest first.
        history_length: how many of the last pairs are shown; the template without history serves 0 and step 1.
        lines: a line for each pair of ``history``, in place of the template's own.
        instruction: what to do now, in place of the template's request for reasoning and an action.
        preface: a text before the instruction.
    """
    last = preface + (_INSTRUCTION if instruction is None else instruction)
    shown = history[-history_length:] if history_length else ()
    choices = "\n ".join(f"'{action}'" for action in admissible if action != "help")
    if not shown:
        return _ALFWORLD_FIRST.format(observation=observation, admissible=choices) + last
    return _ALFWORLD.format(
        goal=goal,
        steps=len(history),
        shown=len(shown),
        history="\n".join(_history_lines(history, len(shown)) if lines is None else lines[-len(shown) :]),
        step=len(history) + 1,
        observation=observation,
        admissible=choices,
    ) + last


def webshop_prompt(
    goal: str,
    observation: str,
    admissible: Sequence[str],
    history: Sequence[tuple[str, str]],
    history_length: int,
    *,
    lines: Sequence[str] | None = None,
    instruction: str | None = None,
    preface: str = "",
) -> str:
    """Return the WebShop prompt; with the three last arguments left out, the paper's.

    Args:
        goal: the instruction.
        observation: the page as the agent sees it, without the instruction.
        admissible: admissible actions.
        history: all (observation, action) pairs of the episode so far, oldest first.
        history_length: how many of the last pairs are shown; the template without history serves 0 and step 1.
        lines: a line for each pair of ``history``, in place of the template's own.
        instruction: what to do now, in place of the template's request for reasoning and an action.
        preface: a text before the instruction.
    """
    last = preface + (_WEBSHOP_INSTRUCTION if instruction is None else instruction)
    shown = history[-history_length:] if history_length else ()
    choices = "\n".join(f"'{action}'," for action in admissible)
    if shown:
        prompt = _WEBSHOP.format(
            goal=goal,
            steps=len(history),
            shown=len(shown),
            history="\n".join(_history_lines(history, len(shown)) if lines is None else lines[-len(shown) :]),
            step=len(history) + 1,
            observation=observation,
            admissible=choices,
        )
        if len(prompt) + len(last) <= WEBSHOP_LONGEST_PROMPT:
            return prompt + last
    return _WEBSHOP_FIRST.format(goal=goal, observation=observation, admissible=choices) + last


def _history_lines(history: Sequence[tuple[str, str]], count: int) -> list[str]:
    """Return the templates' lines of the last ``count`` pairs."""
    return [
        f"[Observation {number}: '{seen}', Action {number}: '{action}']"
        for number, (seen, action) in enumerate(history[-count:], start=len(history) - count + 1)
    ]


def tree_prompt(goal: str, observation: str, *_: object, **__: object) -> str:
    """Return all that a table needs to know of a decision tree."""
    return f"{goal}\n{observation}"


PROMPTS: dict[str, Callable[..., str]] = {
    "alfworld": alfworld_prompt,
    "webshop": webshop_prompt,
    "tree": tree_prompt,
}
"""The template of each environment, by its name; all take the arguments of ``alfworld_prompt``."""
