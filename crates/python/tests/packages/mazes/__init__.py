"""A package of envs that nodes of tests host."""
