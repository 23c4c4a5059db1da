"""The second level: steps over memory, in order; loops and branches are steps too."""
