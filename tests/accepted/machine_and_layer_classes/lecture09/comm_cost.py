"""Two small classes, a machine and a layer, hold the formulas as properties; the functions only build them and ask."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class _Checked:
    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int":  # annotations are strings here
                if value < 1 or int(value) != value:
                    raise ValueError(f"{field.name} should be a positive whole number and is {value}")
            elif value <= 0:
                raise ValueError(f"{field.name} should be positive and is {value}")


@dataclass(frozen=True)
class Machine(_Checked):
    t: int = 1
    peak_flops: float = 1.0
    bandwidth: float = 1.0
    utilization: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.utilization > 1:
            raise ValueError(f"utilization can't exceed 1 and is {self.utilization}")

    @property
    def flops_per_second(self) -> float:
        return self.t * self.peak_flops * self.utilization

    def ring(self, message_bytes: int) -> float:
        """Every rank sends one t-th of the message in each of 2 (t − 1) steps."""
        return sum(message_bytes / self.t for _ in range(2 * self.t - 2))


@dataclass(frozen=True)
class Layer(_Checked):
    tokens: int
    d_model: int
    bytes_per_element: int = 2

    @property
    def message(self) -> int:
        return self.tokens * self.d_model * self.bytes_per_element

    @property
    def forward_flops(self) -> int:
        return 2 * self.tokens * 12 * self.d_model**2


@dataclass(frozen=True)
class Message(_Checked):
    message_bytes: int


def activation_bytes(tokens, d_model, bytes_per_element=2):
    return Layer(tokens, d_model, bytes_per_element).message


def ring_all_reduce_bytes_per_rank(message_bytes, t):
    return Machine(t).ring(Message(message_bytes).message_bytes)


def tp_layer_bytes_per_rank(tokens, d_model, t, bytes_per_element=2):
    return 4 * Machine(t).ring(Layer(tokens, d_model, bytes_per_element).message)


def layer_matmul_flops(tokens, d_model, backward=True):
    return Layer(tokens, d_model).forward_flops * {True: 3, False: 1}[bool(backward)]


def layer_compute_seconds(tokens, d_model, t, peak_flops, utilization=0.5):
    machine = Machine(t, peak_flops, utilization=utilization)
    return 3 * Layer(tokens, d_model).forward_flops / machine.flops_per_second


def layer_comm_seconds(tokens, d_model, t, bandwidth, bytes_per_element=2):
    machine = Machine(t, bandwidth=bandwidth)
    return 4 * machine.ring(Layer(tokens, d_model, bytes_per_element).message) / machine.bandwidth


def comm_to_compute(tokens, d_model, t, peak_flops, bandwidth, utilization=0.5, bytes_per_element=2):
    layer, machine = Layer(tokens, d_model, bytes_per_element), Machine(t, peak_flops, bandwidth, utilization)
    sent = 4 * machine.ring(layer.message)
    return sent * machine.flops_per_second / (machine.bandwidth * 3 * layer.forward_flops)
