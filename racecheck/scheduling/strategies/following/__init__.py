"""Strategies that follow something given: a schedule, some orderings, a list of numbers."""
