"""The wire: what goes in comes out, and whatever else arrives is a `WireError` and nothing worse."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import struct
import threading
import time
from fractions import Fraction

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from exercises import samples
from exercises.checks import Foreign
from grader.solver import wire

QUICK = settings(deadline=None, database=None, max_examples=150, suppress_health_check=list(HealthCheck))

NUMBERS = st.one_of(
    st.integers(-(10**300), 10**300), st.floats(), st.booleans(), st.none(), st.fractions(), st.text(max_size=20)
)
KEYS = st.one_of(st.text(max_size=10), st.integers(), st.booleans(), st.none())


def tensors() -> st.SearchStrategy[torch.Tensor]:
    def made(shape: list[int], dtype: torch.dtype, seed: int) -> torch.Tensor:
        values = torch.randint(-100, 100, shape, generator=torch.Generator().manual_seed(seed))
        return values.to(dtype)

    return st.builds(
        made, st.lists(st.integers(0, 4), max_size=4), st.sampled_from(list(wire.DTYPES)), st.integers(0, 99)
    )


VALUES = st.recursive(
    NUMBERS | tensors(),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def parts_of(frame: bytes) -> tuple[bytes, bytes]:
    header, tensors = struct.unpack(">II", frame[:8])
    assert len(frame) == 8 + header + tensors
    return frame[8 : 8 + header], frame[8 + header :]


def same(one, other) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    return one == other and (type(one) is type(other) or (isinstance(one, Fraction) and one.denominator == 1))


@QUICK
@given(VALUES)
def test_what_goes_in_comes_out(value):
    assert same(value, wire.loads(*parts_of(wire.dumps(value))))


@QUICK
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes(header, tensors):
    _only_wire_errors(header, tensors)


TREES = st.recursive(
    NUMBERS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(
                ["tuple", "dict", "tensor", "module", "int", "float", "fraction", "foreign", "plan", "state", "0"]
            ),
            inner,
            max_size=2,
        ),
    ),
    max_leaves=15,
)


@QUICK
@given(TREES, st.booleans())
def test_any_header(tree, modules):
    header = json.dumps(tree, default=str).encode()
    _only_wire_errors(header, wire.dumps(torch.zeros(2))[-80:], modules=modules)
    _only_wire_errors(header, b"", modules=modules)


@QUICK
@given(VALUES, st.data())
def test_damaged_frames(value, data):
    """One byte of a good frame is another, or its end is missing."""
    header, tensors = (bytearray(part) for part in parts_of(wire.dumps([value, torch.ones(3)])))
    part = data.draw(st.sampled_from([header, tensors]))
    place = data.draw(st.integers(0, len(part) - 1))
    if data.draw(st.booleans()):
        part[place] = data.draw(st.integers(0, 255))
    else:
        del part[place:]
    _only_wire_errors(bytes(header), bytes(tensors))


def _only_wire_errors(header: bytes, tensors: bytes, modules: bool = False) -> None:
    with contextlib.suppress(wire.WireError):
        wire.loads(header, tensors, modules)


def tensor_header(entries: dict) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


EVIL = {
    "deep lists": (b"[" * 100_000 + b"]" * 100_000, b""),
    "deep dicts": (b'{"tuple":[' * 50_000 + b"1" + b"]}" * 50_000, b""),
    "many parts": (b"[" + b"0," * 500_000 + b"0]", b""),
    "a huge integer": (b"9" * 1_000_000, b""),
    "a huge hexadecimal": (b'{"int":"' + b"f" * 1_000_000 + b'"}', b""),
    "NaN as a word": (b"NaN", b""),
    "division by zero": (b'{"fraction":["0x1","0x0"]}', b""),
    "three halves": (b'{"fraction":["0x1","0x2","0x3"]}', b""),
    "an unknown kind": (b'{"eval":"1"}', b""),
    "two kinds": (b'{"tuple":[],"dict":[]}', b""),
    "no kind": (b"{}", b""),
    "an unknown tensor": (b'{"tensor":"7"}', b""),
    "a list of tensors": (b'{"tensor":["0"]}', b""),
    "a tensor as key": (b'{"dict":[[{"tuple":[]},1]]}', b""),
    "half a character": (b'"\xff"', b""),
    "a module": (b'{"module":{"plan":["Linear",100000,100000,true],"state":{},"training":true}}', b""),
    "no tensors": (b"0", b"\xff" * 20),
    "a header beyond the end": (b"0", struct.pack("<Q", 10**6) + b"{}"),
    "many tensors": (
        b"0",
        tensor_header({str(i): {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(50_000)}),
    ),
    "overlapping tensors": (
        b"0",
        tensor_header({n: {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]} for n in "ab"}) + b"1234",
    ),
    "a shape that overflows": (
        b"0",
        tensor_header({"0": {"dtype": "F64", "shape": [2**62, 2**62], "data_offsets": [0, 0]}}),
    ),
    "complex numbers": (b"0", tensor_header({"0": {"dtype": "C64", "shape": [0], "data_offsets": [0, 0]}})),
}


@pytest.mark.parametrize("name", list(EVIL))
def test_evil_frames(name):
    began = time.monotonic()
    with pytest.raises(wire.WireError):
        wire.loads(*EVIL[name])
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(1, dtype=torch.complex64),
        torch.zeros(2, 2).to_sparse(),
        torch.empty(1, device="meta"),
        torch.zeros(1 << 24, dtype=torch.float64),
        10**5000,
        ["x" * 1000] * 3000,
        [[0] * 1000] * 1000,
        nn.Conv1d(1, 1, 1),
    ],
    ids=["complex", "sparse", "meta", "large tensor", "large number", "much text", "many parts", "unknown module"],
)
def test_what_cannot_be_sent(value):
    with pytest.raises(wire.WireError):
        wire.dumps(value)


def test_what_contains_itself_cannot_be_sent():
    value: list = []
    value.append(value)
    with pytest.raises(wire.WireError):
        wire.dumps(value)


def test_of_other_objects_their_type_is_left_if_it_is_pythons():
    class Secret:
        pass

    known, unknown = wire.loads(*parts_of(wire.dumps([set(), Secret()])))
    assert isinstance(known, Foreign) and (known.type, unknown.type) == ("set", "")


def test_modules_arrive_as_they_were():
    for module in (samples.mlp(6, 8, seed=1), samples.attention(12, 3, seed=2).double(), nn.Identity()):
        copy = wire.loads(*parts_of(wire.dumps(module.eval())), modules=True)
        assert type(copy) is type(module) and not copy.training
        assert same(dict(module.state_dict()), dict(copy.state_dict()))


def test_receiving_ends_in_time():
    """A frame that comes in byte by byte, one that never ends, and one whose sender is gone."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stop = threading.Event()

        def trickle():
            theirs.sendall(struct.pack(">II", 1000, 0))
            while not stop.wait(0.01):
                theirs.send(b" ")

        thread = threading.Thread(target=trickle)
        thread.start()
        began = time.monotonic()
        with pytest.raises(wire.WireTimeout):
            wire.receive(ours, began + 0.3)
        assert 0.2 < time.monotonic() - began < 5
        stop.set()
        thread.join()
        theirs.close()
        with pytest.raises(wire.WireClosed):
            while True:
                wire.receive(ours, time.monotonic() + 1)


@pytest.mark.parametrize("lengths", [(wire.HEADER_BYTES + 1, 0), (0, wire.TENSOR_BYTES + 1), (2**32 - 1, 2**32 - 1)])
def test_lengths_are_measured_before_anything_is_read(lengths):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(struct.pack(">II", *lengths))
        with pytest.raises(wire.WireError, match="larger than"):
            wire.receive(ours, time.monotonic() + 5)


def test_sending_to_somebody_who_does_not_read_ends_in_time():
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(wire.WireTimeout):
        wire.send(ours, torch.zeros(1 << 20), time.monotonic() + 0.2)
