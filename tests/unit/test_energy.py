"""Energy counters of GPUs: read where they are, and nothing made up where they are not."""

import sys
from types import SimpleNamespace

import pytest

from threespo.provenance import energy


class NVMLError(Exception):
    pass


class Machine:
    """A stand-in for NVML with two GPUs, of which each reading finds 500 J and 250 J more."""

    NVMLError = NVMLError

    def __init__(self):
        self.readings, self.open = {"0": 0, "GPU-b": 0}, 0

    def nvmlInit(self):
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetHandleByIndex(self, index):
        return self._handle(str(index))

    def nvmlDeviceGetHandleByUUID(self, name):
        return self._handle(name)

    def _handle(self, name):
        if name not in self.readings:
            raise NVMLError(name)
        return SimpleNamespace(name=name)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        self.readings[handle.name] += {"0": 500_000, "GPU-b": 250_000}[handle.name]
        return self.readings[handle.name]


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


def test_energy_is_that_of_the_visible_gpus_in_joules(machine, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0, GPU-b")
    before = energy.read_energy_counters()
    assert before == {"0": 500.0, "GPU-b": 250.0}
    assert energy.energy_between(before, energy.read_energy_counters()) == {"energy_joules": 750.0}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b")
    assert energy.read_energy_counters() == {"GPU-b": 750.0}
    assert machine.open == 0


@pytest.mark.parametrize("visible", ["", "7", "0,GPU-c"])
def test_without_a_counter_for_every_gpu_nothing_is_said(machine, monkeypatch, visible):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert energy.read_energy_counters() is None
    assert energy.energy_between(None, {"0": 1.0}) == {}
    assert machine.open == 0


def test_without_the_library_or_with_a_counter_that_ran_back_nothing_is_said(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert energy.read_energy_counters() is None
    assert energy.energy_between({"0": 5.0}, {"0": 4.0}) == {}
    assert energy.energy_between({"0": 5.0}, {"1": 9.0}) == {}
