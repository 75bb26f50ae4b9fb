"""What can go wrong with the local stack, as one line that a person can act on."""


class StackError(Exception):
    """The stack cannot go on. The message is one line and says what to do."""
