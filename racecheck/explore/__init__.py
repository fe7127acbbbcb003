"""Searches: many runs of a scenario, their findings on disk, and a finding's run again."""
