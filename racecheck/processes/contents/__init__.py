"""What is in the files of a checkpoint, read where nothing else can come to harm."""
