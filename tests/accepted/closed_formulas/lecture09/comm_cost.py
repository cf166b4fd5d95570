"""Each function is one closed formula of its own, simplified on paper; none calls another."""


def _require(good, name):
    if not good:
        raise ValueError("argument " + name + " is senseless")


def _count(value):
    return value >= 1 and value == value // 1


def activation_bytes(tokens, d_model, bytes_per_element=2):
    _require(_count(tokens), "tokens")
    _require(_count(d_model), "d_model")
    _require(_count(bytes_per_element), "bytes_per_element")
    return bytes_per_element * d_model * tokens


def ring_all_reduce_bytes_per_rank(message_bytes, t):
    _require(_count(message_bytes), "message_bytes")
    _require(_count(t), "t")
    return 2 * message_bytes - 2 * message_bytes / t


def tp_layer_bytes_per_rank(tokens, d_model, t, bytes_per_element=2):
    _require(_count(tokens), "tokens")
    _require(_count(d_model), "d_model")
    _require(_count(t), "t")
    _require(_count(bytes_per_element), "bytes_per_element")
    return 8 * tokens * d_model * bytes_per_element * (1 - 1 / t)


def layer_matmul_flops(tokens, d_model, backward=True):
    _require(_count(tokens), "tokens")
    _require(_count(d_model), "d_model")
    return 24 * tokens * d_model * d_model + 48 * tokens * d_model * d_model * backward


def layer_compute_seconds(tokens, d_model, t, peak_flops, utilization=0.5):
    _require(_count(tokens), "tokens")
    _require(_count(d_model), "d_model")
    _require(_count(t), "t")
    _require(peak_flops > 0, "peak_flops")
    _require(0 < utilization <= 1, "utilization")
    return 72 * tokens * d_model**2 / t / peak_flops / utilization


def layer_comm_seconds(tokens, d_model, t, bandwidth, bytes_per_element=2):
    _require(_count(tokens), "tokens")
    _require(_count(d_model), "d_model")
    _require(_count(t), "t")
    _require(bandwidth > 0, "bandwidth")
    _require(_count(bytes_per_element), "bytes_per_element")
    return 8 * (t - 1) / t * tokens * d_model * bytes_per_element / bandwidth


def comm_to_compute(tokens, d_model, t, peak_flops, bandwidth, utilization=0.5, bytes_per_element=2):
    _require(_count(tokens), "tokens")
    _require(_count(d_model), "d_model")
    _require(_count(t), "t")
    _require(peak_flops > 0, "peak_flops")
    _require(bandwidth > 0, "bandwidth")
    _require(0 < utilization <= 1, "utilization")
    _require(_count(bytes_per_element), "bytes_per_element")
    # The tokens cancel: both sides grow with them.
    return (t - 1) * bytes_per_element * peak_flops * utilization / (9 * d_model * bandwidth)
