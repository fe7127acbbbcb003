"""Strategies that keep to something given: a schedule, some orderings, a list of numbers."""
