"""Vector environments that run fast, anywhere, and record every episode."""

from rollhouse._native import VERSION as __version__

__all__ = ["__version__"]
