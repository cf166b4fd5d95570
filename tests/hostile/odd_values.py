# NaN, infinities, huge integers, lone surrogates, fractions and objects as results.
# exercise: kv_cache_cost
# status: failed
import decimal
import fractions

VALUES = [float("nan"), float("inf"), 10**2000, "\ud800", fractions.Fraction(10**500, 3), decimal.Decimal("NaN"), object(), {}]


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *_: VALUES[len(name) % len(VALUES)]
