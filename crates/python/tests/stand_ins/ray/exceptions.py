"""The exceptions of Ray that are caught."""


class RayError(Exception):
    """An actor or a task failed."""
