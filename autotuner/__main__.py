"""`python -m autotuner` is the `autotuner` command."""

from autotuner.cli import main

if __name__ == "__main__":
    main()
