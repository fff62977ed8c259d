"""The stage ``policy``: the base policy of an environment, and its strong clone."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from threespo.envs.registry import environment, environment_module
from threespo.imitation.curriculum import curriculum_module
from threespo.imitation.settings import SIZES, BasePolicySettings
from threespo.paths import Paths
from threespo.pipeline.stage import Files, Outputs, Stage
from threespo.policy.named.catalogue import resolve_source
from threespo.policy.settings import VllmSettings
from threespo.provenance.code import digest_reachable_code, function_reference
from threespo.provenance.digests import file_digest, list_files
from threespo.study.config import Study
from threespo.study.marks import json_digest
from threespo.study.matrix import base_policies

SMALL_FILE = 2**24
"""Bytes below which a file of a model is read whole to be told apart."""

BLOCKS, BLOCK = 64, 4096
"""Of a larger one so many blocks of so many bytes are read, evenly spread: training moves weights everywhere."""


def run(settings: BasePolicySettings) -> None:
    """Provide the policy."""
    from threespo.imitation.base_policy import provide_policy

    provide_policy(settings)


def base_policy_settings(study: Study, paths: Paths, name: str) -> BasePolicySettings:
    """Return what makes the base policy ``name`` (ENV/POLICY)."""
    env, policy = name.split("/")
    section = study.environments[env]
    spec = environment(env)
    settings = study.policies[policy]
    model = resolve_source(settings.source or "", settings.revision)
    return BasePolicySettings(
        paths=paths,
        env=env,
        policy=policy,
        kind=settings.kind,
        size_name=settings.size,
        size=SIZES[settings.size],
        weakness=settings.weakness,
        bases=settings.bases,
        source=model.source or None,
        revision=model.revision,
        given=model.package.weights_sha256[:16] if model.package else _digest_of_weights(model.source),
        tasks=spec.tasks.part_of(section),
        episode=spec.episode.part_of(section),
        build=study.policy_build,
        **(_warm_start_fields(study, name) if settings.warm_start else {}),
    )


def _warm_start_fields(study: Study, name: str) -> dict[str, Any]:
    """Return what a policy's settings have more where it is trained here: the device, and how it is sampled."""
    policy = study.policies[name.split("/")[1]]
    gpus = study.gpus_per_rank
    code = digest_reachable_code(function_reference(run), tuple(extra_modules(study, name)))
    return {
        "gpus": gpus,
        "runs_per_gpu": study.runs_per_gpu,
        "warm_start": policy.warm_start,
        # Measured with the sampler of the package: starting an engine for two dozen episodes would take longer.
        "sampling": policy.sampling(gpus).model_copy(
            update={"sampler": "torch", "vllm": VllmSettings()}
        ),
        "threads": study.training.threads,
        "code": json_digest(code),
    }


def policy_inputs(_: Study, paths: Paths, name: str) -> Files:
    """Return what making the base policy ``name`` (ENV/POLICY) reads."""
    return {"data": [paths.data(name.split("/")[0])]}


def policy_outputs(paths: Paths, name: str) -> Outputs:
    """Return what making the base policy ``name`` (ENV/POLICY) writes."""
    folder = paths.policy(*name.split("/"))
    return Outputs({"policy": [folder]}, (folder,))


def extra_modules(study: Study, name: str) -> Sequence[str]:
    """Return the modules that a policy's environment and its curriculum are found in."""
    env, policy = name.split("/")
    spec = environment_module(env, "spec")
    cloned = study.policies[policy].kind == "tiny" or study.policies[policy].warm_start is not None
    taught = cloned and environment(env).has_curriculum
    return (spec, curriculum_module(env)) if taught else (spec,)


def _digest_of_weights(source: str) -> str | None:
    """Return a digest of which model a local folder holds; ``None`` for a name on a hub.

    Weights count by size and a sample of their bytes, since the workflow asks at every start; configuration and tokenizer by
    what they say.
    """
    if not source or not Path(source).is_dir():
        return None
    lines = [
        f"{name} {file.stat().st_size} {file_digest(file) if file.stat().st_size < SMALL_FILE else _sampled(file)}"
        for name, file in list_files(Path(source))
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _sampled(file: Path) -> str:
    """Return a digest of some of a large file's bytes."""
    size = file.stat().st_size
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        for number in range(BLOCKS):
            stream.seek(number * (size - BLOCK) // (BLOCKS - 1))
            digest.update(stream.read(BLOCK))
    return digest.hexdigest()


STAGE = Stage(
    summary="provide the base policy (and its strong clone) of an environment",
    run=run,
    arguments=("env", "policy"),
    pattern="{env}/{policy}",
    jobs=lambda study: ["/".join(base) for base in base_policies(study)],
    settings=base_policy_settings,
    inputs=policy_inputs,
    outputs=policy_outputs,
    extra_modules=extra_modules,
)
