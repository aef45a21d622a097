"""A package that cannot be imported."""

raise OSError("no library of that name")
