"""Copies a policy's weights into the model of an inference engine, in place, and compares the bits afterwards.

An engine stores weights its own way: projections fused, vocabularies padded. Its loader knows how. The loader is run once,
on tensors without data, and the copies that it makes are recorded; later syncs repeat these copies and nothing else.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

_INTEGER_TYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By width in bytes. Tensors are compared as integers, so that NaN equals itself and signed zeros differ."""


class SyncError(RuntimeError):
    """The engine's weights are not, or cannot be made, those of the policy: nothing may be sampled from them."""


class _Location(NamedTuple):
    """Where a weight of the engine is in memory."""

    storage: int
    """Address of its storage."""
    elements: int


@dataclass(frozen=True, slots=True)
class _Copy:
    """A part of a policy's tensor, and its target in the engine."""

    target: Tensor
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    """Elements from the beginning of the policy's tensor."""

    def select_source(self, tensor: Tensor) -> Tensor:
        """Return the part of the policy's tensor, on the target's device."""
        # The same view of the tensor that the loader took of its stand-in.
        part = tensor.as_strided(self.size, self.stride, tensor.storage_offset() + self.offset)
        return part.to(self.target.device)


class CopyPlan:
    """Which part of which tensor of a policy is copied to where in an engine's model; made once, used at every sync."""

    def __init__(self, model: nn.Module, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Let the engine's loader show where each tensor belongs. Nothing is copied yet.

        Args:
            model: the engine's; its method ``load_weights`` takes pairs of a name and a tensor.
            tensors: all that will be copied at a sync; only names, shapes and types are read.

        Raises:
            SyncError: if the loader does more than copy, or a tensor of either side has no counterpart.
        """
        self._model = model
        self._locations = _locate_weights(model)
        # Without data: the plan needs no second copy of the weights, and no ZeRO 3 parameter is gathered for it.
        stand_ins = {
            name: torch.empty(_read_shape(tensor), dtype=tensor.dtype, device="meta")
            for name, tensor in tensors
        }
        recorder = _CopyRecorder(stand_ins)
        loader: Any = model
        try:
            with recorder, torch.no_grad():
                loader.load_weights(iter(stand_ins.items()))
        except SyncError:
            raise
        # Any exception: loaders check little, so names, attributes, or that a weight has no data, may be what fails.
        except Exception as error:
            raise SyncError(f"the engine's loader fails ({type(error).__name__}: {error})") from error

        self._copies = recorder.copies
        self._shapes = {name: stand_in.shape for name, stand_in in stand_ins.items()}
        self._check_coverage(recorder.filled_elements)

    def sync(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Copy all tensors, then compare every bit of the engine's weights with the policy's.

        Raises:
            SyncError: if a bit differs, a tensor is missing or new, or the engine has moved a weight since.
        """
        if _locate_weights(self._model) != self._locations:
            raise SyncError(
                "the engine has put weights elsewhere since the copy plan was made; make a new sampler"
            )

        missing = set(self._copies)
        differences = []
        with torch.no_grad():
            for name, tensor in tensors:
                if tensor.shape != self._shapes.get(name) or not tensor.is_contiguous():
                    raise SyncError(
                        f"{name}: {tuple(tensor.shape)} is not as the copy plan has it; make a new sampler"
                    )
                missing.discard(name)
                for copy in self._copies[name]:
                    source = copy.select_source(tensor)
                    copy.target.copy_(source)
                    differences.append((_as_integers(copy.target) != _as_integers(source)).any())
        if missing:
            raise SyncError(
                f"{min(missing)} and {len(missing) - 1} more of the policy's weights were not given"
            )

        # One transfer for all tensors: on a GPU each would wait for the device.
        different = int(torch.stack(differences).sum())
        if different:
            raise SyncError(
                f"{different} of {len(differences)} weights of the engine differ from the policy's after the sync"
            )

    def _check_coverage(self, filled_elements: Counter[int]) -> None:
        """Check that every element of both sides has its counterpart; the engine may fill what it pads."""
        for name, shape in self._shapes.items():
            if sum(copy.target.numel() for copy in self._copies[name]) != shape.numel():
                raise SyncError(
                    f"{name}: the engine's loader does not copy this weight, or not as it is"
                )

        covered = Counter(filled_elements)
        for copies in self._copies.values():
            for copy in copies:
                covered[_storage_address(copy.target)] += copy.target.numel()
        for name, location in self._locations.items():
            found = covered[location.storage]
            if found < location.elements:
                raise SyncError(
                    f"{name}: the policy has {found} of the {location.elements} numbers of this weight of the engine"
                )


class _CopyRecorder(TorchDispatchMode):
    """Records copies of stand-ins (which have no data) into real tensors instead of making them."""

    def __init__(self, stand_ins: dict[str, Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # Stand-ins have no data and so no address; a view of one shares its storage object.
        self._names = {tensor.untyped_storage()._cdata: name for name, tensor in stand_ins.items()}
        self.copies: dict[str, list[_Copy]] = {name: [] for name in stand_ins}
        self.filled_elements: Counter[int] = Counter()
        """Elements that the loader has filled with a constant, by the address of the storage."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.copy_.default and args[1].is_meta and not args[0].is_meta:
            self._record(*args[:2])
            return args[0]
        # Padding of vocabularies is filled with a constant and has no counterpart in the policy.
        if func in (torch.ops.aten.fill_.Scalar, torch.ops.aten.zero_.default):
            self.filled_elements[_storage_address(args[0])] += args[0].numel()
        return func(*args, **(kwargs or {}))

    def _record(self, target: Tensor, source: Tensor) -> None:
        name = self._names.get(source.untyped_storage()._cdata)
        if name is None:
            raise SyncError(
                "the engine's loader computes with weights before it copies them; only copies can be repeated"
            )
        if target.shape != source.shape or target.dtype != source.dtype:
            raise SyncError(
                f"{name}: {tuple(source.shape)} of {source.dtype} in the policy, "
                f"{tuple(target.shape)} of {target.dtype} in the engine"
            )
        size = tuple(source.shape)
        offset = int(source.storage_offset())
        self.copies[name].append(_Copy(target.detach(), size, source.stride(), offset))


def _locate_weights(model: nn.Module) -> dict[str, _Location]:
    return {
        name: _Location(_storage_address(parameter), parameter.numel())
        for name, parameter in model.named_parameters()
    }


def _storage_address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _read_shape(tensor: Tensor) -> torch.Size:
    # At ZeRO 3 a parameter is empty between passes, and DeepSpeed stores its shape in an attribute.
    return torch.Size(getattr(tensor, "ds_shape", tensor.shape))


def _as_integers(tensor: Tensor) -> Tensor:
    return tensor.view(_INTEGER_TYPES[tensor.element_size()])
