"""The zygote, which forks ranks, and the code that runs in them."""
