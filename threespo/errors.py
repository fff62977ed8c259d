"""The one exception that means "the input is wrong", as opposed to "the program is wrong".

The command line turns it into a single message and exit code 2, without a traceback.
"""


class InputError(Exception):
    """Bad input from the user: the message names the file or field, what was found, and the remedy."""
