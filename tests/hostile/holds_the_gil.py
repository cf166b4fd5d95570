# One call that never gives the interpreter back.
# exercise: comm_cost
# status: timeout
import re

re.match(r"(a|a)*b", "a" * 60)
