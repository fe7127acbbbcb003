"""When an op may go: stopped calls come in, the world falls quiet, waits end."""
