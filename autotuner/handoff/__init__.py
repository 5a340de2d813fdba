"""Between the service's words and the trainer's contract: the only package that knows both."""
