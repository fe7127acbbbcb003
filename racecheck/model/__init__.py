"""The nouns, what ops say, and the words for them.  Standard library only."""
