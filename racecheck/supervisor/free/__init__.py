"""Worlds at full speed: free mode, and launch commands that the real launcher starts."""
