"""ALFWorld in the words of a language model: the prompt, and how a response is read.

The wording of the template is that of the paper (app:prompts) and of verl-agent (``agent_system/environments/prompts/``,
Apache-2.0, Copyright the verl-agent authors). It decides what a pretrained model does, so its bytes, trailing blanks
included, are fixed by tests.
"""

from collections.abc import Sequence

from threespo.envs.base import TextInterface
from threespo.envs.prompts import format_history

NOTHING_HAPPENS = "Nothing happens."
"""What the environment answers to a command that is not admissible."""

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
    return (
        _ALFWORLD.format(
            goal=goal,
            steps=len(history),
            shown=len(shown),
            history="\n".join(
                format_history(history, len(shown)) if lines is None else lines[-len(shown) :]
            ),
            step=len(history) + 1,
            observation=observation,
            admissible=choices,
        )
        + last
    )


TEXT = TextInterface(
    prompt=alfworld_prompt,
    persona="an expert agent operating in the ALFRED Embodied Environment",
    fallback_length=30,
    idle=NOTHING_HAPPENS,
)
