"""Errors that are nobody's fault but ours."""

import logging
import traceback

log = logging.getLogger("didlm.serve")


def internal(error: Exception) -> str:
    """What is said of such an error; the log has where it was.

    Its own words are left out, for they may quote what was sent.
    """
    place = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s\n%s", type(error).__name__, place)
    return f"the service could not go on ({type(error).__name__})"
