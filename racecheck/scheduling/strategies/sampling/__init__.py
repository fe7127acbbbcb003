"""Strategies that draw their choices."""
