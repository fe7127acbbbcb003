"""Read the files of a checkpoint, where the reader can harm nothing else."""
