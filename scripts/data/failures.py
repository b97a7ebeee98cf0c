"""What ends a command, and the exit code that it ends with."""
import contextlib
import os
import signal
import sys


class Failure(Exception):
    """Its text says what was asked, what there was, and what to change."""
    code = 1


class BadOptions(Failure):
    """The command line, or a folder that it names, is wrong."""
    code = 2


class BadData(Failure):
    """An input cannot be read as what it is, or a file cannot be written."""
    code = 4


def say(text):
    print(f"sluice: {text}", file=sys.stderr)


def stopped(number, _frame):
    sys.exit(128 + number)  # an exception, so that every `with` cleans up


@contextlib.contextmanager
def uninterrupted():
    """What would stop the command waits until the end of the block.

    By handlers, not by a mask: a signal that the main thread has masked is taken by a thread of a
    library, and Python then runs the handler in the main one."""
    waiting = []
    before = {number: signal.signal(number, lambda came, _frame: waiting.append(came))
              for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in waiting[:1]:
            signal.raise_signal(number)


def run(command):
    """Calls `command`, whose result is the exit code; a failure becomes a message and its code."""
    signal.signal(signal.SIGTERM, stopped)
    signal.signal(signal.SIGINT, stopped)
    try:
        code = command()
        sys.stdout.flush()
    except Failure as failure:
        say(failure)
        code = failure.code
    except BrokenPipeError:  # `| head` has seen enough
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    except OSError as error:
        say(f"{error.filename or 'input or output'}: {error.strerror or error}")
        code = BadData.code
    sys.exit(code)
