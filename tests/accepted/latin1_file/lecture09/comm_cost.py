# -*- coding: latin-1 -*-
"""Saved in Latin-1 with a declared encoding, non-ASCII letters in names and texts included."""


def prüfe(größe, name, höchstens=None):
    if größe <= 0 or (höchstens is not None and größe > höchstens):
        raise ValueError(f"{name} = {größe} liegt außerhalb des Möglichen")


def prüfe_anzahl(**anzahlen):
    for name, n in anzahlen.items():
        prüfe(n, name)
        if n % 1 != 0:
            raise ValueError(f"{name} = {n} ist keine ganze Zahl")


def activation_bytes(tokens, d_model, bytes_per_element=2):
    prüfe_anzahl(tokens=tokens, d_model=d_model, bytes_per_element=bytes_per_element)
    return tokens * d_model * bytes_per_element


def ring_all_reduce_bytes_per_rank(message_bytes, t):
    prüfe_anzahl(message_bytes=message_bytes, t=t)
    stück = message_bytes / t
    return 2 * (t - 1) * stück


def tp_layer_bytes_per_rank(tokens, d_model, t, bytes_per_element=2):
    nachricht = activation_bytes(tokens, d_model, bytes_per_element)
    return 4 * ring_all_reduce_bytes_per_rank(nachricht, t)


def layer_matmul_flops(tokens, d_model, backward=True):
    prüfe_anzahl(tokens=tokens, d_model=d_model)
    vorwärts = 24 * tokens * d_model * d_model
    rückwärts = 2 * vorwärts
    return vorwärts + (rückwärts if backward else 0)


def layer_compute_seconds(tokens, d_model, t, peak_flops, utilization=0.5):
    prüfe_anzahl(t=t)
    prüfe(peak_flops, "peak_flops")
    prüfe(utilization, "utilization", höchstens=1)
    return layer_matmul_flops(tokens, d_model) / (utilization * peak_flops * t)


def layer_comm_seconds(tokens, d_model, t, bandwidth, bytes_per_element=2):
    prüfe(bandwidth, "bandwidth")
    return tp_layer_bytes_per_rank(tokens, d_model, t, bytes_per_element) / bandwidth


def comm_to_compute(tokens, d_model, t, peak_flops, bandwidth, utilization=0.5, bytes_per_element=2):
    übertragen = layer_comm_seconds(tokens, d_model, t, bandwidth, bytes_per_element)
    gerechnet = layer_compute_seconds(tokens, d_model, t, peak_flops, utilization)
    return übertragen / gerechnet
