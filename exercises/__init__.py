"""All that a student receives: the exercises, their public tests and the progress board."""
