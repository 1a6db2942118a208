"""The one exception that a user is meant to read: its message is a line that says what to do."""


class KlipError(Exception):
    """A mistake in what was asked, as opposed to a fault in Klip."""


class NotFinite(KlipError):
    """A number that training depends on is not finite any more: the run has diverged.

    `what` is not finite, and where; `way_out` is for whoever called, and may not be there for
    those who called that.
    """

    def __init__(self, what: str, way_out: str = "") -> None:
        super().__init__(f"{what}: {way_out}" if way_out else what)
        self.what = what
