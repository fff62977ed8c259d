"""One engine for all tests here: the real vLLM on a CPU, with a tiny policy that the package ships."""

import pytest
import torch

from tests.vllm.checks import LONGEST, NEW, SHIPPED, started
from threespo.policy.model import Policy, load_policy
from threespo.policy.vllm_engine import VllmEngine
from threespo.policy.vllm_sampler import VllmSampler

torch.set_num_threads(1)


@pytest.fixture
def policy() -> Policy:
    return load_policy(SHIPPED / "base")


@pytest.fixture(scope="session")
def engine() -> VllmEngine:
    return started(load_policy(SHIPPED / "base"))


@pytest.fixture
def sampler(engine: VllmEngine, policy: Policy) -> VllmSampler:
    """A sampler of a policy that nobody has changed yet."""
    return VllmSampler(policy, engine, NEW, LONGEST)
