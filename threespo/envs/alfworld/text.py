"""ALFWorld's prompt.

The wording of the template is that of the paper (app:prompts) and of verl-agent (``agent_system/environments/prompts/``,
Apache-2.0, Copyright the verl-agent authors). It decides what a pretrained model does, so its bytes, trailing blanks
included, are fixed by tests.
"""

from collections.abc import Sequence

from threespo.envs.base import TextInterface
from threespo.envs.prompts import format_history

# The environment's answer to a command that is not admissible.
NOTHING_HAPPENS = "Nothing happens."

_INSTRUCTION = (
    "Now it's your turn to take an action.\n"
    "You should first reason step-by-step about the current situation. This reasoning process MUST be enclosed within "
    "<think> </think> tags. \n"
    "Once you've finished your reasoning, you should choose an admissible action for current step and present it within "
    "<action> </action> tags.\n"
)

_PROMPT_WITHOUT_HISTORY = (
    "\nYou are an expert agent operating in the ALFRED Embodied Environment.\n"
    "Your current observation is: {observation}\n"
    "Your admissible actions of the current situation are: [{admissible}].\n\n"
)

_PROMPT_WITH_HISTORY = (
    "\nYou are an expert agent operating in the ALFRED Embodied Environment. Your task is to: {goal}\n"
    "Prior to this step, you have already taken {steps} step(s). Below are the most recent {shown} observations and the "
    "corresponding actions you took: {history}\n"
    "You are now at step {step} and your current observation is: {observation}\n"
    "Your admissible actions of the current situation are: [{admissible}].\n\n"
)


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
        history_length: number of last pairs shown; for 0 and at step 1 the template without history is used.
        lines: a line for each pair of ``history``, in place of the template's own.
        instruction: replaces the template's request for reasoning and an action.
        preface: a text before the instruction.
    """
    ending = preface + (_INSTRUCTION if instruction is None else instruction)
    choices = "\n ".join(f"'{action}'" for action in admissible if action != "help")
    shown = min(history_length, len(history))
    if not shown:
        return _PROMPT_WITHOUT_HISTORY.format(observation=observation, admissible=choices) + ending

    shown_lines = format_history(history, shown) if lines is None else lines[-shown:]
    prompt = _PROMPT_WITH_HISTORY.format(
        goal=goal,
        steps=len(history),
        shown=shown,
        history="\n".join(shown_lines),
        step=len(history) + 1,
        observation=observation,
        admissible=choices,
    )
    return prompt + ending


TEXT = TextInterface(
    prompt=alfworld_prompt,
    persona="an expert agent operating in the ALFRED Embodied Environment",
    fallback_length=30,
    idle=NOTHING_HAPPENS,
)
