"""A package that is started with -m."""
