"""Starts runs and other processes, watches them and ends them whole: the only package that starts processes."""
