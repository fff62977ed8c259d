"""From a study to its environment, tasks and policies: what training and evaluation both begin with."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threespo.envs.base import Environment
from threespo.envs.episode import World
from threespo.errors import InputError
from threespo.runs.data import CATALOGUE
from threespo.study.config import Study
from threespo.study.environments import AlfworldSettings, EnvironmentSettings, WebshopSettings
from threespo.study.matrix import REFERENCE_METHODS, Paths, Run, plays_weights_of

if TYPE_CHECKING:
    from threespo.policy.model import Policy


def make_world(study: Study, env: str, data: Path) -> World:
    """Return the environment ``env`` with the study's limits and engine; a shop is opened from the data folder."""
    settings = study.environments[env]
    return World(_environment(settings, data), settings.max_steps, settings.history_length)


def _environment(settings: EnvironmentSettings, data: Path) -> Environment[Any, Any]:
    if isinstance(settings, WebshopSettings):
        from threespo.envs.webshop import Catalogue, WebShop

        return WebShop(Catalogue(data / CATALOGUE), mode=settings.mode, fidelity=settings.fidelity)
    assert isinstance(settings, AlfworldSettings)
    if settings.engine == "textworld":
        from threespo.envs.alfworld.textworld import TextWorldAlfworld

        return TextWorldAlfworld()
    from threespo.envs.alfworld import Alfworld

    return Alfworld()


def policy_source(study: Study, paths: Paths, run: Run) -> str:
    """Return the folder (or hub name) of the untrained weights of a run's policy: the base, or the strong clone.

    Raises:
        InputError: if the policy stage has not run.
    """
    folder = paths.policy(run.env, run.policy)
    description = folder / "policy.json"
    try:
        facts: dict[str, Any] = json.loads(description.read_text())
        kind, source = facts["kind"], str(facts.get("source"))
    except OSError as error:
        raise InputError(f"{description}: not readable ({error}); run the policy stage of the study first") from error
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{description}: no description of a policy ({type(error).__name__}: {error}); "
            "remove its folder and run the study again: the policy stage makes it anew"
        ) from error
    if kind == "pretrained":
        return source
    return str(folder / (run.method if run.method in REFERENCE_METHODS else "base"))


def judged_source(study: Study, paths: Paths, run: Run) -> str:
    """Return the folder (or hub name) of the weights that ``run`` is evaluated with: its own, or its policy's."""
    return str(paths.run(run) / "weights") if plays_weights_of(study, run) == "run" else policy_source(study, paths, run)


def load_run_policy(study: Study, source: str, policy: str) -> "Policy":
    """Load weights with the study's settings for ``policy``, onto the GPU that the job has claimed, if any."""
    from threespo.policy.model import load_policy

    device = "cuda" if study.gpus_per_run else "cpu"
    return load_policy(source, dtype=study.policies[policy].dtype, device=device)


def make_sampler(study: Study, loaded: "Policy", policy: str) -> Any:
    """Return the sampler of a loaded policy."""
    from threespo.policy.sampler import TorchSampler

    settings = study.policies[policy]
    return TorchSampler(
        loaded,
        max_new_tokens=settings.max_response_tokens,
        max_batch_rows=256,
        max_prompt_tokens=settings.max_prompt_tokens,
    )
