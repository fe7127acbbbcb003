"""The state of one run, from the fork of its ranks to what each came to."""
