"""A directory that comes first on the path of the launcher and of all that it starts."""
