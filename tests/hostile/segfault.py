# Reads address 0.
# exercise: kv_cache_cost
# status: crashed
import ctypes

ctypes.string_at(0)
