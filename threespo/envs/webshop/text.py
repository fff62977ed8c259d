"""WebShop in the words of a language model: the prompt, and how a response is read.

The wording of the template is that of the paper (app:prompts) and of verl-agent (``agent_system/environments/prompts/``,
Apache-2.0, Copyright the verl-agent authors). It decides what a pretrained model does, so its bytes, trailing blanks
included, are fixed by tests.
"""

from collections.abc import Sequence

from threespo.envs.base import TextInterface
from threespo.envs.prompts import format_history

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

# The limit of verl-agent's WebShop environment manager.
MAX_PROMPT_LENGTH = 13_000
"""A WebShop prompt with more characters is replaced by the one without history."""


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
            history="\n".join(
                format_history(history, len(shown)) if lines is None else lines[-len(shown) :]
            ),
            step=len(history) + 1,
            observation=observation,
            admissible=choices,
        )
        # A long page falls back to the template without history, as in verl-agent.
        if len(prompt) + len(last) <= MAX_PROMPT_LENGTH:
            return prompt + last

    return _WEBSHOP_FIRST.format(goal=goal, observation=observation, admissible=choices) + last


TEXT = TextInterface(
    prompt=webshop_prompt,
    persona="an expert autonomous agent operating in the WebShop e\u2011commerce environment",
    fallback_length=20,
)
