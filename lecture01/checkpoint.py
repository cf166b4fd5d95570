"""Keeping a model in a file: written in one step or not at all, and read only if it is whole and the right one.

The file is in the safetensors format, which holds tensors and text but no code. Its metadata has, besides the caller's
own entries, `fingerprint` (what the model belongs to) and `digest` (a checksum of everything else in the file).
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor, nn

FORMAT = 1  # to be raised when the same weights would mean another model


class CheckpointError(Exception):
    """A checkpoint that can't be used. The message says which one and why."""


class DamagedCheckpoint(CheckpointError):
    """The file isn't what was once written: cut short, changed, or not a safetensors file at all."""


class ForeignCheckpoint(CheckpointError):
    """The file is whole, but of another world, tokenizer or model."""


def fingerprint(train_text: str, val_text: str, alphabet: str, model: nn.Module) -> str:
    """A name for what a trained model depends on: the texts, the order of the characters, the model's shape. 64 digits."""
    shapes = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    heads = [module.n_heads for module in model.modules() if hasattr(module, "n_heads")]
    everything = [FORMAT, train_text, val_text, alphabet, type(model).__name__, shapes, heads]
    return hashlib.sha256(json.dumps(everything).encode()).hexdigest()


def save(path: Path, state: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write `state` to `path`, whose folder is made if need be. `metadata` has a `fingerprint`.

    The file appears under its name complete or not at all, whatever interrupts this. `OSError` if it can't be written.
    """
    header, _, payload = _split(safetensors.save(state), path)
    raw = safetensors.save(state, metadata | {"digest": _digest(header, metadata, payload)})
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")  # same folder: a rename can't cross file systems
    try:
        temporary.write_bytes(raw)
        try:
            os.replace(temporary, path)
        except PermissionError:
            # Windows, while another process has the target open: all is well if it has just written the same model.
            try:
                load(path, metadata["fingerprint"], state)
            except (OSError, CheckpointError):
                pass
            else:
                return
            raise
    finally:
        temporary.unlink(missing_ok=True)


def load(
    path: Path, expected_fingerprint: str, expected: dict[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of the checkpoint at `path`.

    The tensors have the names, shapes and dtypes of those in `expected` and are finite. Anything else is a
    `DamagedCheckpoint` or a `ForeignCheckpoint`; `OSError` if the file can't be read.
    """
    raw = path.read_bytes()  # not mapped into memory: a mapped file can't be replaced on Windows
    header, metadata, payload = _split(raw, path)
    if not {"digest", "fingerprint"} <= metadata.keys():
        raise ForeignCheckpoint(f"{path} was not written as a checkpoint of this course")
    if metadata.pop("digest") != _digest(header, metadata, payload):
        raise DamagedCheckpoint(f"{path} is damaged: its content has changed since it was written")
    if metadata["fingerprint"] != expected_fingerprint:
        raise ForeignCheckpoint(f"{path} belongs to another world, tokenizer or model")
    try:
        state = safetensors.load(raw)
    except SafetensorError as error:
        raise DamagedCheckpoint(f"{path} is damaged: {error}") from None
    _check_tensors(path, state, expected)
    return state, metadata


def _check_tensors(path: Path, state: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    if state.keys() != expected.keys():
        names = ", ".join(sorted(state.keys() ^ expected.keys()))
        raise ForeignCheckpoint(f"{path} holds other tensors than the model; they differ in {names}")
    for name, tensor in state.items():
        wanted = expected[name]
        if (tensor.shape, tensor.dtype) != (wanted.shape, wanted.dtype):
            raise ForeignCheckpoint(
                f"{path}: {name} is {tensor.dtype} {tuple(tensor.shape)}, the model's is {wanted.dtype} {tuple(wanted.shape)}"
            )
        if not torch.isfinite(tensor).all():
            raise DamagedCheckpoint(f"{path} is damaged: {name} has values that are not finite")


def _split(raw: bytes, path: Path) -> tuple[dict[str, object], dict[str, str], bytes]:
    """The three parts of a safetensors file: what it says of the tensors, the metadata, the tensors' bytes.

    The file begins with the length of a JSON object, in 8 bytes. Whether the object describes the tensors rightly is
    left to the safetensors library.
    """
    end = 8 + int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or end > len(raw):
        raise DamagedCheckpoint(f"{path} is damaged: it is cut short, or not a safetensors file")
    try:
        header = json.loads(raw[8:end])
        metadata = header.pop("__metadata__", {})
        metadata.keys()
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise DamagedCheckpoint(f"{path} is damaged: its header can't be read") from None
    return header, metadata, raw[end:]


def _digest(header: dict[str, object], metadata: dict[str, str], payload: bytes) -> str:
    return hashlib.sha256(json.dumps([header, metadata], sort_keys=True).encode() + payload).hexdigest()
