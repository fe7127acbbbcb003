"""Runs, searches and findings as text for people and data for programs."""
