"""The one exception that a user is meant to read: its message is a line that says what to do."""


class KlipError(Exception):
    """A mistake in what was asked, as opposed to a fault in Klip."""


class NotFinite(KlipError):
    """A number that training depends on is not finite any more: the run has diverged."""
