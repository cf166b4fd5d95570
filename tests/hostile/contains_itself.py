# A result that contains itself.
# exercise: swiglu
# status: failed
def swiglu_hidden(d_model):
    value = []
    value.append(value)
    return value
