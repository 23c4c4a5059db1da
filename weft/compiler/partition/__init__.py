"""From a program on whole arrays and the shardings of its arguments to the program that every device of a mesh runs."""
