"""Ranks, their threads, and their state: requests, collectives, the store, times, coverage."""
