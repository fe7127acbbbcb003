"""Ranks, their threads, and what is known of them: requests, collectives, the store, times, coverage."""
