"""What judge and solver say to each other: frames of a JSON header and safetensors bytes, measured before they are read.

A frame is two lengths (4 bytes each, big endian), the header, and the tensors. The header is a tree of plain values;
tensors, fractions, tuples, modules and so on are objects `{kind: content}` in it. Nothing is ever unpickled. Whatever
is wrong with a frame is a `WireError`, and nothing else.
"""

from __future__ import annotations

import builtins
import json
import math
import numbers
import select
import socket
import struct
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from exercises.checks import Foreign, bytes_of
from tiny_gpt import CausalSelfAttention, TinyGPT

HEADER_BYTES = 2 << 20
TENSOR_BYTES = 64 << 20
TENSORS = 5_000
TENSOR_HEADER_BYTES = 200 * TENSORS  # where safetensors describes them
NODES = 200_000
DEPTH = 24
DIGITS = 1_000  # hexadecimal, of one integer
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""By the names that the safetensors format has for them."""
_LENGTHS = struct.Struct(">II")


class WireError(Exception):
    """A frame that is malformed, too large, or can't be made."""


class WireClosed(WireError):
    """The other side is gone."""


class WireTimeout(WireError):
    """The other side said nothing in time."""


def send(connection: socket.socket, value: Any, deadline: float | None = None) -> None:
    """Send one frame; `deadline` is of the monotonic clock, and blocks for ever where it is None.

    A value that can't be sent, or is too large, is a `WireError` before anything is written.
    """
    data = memoryview(dumps(value))
    connection.setblocking(False)
    while data:
        try:
            data = data[connection.send(data) :]
        except BlockingIOError:
            _wait(connection, select.POLLOUT, deadline)
        except OSError as error:
            raise WireClosed("the other side does not read any more") from error


def receive(connection: socket.socket, deadline: float | None = None, modules: bool = False) -> Any:
    """The value of the next frame. Only the solver takes modules: building one can cost any amount of memory."""
    header, tensors = _LENGTHS.unpack(_read(connection, _LENGTHS.size, deadline))
    _measure(header, tensors)
    data = _read(connection, header + tensors, deadline)
    return loads(data[:header], data[header:], modules)


def dumps(value: Any) -> bytes:
    """The frame of `value`."""
    writer = _Writer()
    try:
        header = json.dumps(writer.tree(value, 0), ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
        tensors = _safetensors(writer.tensors) if writer.tensors else b""
    except WireError:
        raise
    except Exception as error:
        raise WireError(f"this can't be sent: {type(error).__name__}") from error
    _measure(len(header), len(tensors))
    return _LENGTHS.pack(len(header), len(tensors)) + header + tensors


def loads(header: bytes, tensors: bytes, modules: bool = False) -> Any:
    """The value of a frame's two parts."""
    if int.from_bytes(tensors[:8], "little") > TENSOR_HEADER_BYTES:
        raise WireError("too many tensors")
    try:
        found = safetensors.torch.load(tensors) if tensors else {}
        if len(found) > TENSORS or any(tensor.dtype not in DTYPES for tensor in found.values()):
            raise WireError("too many tensors, or a dtype that is not known here")
        return _Reader(found, modules).value(json.loads(header, parse_constant=_no_constant), 0)
    except WireError:
        raise
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # Rust's panics are no Exception
        raise WireError(f"malformed frame: {type(error).__name__}") from None


def _safetensors(tensors: dict[str, Tensor]) -> bytes:
    """Dense tensors in the safetensors format. The library's own writer needs NumPy, which nothing else here does."""
    entries, pieces, offset = {}, [], 0
    for name, tensor in tensors.items():
        pieces.append(bytes_of(tensor))
        place = [offset, offset := offset + tensor.nbytes]
        entries[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": place}
    if offset > TENSOR_BYTES:
        raise WireError(f"{offset} bytes of tensors are more than {TENSOR_BYTES}")
    head = json.dumps(entries).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + b"".join(pieces)


def _measure(header: int, tensors: int) -> None:
    if header > HEADER_BYTES or tensors > TENSOR_BYTES:
        raise WireError(f"a frame of {header} + {tensors} bytes is larger than {HEADER_BYTES} + {TENSOR_BYTES}")


def _read(connection: socket.socket, count: int, deadline: float | None) -> bytes:
    connection.setblocking(False)
    chunks = []
    while count:
        try:
            chunk = connection.recv(min(count, 1 << 20))
        except BlockingIOError:
            _wait(connection, select.POLLIN, deadline)
            continue
        except OSError as error:
            raise WireClosed("the other side is gone") from error
        if not chunk:
            raise WireClosed("the other side is gone")
        chunks.append(chunk)
        count -= len(chunk)
    return b"".join(chunks)


def _wait(connection: socket.socket, event: int, deadline: float | None) -> None:
    poll = select.poll()
    poll.register(connection, event)
    left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
    if not poll.poll(left):
        raise WireTimeout("no answer in time")


def _no_constant(name: str) -> None:
    raise WireError(f"{name} is no JSON")


class _Writer:
    """Turns a value into a tree for the header, and gathers its tensors."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.nodes = 0

    def tree(self, value: Any, depth: int) -> Any:
        self.nodes += 1
        if depth > DEPTH or self.nodes > NODES or len(self.tensors) > TENSORS:
            raise WireError("a value is nested too deeply, or has too many parts")
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            return value if abs(value) < 2**53 else {"int": _hexadecimal(value)}
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind is list:
            return [self.tree(item, depth + 1) for item in value]
        if kind is tuple or isinstance(value, torch.Size):
            return {"tuple": [self.tree(item, depth + 1) for item in value]}
        if kind is dict:
            return {"dict": [[self.tree(part, depth + 1) for part in item] for item in value.items()]}
        if isinstance(value, Tensor):
            return {"tensor": self.tensor(value)}
        if isinstance(value, nn.Module):
            state = {name: self.tensor(tensor) for name, tensor in value.state_dict().items()}
            return {"module": {"plan": _plan(value), "state": state, "training": value.training}}
        if isinstance(value, numbers.Integral):
            return self.tree(int(value), depth)
        if isinstance(value, numbers.Rational):
            return {"fraction": [_hexadecimal(int(value.numerator)), _hexadecimal(int(value.denominator))]}
        if isinstance(value, numbers.Real):
            return self.tree(float(value), depth)
        return {"foreign": value.type if kind is Foreign else kind.__name__}

    def tensor(self, value: Tensor) -> str:
        name = str(len(self.tensors))
        if value.dtype not in DTYPES or value.layout is not torch.strided or value.device.type != "cpu":
            raise WireError(f"a tensor of {value.dtype} can't be sent")
        self.tensors[name] = value.detach().contiguous()
        return name


def _hexadecimal(value: int) -> str:
    if value.bit_length() > 4 * DIGITS:
        raise WireError("an integer is too large")
    return hex(value)


class _Reader:
    """Turns a header's tree back into the value. Only what a known kind describes can come out of it."""

    def __init__(self, tensors: dict[str, Tensor], modules: bool) -> None:
        self.tensors = tensors
        self.modules = modules
        self.nodes = 0

    def value(self, tree: Any, depth: int) -> Any:
        self.nodes += 1
        if depth > DEPTH or self.nodes > NODES:
            raise WireError("nested too deeply, or too many parts")
        if isinstance(tree, list):
            return [self.value(item, depth + 1) for item in tree]
        if not isinstance(tree, dict):
            return tree
        ((kind, content),) = tree.items()
        read: dict[str, Callable[[], Any]] = {
            "tuple": lambda: tuple(self.value(item, depth + 1) for item in content),
            "dict": lambda: {self.key(key, depth): self.value(item, depth + 1) for key, item in content},
            "tensor": lambda: self.tensors[content],
            "module": lambda: self.module(**content),
            "int": lambda: _from_hexadecimal(content),
            "float": lambda: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[content],
            "fraction": lambda: Fraction(*map(_from_hexadecimal, content)),
            "foreign": lambda: Foreign(content if isinstance(getattr(builtins, content, None), type) else ""),
        }
        return read[kind]()

    def key(self, tree: Any, depth: int) -> Any:
        key = self.value(tree, depth + 1)
        if not isinstance(key, (str, int, bool, type(None))):
            raise WireError("a key is neither text nor number")
        return key

    def module(self, plan: list, state: dict[str, str], training: bool) -> nn.Module:
        if not self.modules:
            raise WireError("a module where none can be")
        with torch.random.fork_rng(devices=[]):
            module = _built(plan, depth=0)
        tensors = {name: self.tensors[content] for name, content in state.items()}
        if tensors:
            module.to(next(iter(tensors.values())).dtype)
        module.load_state_dict(tensors)
        return module.train(training)


def _from_hexadecimal(text: str) -> int:
    if not isinstance(text, str) or len(text) > DIGITS + 4:
        raise WireError("an integer is too large")
    return int(text, 16)


def _plan(module: nn.Module) -> list:
    """How to build `module` anew: the name of a known class, and its arguments."""
    match module:
        case TinyGPT():
            block: Any = module.blocks[0]
            sizes = (module.tok_emb.embedding_dim, block.attn.n_heads, len(module.blocks), block.mlp[0].out_features)
            return ["TinyGPT", module.tok_emb.num_embeddings, *sizes, module.context]
        case CausalSelfAttention():
            return ["CausalSelfAttention", module.q_proj.in_features, module.n_heads]
        case nn.Sequential():
            return ["Sequential", *map(_plan, module)]
        case nn.Linear():
            return ["Linear", module.in_features, module.out_features, module.bias is not None]
        case nn.GELU():
            return ["GELU"]
        case nn.Identity():
            return ["Identity"]
    raise WireError(f"a module of type {type(module).__name__} can't be sent")


_KNOWN: dict[str, Callable[..., nn.Module]] = {
    "TinyGPT": TinyGPT,
    "CausalSelfAttention": CausalSelfAttention,
    "Linear": nn.Linear,
    "GELU": nn.GELU,
    "Identity": nn.Identity,
}


def _built(plan: list, depth: int) -> nn.Module:
    name, *arguments = plan
    if name == "Sequential" and depth < DEPTH:
        return nn.Sequential(*(_built(part, depth + 1) for part in arguments))
    return _KNOWN[name](*arguments)
