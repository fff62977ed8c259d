"""From a run's settings to its environment, tasks and policy: what training and evaluation both begin with."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threespo.envs.episode import EpisodeSetup
from threespo.envs.registry import environment
from threespo.envs.settings import EpisodeSettings
from threespo.errors import InputError
from threespo.files import read_json
from threespo.hub import find_model_folder
from threespo.paths import MANIFEST, POLICY_FILE, base_folder
from threespo.policy.packaged_model import provide_packaged_model, read_package
from threespo.policy.settings import MAX_BATCH_ROWS, SamplingSettings, TemplateSettings
from threespo.runs.settings import RunSettings

if TYPE_CHECKING:
    from threespo.policy.model import Policy
    from threespo.protocol import LocalSampler


def make_setup(env: str, settings: EpisodeSettings, data: Path) -> EpisodeSetup:
    """Return how episodes run in the environment ``env``, whose prepared tasks lie in ``data``."""
    made_env = environment(env).make(settings, data)
    return EpisodeSetup(made_env, settings.max_steps, settings.history_length)


def episode_setup(settings: RunSettings) -> EpisodeSetup:
    """Return how the episodes of a run are played."""
    env = settings.run.env
    return make_setup(env, settings.episode, settings.paths.data(env))


def load_tasks(settings: RunSettings, split: str) -> list[Any]:
    """Return the tasks of one split of the run's environment."""
    env = settings.run.env
    return environment(env).load_tasks(settings.paths.data(env), split)


def initial_weights(settings: RunSettings) -> str:
    """Return the folder of the untrained weights of a run's policy: the base, or the strong clone.

    Raises:
        InputError: if the policy stage has not run.
    """
    run = settings.run
    return read_weights_source(settings.paths.policy(run.env, run.policy), run.method, run.seed)


def read_prepared_inputs(settings: RunSettings) -> dict[str, Any]:
    """Return the descriptions of a run's base policy and tasks, which earlier stages have written."""
    run = settings.run
    paths = settings.paths
    files = {
        "base": paths.policy(run.env, run.policy) / POLICY_FILE,
        "tasks": paths.data(run.env) / MANIFEST,
    }
    return {
        name: read_json(file, "Run the study again: an earlier stage makes it.")
        for name, file in files.items()
    }


def read_weights_source(folder: Path, method: str, seed: int = 0) -> str:
    """Return the folder of the weights that a policy's folder describes, for a method or an untrained row.

    Args:
        folder: of the policy.
        method: of the run, or the name of an untrained row.
        seed: training seed of the run, or the number of the base.

    Raises:
        InputError: if the description is missing, or is none.
    """
    description = folder / POLICY_FILE
    facts = read_json(description, "Run the policy stage of the study first.")
    # Whatever else the file holds is reported as no description.
    if not isinstance(facts, dict):
        facts = {}
    kind = facts.get("kind")
    source = facts.get("source")
    if kind == "pretrained" and isinstance(source, str) and "warm_start" not in facts:
        # The stage only describes such a policy: its weights stay where they are, in a folder or in the
        # hub's cache.
        revision = facts.get("revision")
        files = facts.get("files")
        if isinstance(revision, str) and isinstance(files, dict):
            return str(find_model_folder(source, revision, files))
        if "package" in facts:
            return str(provide_packaged_model(source, read_package(facts["package"], description)))
        return source
    if kind != "tiny" and not (kind == "pretrained" and "warm_start" in facts):
        raise InputError(
            f"{description}: no description of a policy: expected the kind 'tiny', or 'pretrained' with a source, "
            f"found {str((kind, source))[:80]}. Remove its folder and run the study again: the policy stage makes it anew."
        )
    if method == "strong":
        return str(folder / method)

    bases = facts.get("bases", 1)
    if not isinstance(bases, int) or bases < 1:
        raise InputError(
            f"{description}: expected a number of bases from 1, found {str(bases)[:80]}. "
            "Remove its folder and run the study again: the policy stage makes it anew."
        )
    return str(folder / base_folder(seed % bases))


def load_run_policy(settings: RunSettings, source: str) -> "Policy":
    """Load weights as the study says, onto the GPU that the job has claimed, if any."""
    from threespo.policy.model import load_policy

    # A claim shows CUDA only the job's own GPUs, so the first is right.
    device = "cuda" if settings.gpus else "cpu"
    template = TemplateSettings.part_of(settings.sampling)
    return load_policy(source, settings.sampling.dtype, device, template=template)


def check_sampler_installed(settings: SamplingSettings) -> None:
    """Check that the study's sampler is installed, before anything is loaded that takes long.

    Raises:
        InputError: if vLLM is asked for, and is missing or of another version than the tested one.
    """
    if settings.sampler == "vllm":
        from threespo.policy.vllm_engine import check_vllm_installed

        check_vllm_installed()


def make_sampler(settings: SamplingSettings, policy: "Policy") -> "LocalSampler":
    """Return the sampler of a loaded policy, with ``auto`` resolved (``PolicySettings.sampling``).

    Args:
        settings: of the policy.
        policy: what is sampled from. Whoever calls the sampler sees to it that its weights are whole (``ShardedSampler``).
    """
    limits = {
        "max_new_tokens": settings.max_response_tokens,
        "max_prompt_tokens": settings.max_prompt_tokens,
    }
    if settings.sampler == "vllm":
        from threespo.policy.vllm_engine import VllmEngine
        from threespo.policy.vllm_sampler import VllmSampler

        engine = VllmEngine(policy, **limits, **settings.vllm.model_dump())
        return VllmSampler(policy, engine, **limits)

    from threespo.policy.sampler import TorchSampler

    return TorchSampler(policy, max_batch_rows=MAX_BATCH_ROWS, **limits)


def iterate_samplers(settings: RunSettings, sources: Iterable[str]) -> "Iterator[LocalSampler]":
    """Yield a sampler for the weights in each of several folders, one after another: an engine is started once for all."""
    sampler: LocalSampler | None = None
    for source in sources:
        policy = load_run_policy(settings, source)
        # vLLM takes minutes to start, so a running engine is given the next weights.
        if sampler is not None and settings.sampling.sampler == "vllm":
            from threespo.policy.vllm_sampler import VllmSampler

            assert isinstance(sampler, VllmSampler)
            sampler.set_policy(policy)
        else:
            sampler = make_sampler(settings.sampling, policy)
        yield sampler
