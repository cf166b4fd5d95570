# Terminal escapes, HTML and formulas, in the message and in the name of an exception.
# exercise: split_mlp
# status: failed
KIND = type("\x1b[2J<script>=SECRET()", (Exception,), {})


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def leave(*arguments):
        raise KIND(f"\x1b]0;SECRET{arguments}\a=HYPERLINK()")

    return leave
