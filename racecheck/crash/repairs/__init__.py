"""The log as it would be if the code had been written differently."""
