"""Every crash state is loaded by the scenario's recovery, and judged."""
