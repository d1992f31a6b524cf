"""What all errors have in common whose reason is the request itself."""


class WrongRequestError(Exception):
    """What was asked for can never be had as it was asked for: a mistake of the one who asks.

    Base of such errors of all parts of relight, beside their own kind. The command tells them as wrong usage;
    the message says what to write instead.
    """
